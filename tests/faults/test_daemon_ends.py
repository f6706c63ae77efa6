"""How daemons end: the signals of operators, terminals and logrotate, and the exit code."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
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
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            daemon.signal(number)
            daemon.wait_for_line(f"signal={number.name}")
        assert daemon.output.count("signal_ignored") == 2
        assert daemon.stop() == 0
    assert not list(tmp_path.rglob("abort"))


@daemons
def test_sighup_reloads_and_is_no_end(start: Callable[[Path], Process], tmp_path: Path) -> None:
    with start(tmp_path) as daemon:
        daemon.signal(signal.SIGHUP)
        daemon.wait_for_line(" reloaded ")
        assert daemon.stop() == 0
    assert not list(tmp_path.rglob("abort"))


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
