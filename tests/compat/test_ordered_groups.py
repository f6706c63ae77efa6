"""Ordered groups of Java's and Python's members: each queue in its order, and handed on with its lock."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.compat.clients import JavaClients, JavaMember, Letter, PythonClients, Queue, Seen
from tests.compat.conftest import Cluster, start
from tests.compat.series import split
from tests.support import raw
from tests.support.java import Judge
from tests.support.order import Fates, events_in, first_of, seen
from tests.support.order import judge as faults_of
from tests.support.ordered_members import MEMBER, OF_QUEUES, TOPIC
from tests.support.processes import Process
from tests.support.programme import LONG, WHY

MakeTopic = Callable[[Any, Judge, int], str]
Fresh = Callable[[str], str]
JAVA = [f"-Drocketmq.client.rebalance.{each}" for each in ("waitInterval=1000", "lockInterval=500")]
"""Java's members look every second, and renew their locks in time."""
LOCKS = {"rebalanceLockMaxLiveTime": "3000"}
"""Locks live 3 s instead of 60."""
LOCKS_OF_APACHE = ("-Drocketmq.broker.rebalance.lockMaxLiveTime=3000",)
KEYS = 12


def test_members_of_both_sides_keep_the_order(
    cluster: Cluster, judge: Judge, python: PythonClients, topic: MakeTopic, fresh: Fresh
) -> None:
    name, group = topic(cluster, judge, 4), fresh("group")
    java = JavaClients(judge)

    def send(start: int, end: int) -> None:
        for n in range(start, end):
            for queue in range(4):
                producer.send([Letter(name, b"%d" % n)], "sync", Queue(name, "broker-a", queue))

    with (
        java.producer(fresh("producers"), cluster.address) as producer,
        python.member(group, cluster.address, {name: "*"}, orderly=True) as first,
    ):
        send(0, 10)
        assert len(first.assigned(4)) == 4
        alone = first.received(40)
        with java.member(group, cluster.address, {name: "*"}, orderly=True) as second:
            shares = split(first, second)
            assert [len(share) for share in shares] == [2, 2]
            assert not set(shares[0]) & set(shares[1])
            send(10, 20)
            mine, other = first.received(20), second.received(20)
        assert len(first.assigned(4)) == 4  # Java gave its locks back
        send(20, 25)
        rest = first.received(20)

    for queue in range(4):
        assert numbers([*alone, *mine, *other, *rest], queue) == list(range(25))


def numbers(messages: list[Seen], queue: int) -> list[int]:
    """What came of a queue, in the order in which it came."""
    return [int(each.body) for each in messages if each.queue == queue]


@pytest.mark.parametrize(
    "kind", ["eruca", "4.9.7", pytest.param("5.3.3", marks=pytest.mark.skipif(not LONG, reason=WHY))]
)
def test_members_of_both_sides_are_killed(kind: str, tmp_path: Path, python: PythonClients) -> None:
    """First one of Python's, for which Java goes on, then Java's, for which a new one of Python's does.

    Each sharding key keeps its order: nothing is left out, and what comes again is what the killed one did not report.
    """
    book, fates, sent = tmp_path / "book", Fates(), list[str]()
    book.touch()

    def send(count: int) -> None:
        for number in range(len(sent), len(sent) + count):
            key = number % KEYS
            sent.append(f"{key}/{number // KEYS}")
            producer.send([Letter(TOPIC, sent[-1].encode())], "sync", Queue(TOPIC, "broker-a", key % 4))

    def member(name: str) -> Process:
        script = MEMBER.replace("{planted}", "").replace("{order}", OF_QUEUES)
        command = [sys.executable, "-c", script, cluster.address, str(book), name, "0.003"]
        return Process(command, tmp_path / f"{name}.out")

    def until_all_are_consumed() -> None:
        until(lambda: seen(events_in(book)) == set(sent), lambda: set(sent) - seen(events_in(book)))

    def one_is_killed(name: str, kill: Callable[[], object]) -> None:
        """When both have their share; what it had not done yet the other does."""
        until(lambda: len(held.assigned(0)) == 2, lambda: held.assigned(0))
        send(4 * KEYS)
        until_all_are_consumed()
        send(2 * KEYS)
        kill()
        fates.killed[name] = time.monotonic()
        send(4 * KEYS)
        until_all_are_consumed()

    fields = {"topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6"}
    fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    with (
        start(kind, tmp_path, LOCKS, options=LOCKS_OF_APACHE) as cluster,
        Judge("4.9.7" if kind == "eruca" else kind, tmp_path, options=JAVA) as java,
        python.producer("producers", cluster.address) as producer,
    ):
        assert raw.ask(cluster.broker.address, 17, fields)[0]["code"] == 0
        group: dict[str, Any] = {
            "group": "ordered",
            "namesrv": cluster.address,
            "topics": {TOPIC: "*"},
            "orderly": True,
        }
        java.call("push", name="java", **group, book=str(book), workMs=3, persistMs=500)
        held = JavaMember(java, "java")
        until(lambda: len(held.assigned(4)) == 4, lambda: held.assigned(0))
        with member("first") as first:
            one_is_killed("first", first.kill)
        assert len(held.assigned(4)) == 4
        with member("second"):
            one_is_killed("java", java.kill)

    events = events_in(book)
    assert faults_of(events, fates) == []
    for key in range(KEYS):
        numbers = [int(body.partition("/")[2]) for body in first_of(events) if body.startswith(f"{key}/")]
        assert numbers == list(range(20))
    owners = [{event.member for event in events if event.queue == queue} for queue in range(4)]
    assert sum("first" in each for each in owners) == 2
    assert all(each >= {"java", "second"} for each in owners)


def until(condition: Callable[[], bool], state: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"not within a minute: {state()}"
        time.sleep(0.05)
