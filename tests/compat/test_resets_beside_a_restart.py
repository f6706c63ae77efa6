"""A reset right after one of two brokers restarted, which does not know Java's member yet: all messages come again."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from eruca.admin.cli import run
from tests.compat.clients import JavaClients, Letter, Member, Queue, Seen
from tests.support.eruca import ErucaBroker, ErucaNameServer
from tests.support.java import Judge

MESSAGES = 20


class Two:
    """A nameserver and two masters."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.nameserver = ErucaNameServer(home / "names")
        self.brokers = {name: self.start(name) for name in ("broker-a", "broker-b")}

    def start(self, name: str, port: int = 0) -> ErucaBroker:
        settings = {"brokerName": name, "listenPort": str(port)}
        return ErucaBroker(self.home / name, self.nameserver.address, settings)

    def restart(self, name: str) -> None:
        self.brokers[name].stop()
        self.brokers[name] = self.start(name, self.brokers[name].port)

    def mqadmin(self, *line: str) -> str:
        out = io.StringIO()
        environment = {"NAMESRV_ADDR": self.nameserver.address, "XDG_STATE_HOME": str(self.home)}
        assert asyncio.run(run(line, environment, out, out)) == 0, out.getvalue()
        return out.getvalue()


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    two = Two(tmp_path)
    try:
        yield two
    finally:
        for broker in two.brokers.values():
            broker.process.kill()
        two.nameserver.stop()


def received(member: Member, count: int) -> list[Seen]:
    seen: list[Seen] = []
    deadline = time.monotonic() + 60
    while len(seen) < count and time.monotonic() < deadline:
        seen += member.received(1, 0.2)
    return seen


def test_all_messages_come_again(two: Two, judge: Judge) -> None:
    two.mqadmin("updateTopic", "-c", "JudgeCluster", "-t", "T", "-r", "2", "-w", "2")
    clients = JavaClients(judge)
    with clients.member("g", two.nameserver.address, {"T": "*"}) as member:
        with clients.producer("p", two.nameserver.address) as producer:
            for n in range(MESSAGES):
                producer.send([Letter("T", b"%d" % n)], "sync", Queue("T", f"broker-{'ab'[n % 2]}", n // 2 % 2))
        assert len(received(member, MESSAGES)) == MESSAGES
        deadline = time.monotonic() + 30
        while "Diff Total: 0" not in two.mqadmin("consumerProgress", "-g", "g"):
            assert time.monotonic() < deadline, "the member did not commit what it consumed"
            time.sleep(0.5)
        two.restart("broker-b")
        told = two.mqadmin("resetOffsetByTime", "-g", "g", "-t", "T", "-s", "0")
        assert "broker-b does not know the members of g yet: waiting for their heartbeat" in told
        assert "4 of 4 queues moved (" in told
        assert sorted(int(each.body) for each in received(member, MESSAGES)) == list(range(MESSAGES))
