"""What went wrong with earlier connectors of RocketMQ and Spark (issues of apache/rocketmq-externals) does not here.

Each run of a query is a reader of its own that knows no more than what Spark keeps: the offsets in the checkpoint.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from eruca.client.sync import PullConsumer
from eruca.spark_connector.options import read_options
from eruca.spark_connector.read.stream import StreamReader
from eruca.spark_connector.schema import default_schema
from tests.support.spark import Topic

pytestmark = pytest.mark.usefixtures("fresh_clients")
ALL = ReadAllAvailable()


class Query:
    """A query and its checkpoint; ``restart`` is all that a new process knows."""

    def __init__(self, topic: Topic, **options: str) -> None:
        given = {"nameServer": topic.name_server, "subscribe": topic.name, "latestOffsetCacheMs": "0"}
        self._options = read_options({**given, "commitIntervalMs": "0", **options}, streaming=True)
        self.restart()
        self._at: dict[str, Any] = self._reader.initialOffset()

    def restart(self) -> None:
        self._reader = StreamReader(self._options, default_schema(), 2)

    def trigger(self, limit: Any = ALL) -> list[bytes]:
        """The bodies of the next batch."""
        end = json.loads(json.dumps(self._reader.latestOffset(self._at, limit)))
        parts = self._reader.partitions(self._at, end)
        self._at = end
        return sorted(body for part in parts for each in self._reader.read(part) for body in each["body"].to_pylist())


def send(topic: Topic, queue: int, *bodies: bytes) -> None:
    for body in bodies:
        topic.send(queue, body)


def test_901_latest_is_for_new_queries_and_a_restart_reads_nothing_again(topic: Topic) -> None:
    send(topic, 0, b"history")
    query = Query(topic, startingOffsets="latest")
    assert query.trigger() == []
    send(topic, 0, b"a", b"b")
    assert query.trigger() == [b"a", b"b"]

    send(topic, 1, b"while it was down")
    query.restart()
    assert query.trigger() == [b"while it was down"]
    query.restart()
    assert query.trigger() == []


def test_876_the_group_goes_on_behind_the_last_message_and_not_at_it(topic: Topic) -> None:
    send(topic, 0, b"a", b"b", b"c")
    query = Query(topic, startingOffsets="earliest", commitGroup="g876")
    assert query.trigger() == [b"a", b"b", b"c"]
    assert query.trigger() == []

    with PullConsumer("g876", nameserver=topic.name_server) as group:
        assert group.query_offset(topic.queues[0]) == 3
    assert Query(topic, startingOffsets="group", commitGroup="g876").trigger() == []


def test_94_the_group_is_the_one_that_was_named(topic: Topic) -> None:
    send(topic, 0, b"a", b"b", b"c")
    with PullConsumer("streaming1", nameserver=topic.name_server) as group:
        group.update_offset(topic.queues[0], 2)

    query = Query(topic, startingOffsets="group", commitGroup="streaming1")
    assert query.trigger() == [b"c"]
    query.trigger()

    with PullConsumer("streaming1", nameserver=topic.name_server) as group:
        assert group.query_offset(topic.queues[0]) == 3
    with PullConsumer("another", nameserver=topic.name_server) as other:
        assert other.query_offset(topic.queues[0]) in (None, 0)


def test_94_batches_follow_one_another(topic: Topic) -> None:
    query = Query(topic, startingOffsets="earliest")
    send(topic, 0, *(b"%d" % number for number in range(9)))

    assert [query.trigger(ReadMaxRows(3)) for _ in range(4)] == [
        [b"0", b"1", b"2"],
        [b"3", b"4", b"5"],
        [b"6", b"7", b"8"],
        [],
    ]


def test_148_empty_queues_hold_up_nothing(topic: Topic) -> None:
    query = Query(topic, startingOffsets="earliest", maxOffsetsPerTrigger="100")
    assert query.trigger() == []
    send(topic, 2, b"the only queue with messages")
    assert query.trigger() == [b"the only queue with messages"]

    send(topic, 2, b"one more")
    send(topic, 0, b"the first there")
    assert query.trigger() == [b"one more", b"the first there"]
    assert query.trigger() == []
