"""How daemons end: the signals of operators, terminals and logrotate, and the exit code."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

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
