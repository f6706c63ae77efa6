"""Ordered groups of Java's and Python's members: each queue in its order, and handed on with its lock."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.compat.clients import JavaClients, Letter, PythonClients, Queue, Seen
from tests.compat.conftest import Cluster
from tests.compat.test_consuming import split
from tests.faults.test_ordered_members import MEMBER, TOPIC
from tests.support import raw
from tests.support.eruca import ErucaCluster
from tests.support.java import Judge
from tests.support.processes import Process

MakeTopic = Callable[[Any, Judge, int], str]
Fresh = Callable[[str], str]


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


def test_java_goes_on_where_a_killed_python_member_was(tmp_path: Path, judge: Judge, fresh: Fresh) -> None:
    """Behind what it has consumed or, of the last that it did not report, again; nothing is left out."""
    java = JavaClients(judge)
    book = tmp_path / "book"
    book.touch()

    def told() -> dict[int, list[int]]:
        """By queue, what the Python member has consumed."""
        ended: dict[int, list[int]] = defaultdict(list)
        for line in book.read_text().splitlines():
            _, kind, _, queue, _, body = line.split()
            if kind == "end":
                ended[int(queue)].append(int(body))
        return ended

    def send(start: int, end: int) -> None:
        for n in range(start, end):
            for queue in range(4):
                producer.send([Letter(TOPIC, b"%d" % n)], "sync", Queue(TOPIC, "broker-a", queue))

    fields = {"topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6"}
    fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    with ErucaCluster(tmp_path, {"rebalanceLockMaxLiveTime": "3000"}) as cluster:
        assert raw.ask(cluster.broker.address, 17, fields)[0]["code"] == 0
        command = [sys.executable, "-c", MEMBER.replace("{planted}", ""), cluster.address, str(book), "python", "0.003"]
        with (
            Process(command, tmp_path / "python.out") as python,
            java.producer(fresh("producers"), cluster.address) as producer,
            java.member("ordered", cluster.address, {TOPIC: "*"}, orderly=True) as member,
        ):
            python.wait_until(lambda: len(member.assigned(2)) == 2, "half of the queues for Java")
            send(0, 10)
            python.wait_until(lambda: sum(map(len, told().values())) >= 20, "its half of the messages")
            send(10, 12)
            python.kill()
            send(12, 20)
            seen = member.received(60, 60)
            deadline = time.monotonic() + 60
            while any(numbers(seen, queue)[-1:] != [19] for queue in range(4)) and time.monotonic() < deadline:
                seen += member.received(1, 5)
    for queue in range(4):
        before, after = told()[queue], numbers(seen, queue)
        assert before == list(range(len(before))) and len(before) in (0, 10, 11, 12)
        assert after == list(range(after[0], 20)) and after[0] <= len(before)
    assert sum(1 for queue in range(4) if told()[queue]) == 2
