"""One name, one master, with Apache's brokers and nameservers beside Eruca's."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.compat.replicas import SETTINGS, SLAVE, log_of, send, start, wait_for
from tests.support.apache import ApacheBroker, ApacheNameServer
from tests.support.daemons import registered
from tests.support.eruca import ErucaBroker, ErucaNameServer

OFTEN = {"registerNameServerPeriod": "10000"}


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[ErucaNameServer]:
    server = ErucaNameServer(tmp_path / "ours")
    yield server
    server.stop()


def test_an_apache_broker_is_known_again_at_our_nameserver_wherever_it_comes_back(
    tmp_path: Path, ours: ErucaNameServer
) -> None:
    """Killed and started elsewhere; stopped in order, and started at another port of the same place."""
    first = ApacheBroker("4.9.7", tmp_path / "first", ours.address)
    first.process.kill()
    wait_for(lambda: not registered(first.address, ours.address), "the end of the killed broker", 4)
    second = ApacheBroker("4.9.7", tmp_path / "second", ours.address)
    assert send(second, range(3)) == [0, 0, 0]
    assert second.address != first.address and not registered(first.address, ours.address)
    second.stop()
    third = ApacheBroker("4.9.7", tmp_path / "second", ours.address)
    assert registered(third.address, ours.address) and not registered(second.address, ours.address)
    third.discard()
    assert "registration_refused" not in ours.process.output


def test_a_second_apache_master_has_to_wait_until_the_first_is_gone(tmp_path: Path, ours: ErucaNameServer) -> None:
    first = ApacheBroker("4.9.7", tmp_path / "first", ours.address, OFTEN)
    with ThreadPoolExecutor() as thread:
        starting = thread.submit(ApacheBroker, "4.9.7", tmp_path / "second", ours.address, OFTEN)
        try:
            wait_for(lambda: "registration_refused" in ours.process.output, "a refusal")
            assert registered(first.address, ours.address) and not starting.done()
        finally:
            first.discard()
        second = starting.result()
    try:
        [line] = [line for line in ours.process.output.splitlines() if "registration_refused" in line]
        assert first.address in line and second.address in line
        assert registered(second.address, ours.address) and not registered(first.address, ours.address)
    finally:
        second.discard()


@pytest.mark.parametrize(("kind", "count"), [("apache", 2), ("apache", 300), ("eruca", 300)])
def test_of_a_second_master_a_slave_takes_nothing(tmp_path: Path, kind: str, count: int) -> None:
    """Apache's nameserver gives the name to the last one that registers."""
    theirs = ApacheNameServer("4.9.7", tmp_path / "names")
    first = start("apache", tmp_path / "first", theirs.address, SETTINGS)
    slave = ErucaBroker(tmp_path / "slave", theirs.address, SLAVE)
    second = None
    try:
        assert set(send(first, range(100))) == {0}
        wait_for(lambda: log_of(slave) == log_of(first), "equal logs", 60)
        slave.stop()
        held = log_of(slave)
        # It registers again by itself, at the latest after 60 s: it would have its name back in the midst of this.
        first.process.signal(signal.SIGSTOP)
        second = start(kind, tmp_path / "second", theirs.address, SETTINGS)
        assert set(send(second, range(1000, 1000 + count))) == {0}
        slave = ErucaBroker(tmp_path / "slave", theirs.address, SLAVE)
        line = slave.process.wait_for_line("copy_refused")
        assert f"127.0.0.1:{second.port + 1}" in line and "second master" in line and "nothing was taken" in line
        assert ("sends no log" if count == 2 else "has another log") in line
        assert log_of(slave) == held
    finally:
        slave.stop()
        first.discard()
        if second is not None:
            second.discard()
        theirs.stop()
    assert log_of(slave) == held
