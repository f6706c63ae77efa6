"""Ordered groups of Java's and Python's members: each queue in its order, and handed on with its lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.compat.clients import JavaClients, Letter, PythonClients, Queue, Seen
from tests.compat.conftest import Cluster
from tests.compat.test_consuming import split
from tests.support.java import Judge

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
