"""How daemons end: the signals of operators, terminals and logrotate, and the exit code."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from eruca.broker.app import BrokerApp
from eruca.broker.store import FileSystem
from eruca.remoting.listener import PortTaken
from tests.support.desk import Desk
from tests.support.ports import free_broker_port
from tests.support.processes import Process

pytestmark = pytest.mark.processes
BIN = Path(sys.executable).parent


def nameserver(folder: Path) -> Process:
    conf = folder / "namesrv.conf"
    conf.write_text(f"listenPort=0\nbindAddress=127.0.0.1\nkvConfigPath={folder / 'kvConfig.json'}\n")
    process = Process([str(BIN / "mqnamesrv"), "-c", str(conf)], folder / "log")
    process.wait_for_line("listening on")
    return process


def broker(folder: Path) -> Process:
    conf = folder / "broker.conf"
    conf.write_text(
        f"listenPort={free_broker_port()}\nbindAddress=127.0.0.1\nbrokerIP1=127.0.0.1\n"
        f"storePathRootDir={folder / 'store'}\nmappedFileSizeCommitLog=1048576\n"
    )
    process = Process([str(BIN / "mqbroker"), "-c", str(conf)], folder / "log")
    process.wait_for_line("boot success")
    return process


def standalone(folder: Path) -> Process:
    command = [str(BIN / "eruca"), "standalone", "--store", str(folder), "--port", "0", "--broker-port", "0"]
    process = Process(command, folder / "log")
    process.wait_for_line("try: mqadmin")
    return process


daemons = pytest.mark.parametrize("start", [nameserver, broker, standalone], ids=lambda start: start.__name__)


@daemons
def test_a_signal_for_which_there_is_nothing_to_do_is_a_line_and_no_end(
    start: Callable[[Path], Process], tmp_path: Path
) -> None:
    with start(tmp_path) as daemon:
        daemon.signal(signal.SIGUSR2)
        daemon.wait_for_line("signal=SIGUSR2")
        assert daemon.output.count("signal_ignored") == 1
        assert daemon.stop() == 0
    assert not list(tmp_path.rglob("abort"))


@daemons
def test_sighup_reloads_and_is_no_end(start: Callable[[Path], Process], tmp_path: Path) -> None:
    with start(tmp_path) as daemon:
        daemon.signal(signal.SIGHUP)
        daemon.wait_for_line(" reloaded ")
        assert daemon.stop() == 0
    assert not list(tmp_path.rglob("abort"))


def said(daemon: Process, text: str, times: int) -> bool:
    return daemon.output.count(text) == times


@daemons
def test_sigusr1_dumps_threads_and_tasks_and_is_no_end(start: Callable[[Path], Process], tmp_path: Path) -> None:
    with start(tmp_path) as daemon:
        for times in (1, 2):
            daemon.signal(signal.SIGUSR1)
            for line in (" dumped ", "thread=MainThread"):
                daemon.wait_until(partial(said, daemon, line, times), f"dump {times}: {line}")
        assert "reloads" in daemon.output and "(remoting/reloads.py:" in daemon.output
        assert "serve (" in daemon.output
        assert daemon.stop() == 0
    assert not list(tmp_path.rglob("abort"))


STUCK = """
import asyncio, sys, time
from eruca.remoting import run
from eruca.remoting.logs import log_to_stderr
from eruca.remoting.signals import stop_event

def stuck():
    print("stuck", flush=True)
    sys.stdin.readline()

async def main():
    over = stop_event(bool)
    asyncio.get_running_loop().call_soon(stuck)
    await over.wait()

with log_to_stderr():
    run(main())
"""


def test_sigusr1_says_where_an_event_loop_is_stuck(tmp_path: Path) -> None:
    with Process([sys.executable, "-c", STUCK], tmp_path / "log", talks=True) as daemon:
        assert daemon.output_lines.readline() == "stuck\n"
        daemon.signal(signal.SIGUSR1)
        line = daemon.wait_for_line("thread=MainThread")
        assert "stack='stuck (" in line and " dumped " not in daemon.output
        daemon.input.write("\n")
        daemon.input.flush()
        daemon.wait_for_line(" dumped ")
        assert daemon.stop() == 0


@pytest.mark.parametrize(
    ("start", "file", "live", "said", "fixed"),
    [
        (broker, "broker.conf", "defaultTopicQueueNums=3", "defaultTopicQueueNums: 8 -> 3", "brokerName=other"),
        (nameserver, "namesrv.conf", "orderMessageEnable=true", "orderMessageEnable: false -> true", "bindAddress=::1"),
    ],
    ids=["broker", "nameserver"],
)
def test_sighup_applies_what_may_change_of_the_file(
    start: Callable[[Path], Process], file: str, live: str, said: str, fixed: str, tmp_path: Path
) -> None:
    key = live.partition("=")[0]
    with start(tmp_path) as daemon:
        path = tmp_path / file
        before = path.read_text()
        path.write_text(f"{before}{live}\n{fixed}\n")
        daemon.signal(signal.SIGHUP)
        assert f"change='{said}'" in daemon.wait_for_line(f"reload_changed                 change='{key}")
        line = daemon.wait_for_line("it takes effect at a restart")
        assert fixed.partition("=")[0] in line and "part=settings" in line
        daemon.wait_for_line(" reloaded ")
        path.write_text(f"{before}{key}=nothing that it may be\n")
        daemon.signal(signal.SIGHUP)
        assert f"{key}: 'nothing that it may be' is not allowed" in daemon.wait_for_line("reload_failed").replace(
            '"', ""
        )
        assert daemon.stop() == 0


@daemons
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT], ids=lambda number: number.name)
def test_a_signal_that_ends_a_daemon_ends_it_in_order(
    start: Callable[[Path], Process], number: signal.Signals, tmp_path: Path
) -> None:
    with start(tmp_path) as daemon:
        daemon.signal(number)
        assert daemon.wait() == 0
    assert not list(tmp_path.rglob("abort"))


@pytest.mark.parametrize("start", [broker, standalone], ids=lambda start: start.__name__)
def test_a_store_that_cannot_be_closed_in_order_ends_with_1_and_a_sentence(
    start: Callable[[Path], Process], tmp_path: Path
) -> None:
    with start(tmp_path) as daemon:
        (mark,) = tmp_path.rglob("checkpoint")
        mark.unlink()
        mark.mkdir()
        assert daemon.stop() == 1
        assert "store_not_closed_in_order" in daemon.output
        assert "stopped, but not everything could be saved: the store was not closed in order" in daemon.output
    assert list(tmp_path.rglob("abort"))


def set_to(*values: str) -> list[str]:
    return [argument for value in values for argument in ("--set", value)]


LISTEN, METRICS = ("listenPort", "listenPort"), ("metricsPort, for health and metrics", "metricsPort (0: none)")
VIP, HA = ("the VIP port, listenPort - 2", "listenPort"), ("the HA port, listenPort + 1", "listenPort")


@pytest.mark.parametrize(
    ("command", "step", "option", "what"),
    [
        ("mqnamesrv", 0, "--set listenPort={}", LISTEN),
        ("mqnamesrv", 0, "--set listenPort=0 --set metricsPort={}", METRICS),
        ("mqbroker", 0, "--set listenPort={}", LISTEN),
        ("mqbroker", -2, "--set listenPort={}", VIP),
        ("mqbroker", 1, "--set listenPort={}", HA),
        ("mqbroker", 0, "--set listenPort=0 --set metricsPort={}", METRICS),
        ("eruca", 0, "--port {} --broker-port 0", ("--port", "--port")),
        ("eruca", 0, "--port 0 --broker-port {}", ("--broker-port", "--broker-port")),
    ],
    ids=lambda value: value if isinstance(value, str) and value.startswith("--") else "",
)
def test_a_port_that_another_process_has_ends_a_start_with_1_and_leaves_nothing(
    command: str, step: int, option: str, what: tuple[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "its"
    arguments = {
        "mqnamesrv": set_to("bindAddress=127.0.0.1", f"kvConfigPath={folder}/kv.json"),
        "mqbroker": set_to("bindAddress=127.0.0.1", f"storePathRootDir={folder}"),
        "eruca": ["standalone", "--store", str(folder)],
    }[command]
    name = "eruca standalone" if command == "eruca" else command
    listen = free_broker_port()
    port, options = listen + step, option.format(listen).split()
    with socket.create_server(("127.0.0.1", port)):
        with Process([str(BIN / command), *arguments, *options], tmp_path / "log") as daemon:
            assert daemon.wait() == 1
        assert daemon.output.splitlines()[-1] == (
            f"{name}: cannot listen on 127.0.0.1:{port} ({what[0]}): Address already in use; stop what holds it "
            f"(ss -tanp 'sport = :{port}' names it), or set another {what[1]}"
        )
    assert not folder.exists()


def test_a_second_start_with_the_same_file_leaves_the_first_one_as_it_is(tmp_path: Path) -> None:
    with broker(tmp_path) as first:
        before = sorted(tmp_path.rglob("*"))
        with Process([str(BIN / "mqbroker"), "-c", str(tmp_path / "broker.conf")], tmp_path / "log2") as second:
            assert second.wait() == 1 and "stop what holds it" in second.output
        (tmp_path / "log2").unlink()
        assert sorted(tmp_path.rglob("*")) == before
        assert first.stop() == 0
    assert not list(tmp_path.rglob("abort"))


class Meanwhile(FileSystem):
    """A disk on which a store is opened while another process begins to listen."""

    def __init__(self, other: socket.socket) -> None:
        self._other = other

    def flush_folder(self, path: Path | str) -> None:
        self._other.listen()
        super().flush_folder(path)


@pytest.mark.parametrize("step", [0, -2, 1], ids=["main", "VIP", "HA"])
async def test_of_two_starts_at_once_the_second_to_listen_ends_in_order(step: int, tmp_path: Path) -> None:
    """Both can bind the port before one of them listens."""
    with socket.socket() as other:
        config = Desk(tmp_path).config
        port = config.server.listen_port = free_broker_port()
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port + step))
        app = BrokerApp(config, file_system=Meanwhile(other))
        with pytest.raises(PortTaken, match=rf":{port + step} \(another process listened first\): Addr.*; stop what"):
            await app.start()
    assert app.faults == []
    assert not (tmp_path / "store" / "abort").exists()
    config.server.listen_port = 0
    again = BrokerApp(config)
    await again.start()
    await again.stop()
