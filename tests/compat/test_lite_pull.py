"""Lite pull consumers of Java and of Eruca, each on both sides' brokers: the same transcript, one group, one reset."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.compat.clients import JavaClients, Letter, PythonClients, Queue, Seen
from tests.compat.conftest import Cluster, Pair
from tests.compat.lite import Refusal, lite
from tests.compat.transcript import java_mqadmin
from tests.support.apache import ApacheCluster
from tests.support.java import Judge

MakeTopic = Callable[[Any, Judge, int], str]
Fresh = Callable[[str], str]


def test_assigned_queues_seeks_and_commits(
    pair: Pair, judge: Judge, python: PythonClients, topic: MakeTopic, fresh: Fresh
) -> None:
    if pair.name == "apache-java5":
        pytest.skip("5.x lite pull sends code 361, which Apache's 4.9 broker does not know")
    seek_and_commit(pair, judge, python, topic, fresh)


def test_assigned_queues_at_a_broker_of_5(
    apache5: ApacheCluster, judge5: Judge, python: PythonClients, topic: MakeTopic, fresh: Fresh
) -> None:
    seek_and_commit(Pair("apache5-python", apache5, python), judge5, python, topic, fresh)


def seek_and_commit(pair: Pair, judge: Judge, python: PythonClients, topic: MakeTopic, fresh: Fresh) -> None:
    name, group = topic(pair.cluster, judge, 3), fresh("group")
    first, second, third = (Queue(name, "broker-a", number) for number in range(3))
    assert isinstance(pair.clients, JavaClients | PythonClients)

    with pair.clients.producer(fresh("producers"), pair.address) as producer:
        for queue in (first, second, third):
            producer.send([Letter(name, b"%d" % number) for number in range(30)], "sync", queue)
        with lite(pair.clients, group, pair.address, queues=[first, second]) as consumer:
            seen = consumer.poll(60)
            assert [numbers(seen, each) for each in (0, 1, 2)] == [list(range(30)), list(range(30)), []]

            consumer.seek(first, 12)
            assert numbers(consumer.poll(18), 0) == list(range(12, 30))
            consumer.seek(first, "begin")
            assert numbers(consumer.poll(30), 0) == list(range(30))
            consumer.seek(first, "end")
            producer.send([Letter(name, b"30")], "sync", first)
            assert numbers(consumer.poll(1), 0) == [30]
            with pytest.raises(Refusal, match="Seek offset illegal, seek offset = 32, min offset = 0, max offset = 31"):
                consumer.seek(first, 32)
            with pytest.raises(Refusal, match="The message queue is not in assigned list, message queue: MessageQueue"):
                consumer.seek(third, 0)

            middle = [each.store_timestamp for each in seen if each.queue == 0][15]
            by_time = consumer.time(first, middle)
            assert 10 <= by_time <= 20
            consumer.seek(first, by_time)
            assert numbers(consumer.poll(31 - by_time), 0) == list(range(by_time, 31))

            consumer.commit()
            until_stored(python, pair, group, {first: 31, second: 30})
            consumer.assign([third])
            assert numbers(consumer.poll(30), 2) == list(range(30))

        with lite(pair.clients, group, pair.address, queues=[first, third]) as consumer:
            assert numbers(consumer.poll(30), 2) == list(range(30))  # not committed, so it comes again
            assert consumer.poll(1, 0.5) == []


@pytest.mark.parametrize("kind", ["apache", "apache5", "eruca"])
def test_members_of_both_sides_share_a_group(
    kind: str, request: pytest.FixtureRequest, python: PythonClients, topic: MakeTopic, fresh: Fresh
) -> None:
    cluster: Cluster = request.getfixturevalue(kind)
    judge: Judge = request.getfixturevalue("judge5" if kind == "apache5" else "judge")
    name, group = topic(cluster, judge, 4), fresh("group")
    java = JavaClients(judge)
    queues = [Queue(name, "broker-a", number) for number in range(4)]

    with (
        java.producer(fresh("producers"), cluster.address) as producer,
        lite(java, group, cluster.address, topics={name: "*"}) as one,
    ):
        with lite(python, group, cluster.address, topics={name: "*"}) as other:
            assert sorted_queues(one.assignment(2) + other.assignment(2)) == queues
            for number in range(40):
                producer.send([Letter(name, b"%d" % number)], "sync", queues[number % 4])
            from_java, from_python = one.poll(20), other.poll(20)
            assert sorted(int(each.body) for each in from_java + from_python) == list(range(40))
            printed = java_mqadmin(judge)(("consumerConnection", "-n", cluster.address, "-g", group)).stdout
            assert "CONSUME_ACTIVELY" in printed and "CLUSTERING" in printed
            one.commit()
            other.commit()
            until_stored(python, cluster, group, dict.fromkeys(queues, 10))
        assert one.assignment(4) == queues
        producer.send([Letter(name, b"40")], "sync", queues[3])
        assert [int(each.body) for each in one.poll(1)] == [40]  # nothing that was committed comes again


def test_a_reset_reaches_a_member_of_eruca(
    cluster: Cluster, judge: Judge, python: PythonClients, topic: MakeTopic, fresh: Fresh
) -> None:
    rewind_and_poll_again(cluster, judge, judge, python, topic, fresh)


def test_a_reset_on_a_broker_of_5(
    apache5: ApacheCluster, judge: Judge, judge5: Judge, python: PythonClients, topic: MakeTopic, fresh: Fresh
) -> None:
    """A broker of 5.3.3 resets on its side: the next pull is answered by where to go on."""
    rewind_and_poll_again(apache5, judge, judge5, python, topic, fresh)


def rewind_and_poll_again(
    cluster: Cluster, judge: Judge, operator: Judge, python: PythonClients, topic: MakeTopic, fresh: Fresh
) -> None:
    name, group = topic(cluster, operator, 1), fresh("group")
    queue = Queue(name, "broker-a", 0)
    with (
        JavaClients(judge).producer(fresh("producers"), cluster.address) as producer,
        lite(python, group, cluster.address, topics={name: "*"}, hold=1.0) as consumer,
    ):
        producer.send([Letter(name, b"%d" % number) for number in range(20)], "sync", queue)
        seen = consumer.poll(20)
        assert numbers(seen, 0) == list(range(20))
        consumer.commit()
        until_stored(python, cluster, group, {queue: 20})
        middle = seen[10].store_timestamp
        line = ("resetOffsetByTime", "-n", cluster.address, "-g", group, "-t", name, "-s", str(middle))
        done = java_mqadmin(operator)(line)
        assert done.exit == 0, done.stderr
        (start,) = (int(row.split()[2]) for row in done.stdout.splitlines() if row.startswith("broker-a"))
        assert 0 < start < 20
        assert numbers(consumer.poll(20 - start), 0) == list(range(start, 20))
        assert consumer.poll(1, 0.5) == []


# ---------------------------------------------------------------------- what is compared


def numbers(seen: list[Seen], queue: int) -> list[int]:
    return [int(each.body) for each in seen if each.queue == queue]


def sorted_queues(queues: list[Queue]) -> list[Queue]:
    return sorted(queues, key=lambda each: each.number)


def until_stored(python: PythonClients, cluster: Pair | Cluster, group: str, offsets: dict[Queue, int]) -> None:
    """Wait until the broker has these offsets of the group; Java's commit does not wait for the broker."""
    with python.puller(group, cluster.address) as puller:
        deadline = time.monotonic() + 30
        while (stored := {queue: puller.offset(queue, "committed") for queue in offsets}) != offsets:
            assert time.monotonic() < deadline, f"stored are {stored}"
            time.sleep(0.05)
