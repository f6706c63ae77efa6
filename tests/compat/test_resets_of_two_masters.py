"""Resets at two masters, Eruca's and Apache's: one that has just restarted, one that hangs, one queue, the way back."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from eruca.admin.cli import run
from tests.compat.clients import JavaClients, Letter, Member, Queue, Seen
from tests.support.apache import ApacheBroker, ApacheNameServer
from tests.support.eruca import ErucaBroker, ErucaNameServer
from tests.support.java import Judge

MESSAGES = 20
BROKERS = ("broker-a", "broker-b")
_names = itertools.count(1)


class Done(NamedTuple):
    """What a command printed and how it ended."""

    status: int
    out: str
    err: str


class Two:
    """A nameserver and two masters, of "eruca" or of a release of Apache's."""

    def __init__(self, home: Path, kind: str) -> None:
        self.home = home
        self.kind = kind
        self.nameserver: ErucaNameServer | ApacheNameServer
        if kind == "eruca":
            self.nameserver = ErucaNameServer(home / "names")
        else:
            self.nameserver = ApacheNameServer(kind, home / "names")
        self.brokers = {name: self.start(name) for name in BROKERS}

    def start(self, name: str, port: int = 0) -> ErucaBroker | ApacheBroker:
        if self.kind == "eruca":
            settings = {"brokerName": name, "listenPort": str(port)}
            return ErucaBroker(self.home / name, self.nameserver.address, settings)
        return ApacheBroker(self.kind, self.home / name, self.nameserver.address, {"brokerName": name}, port=port)

    def restart(self, name: str) -> None:
        self.brokers[name].stop()
        self.brokers[name] = self.start(name, self.brokers[name].port)

    def end(self) -> None:
        for broker in self.brokers.values():
            broker.process.kill()
        self.nameserver.stop()

    def mqadmin(self, *line: str) -> Done:
        out, err = io.StringIO(), io.StringIO()
        environment = {"NAMESRV_ADDR": self.nameserver.address, "XDG_STATE_HOME": str(self.home)}
        return Done(asyncio.run(run(line, environment, out, err)), out.getvalue(), err.getvalue())

    def done(self, *line: str) -> str:
        done = self.mqadmin(*line)
        if done.status != 0:
            pytest.fail(f"{' '.join(line)} ended with {done.status}:\n{done.out}{done.err}")  # all of it
        return done.out + done.err

    def stored(self, group: str) -> dict[tuple[str, int], int]:
        """The stored offsets of a group, by broker and queue."""
        found = json.loads(self.done("offsets", "export", "-g", group))["queues"]
        return {(each["brokerName"], each["queueId"]): each["offset"] for each in found}


@pytest.fixture(scope="module", params=["eruca", "4.9.7"])
def two(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    two = Two(tmp_path_factory.mktemp("two"), request.param)
    try:
        yield two
    finally:
        two.end()


class Work(NamedTuple):
    """A topic with two queues at each master and five messages in each, and the name of a group."""

    topic: str
    group: str


@pytest.fixture
def work(two: Two, judge: Judge) -> Work:
    number = next(_names)
    work = Work(f"T{number}", f"g{number}")
    two.done("updateTopic", "-c", "JudgeCluster", "-t", work.topic, "-r", "2", "-w", "2")
    with JavaClients(judge).producer(f"p{number}", two.nameserver.address) as producer:
        for n in range(MESSAGES):
            producer.send([Letter(work.topic, b"%d" % n)], "sync", Queue(work.topic, BROKERS[n % 2], n // 2 % 2))
    return work


def received(member: Member, count: int) -> list[Seen]:
    seen: list[Seen] = []
    deadline = time.monotonic() + 60
    while len(seen) < count and time.monotonic() < deadline:
        seen += member.received(1, 0.2)
    return seen


def everywhere(offset: int) -> dict[tuple[str, int], int]:
    """This offset in every queue."""
    return {(name, queue): offset for name in BROKERS for queue in (0, 1)}


def test_all_messages_come_again_after_a_restart(two: Two, work: Work, judge: Judge) -> None:
    """The broker does not know Java's member yet: offsets that were stored there would be overwritten by it."""
    with JavaClients(judge).member(work.group, two.nameserver.address, {work.topic: "*"}) as member:
        assert len(received(member, MESSAGES)) == MESSAGES
        deadline = time.monotonic() + 30
        while "Diff Total: 0" not in two.mqadmin("consumerProgress", "-g", work.group).out:
            assert time.monotonic() < deadline, "the member did not commit what it consumed"
            time.sleep(0.5)
        one = two.mqadmin(
            "resetOffset", "-g", work.group, "-t", work.topic, "--to", "4", "--queue", "broker-a:0", "--dry-run"
        )
        if two.kind == "eruca":
            assert one.status == 3, one
        else:
            assert one.status == 1 and "runs RocketMQ 4.9, which moves members only in all queues" in one.err, one
        two.restart("broker-b")
        told = two.done("resetOffsetByTime", "-g", work.group, "-t", work.topic, "-s", "0", "--wait", "40")
        assert f"broker-b does not know the members of {work.group} yet: waiting for their heartbeat" in told
        assert "4 of 4 queues moved (" in told
        assert sorted(int(each.body) for each in received(member, MESSAGES)) == list(range(MESSAGES))


def test_a_group_that_is_offline(two: Two, work: Work) -> None:
    """It moves everywhere or nowhere, unless a part is asked for; a single queue moves; the way back is exact."""
    line = ("-g", work.group, "-t", work.topic)
    two.done("skipAccumulatedMessage", *line, "--new-group")
    assert two.stored(work.group) == everywhere(5)
    two.brokers["broker-b"].process.signal(signal.SIGSTOP)
    try:
        refused = two.mqadmin("resetOffsetByTime", *line, "-s", "0")
        part = two.mqadmin("resetOffsetByTime", *line, "-s", "0", "--partial")
    finally:
        two.brokers["broker-b"].process.signal(signal.SIGCONT)
    assert (refused.status, refused.out) == (1, "")
    assert "(broker-b: " in refused.err and "--partial does without" in refused.err
    assert part.status == 5 and "not moved: broker-b (" in part.err, part
    assert two.stored(work.group) == everywhere(5) | {("broker-a", 0): 0, ("broker-a", 1): 0}
    before = two.stored(work.group)
    two.done("resetOffset", *line, "--to", "-2", "--queue", "broker-b:1")
    assert two.stored(work.group) == before | {("broker-b", 1): 3}
    told = two.done("resetOffset", *line, "--to", "last")
    assert two.stored(work.group) == everywhere(5)
    back = re.search(r"^the way back: mqadmin (.*)$", told, re.MULTILINE)
    assert back is not None
    two.done(*back[1].split())
    assert two.stored(work.group) == before | {("broker-b", 1): 3}
