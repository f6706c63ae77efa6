"""The planning side of a stream and of an interval, asked directly in the order in which Spark asks."""

from __future__ import annotations

import json
import random
from time import monotonic
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from eruca.client import MessageQueue
from eruca.client.sync import PullConsumer
from eruca.spark_connector.errors import SourceError
from eruca.spark_connector.offsets.bounds import offset_from
from eruca.spark_connector.offsets.group_offsets import stored
from eruca.spark_connector.offsets.positions import StreamOffset, write_positions
from eruca.spark_connector.options import read_options
from eruca.spark_connector.read.stream import StreamReader
from eruca.spark_connector.runtime.access import Access
from eruca.spark_connector.runtime.clients import ClusterClients
from eruca.spark_connector.schema import default_schema
from tests.support.eruca import ErucaCluster
from tests.support.spark import Topic

pytestmark = pytest.mark.usefixtures("fresh_clients")
ALL = ReadAllAvailable()


def reader(topic: Topic, **options: str) -> StreamReader:
    given = {"nameServer": topic.name_server, "subscribe": topic.name, "latestOffsetCacheMs": "0", **options}
    return StreamReader(read_options(given, streaming=True), default_schema(), 2)


def planned(source: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> dict[int, tuple[int, int]]:
    ranges = [each for partition in source.partitions(start, end) for each in partition.ranges]
    return {each.queue.queue_id: (each.start, each.end) for each in ranges}


def test_a_start_at_the_end_does_not_slide_while_the_first_batch_is_planned(topic: Topic) -> None:
    topic.fill(4)
    source = reader(topic)
    first = source.latestOffset(source.initialOffset(), ALL)

    topic.fill(4)
    again = source.latestOffset(source.initialOffset(), ALL)

    assert planned(source, source.initialOffset(), first) == {}
    assert planned(source, source.initialOffset(), again) == {queue: (1, 2) for queue in range(4)}


def test_an_idle_query_gets_back_what_it_gave(topic: Topic) -> None:
    topic.fill(3)
    source = reader(topic, startingOffsets="earliest")
    end = source.latestOffset(source.initialOffset(), ALL)

    assert source.latestOffset(end, ALL) is end
    assert source.reportLatestOffset() == {"queues": end["queues"]}


def test_a_frozen_end_does_not_see_later_messages(topic: Topic) -> None:
    topic.fill(8)
    source = reader(topic, startingOffsets="earliest")
    source.prepareForTriggerAvailableNow()
    topic.fill(8)

    first = source.latestOffset(source.initialOffset(), ReadMaxRows(4))
    last = source.latestOffset(first, ReadMaxRows(4))

    assert planned(source, source.initialOffset(), first) == {queue: (0, 1) for queue in range(4)}
    assert planned(source, first, last) == {queue: (1, 2) for queue in range(4)}
    assert source.latestOffset(last, ReadMaxRows(4)) is last


def test_a_batch_has_about_as_many_bytes_as_it_may(topic: Topic) -> None:
    for _ in range(50):
        topic.send_batch(0, *(b"x" * 800,) * 50)  # some 900 bytes each in the store
    source = reader(topic, startingOffsets="earliest", maxBytesPerTrigger="500k")
    limit = source.getDefaultReadLimit()
    assert isinstance(limit, ReadMaxBytes)

    at, lengths = source.initialOffset(), []
    while (end := source.latestOffset(at, limit)) != at:
        ranges = planned(source, at, end)
        at = end
        lengths.append(sum(stop - start for start, stop in ranges.values()))

    assert sum(lengths) == 2500
    assert all(450 <= length <= 600 for length in lengths[:-1]), lengths
    whole = source.latestOffset(source.initialOffset(), ALL)
    assert planned(source, source.initialOffset(), whole) == {0: (0, 2500)}, "Trigger.Once reads all"


def test_a_message_that_is_larger_than_a_batch_may_be_comes_alone(topic: Topic) -> None:
    for size in (10, 100_000, 10, 10):
        topic.send(0, random.randbytes(size))
    source = reader(topic, startingOffsets="earliest", maxBytesPerTrigger="2k", maxOffsetsPerTrigger="3")
    at, batches = source.initialOffset(), []
    while (end := source.latestOffset(at, source.getDefaultReadLimit())) != at:
        batches.append(planned(source, at, end))
        at = end

    assert batches == [{0: (0, 1)}, {0: (1, 2)}, {0: (2, 4)}]


def test_a_large_message_makes_no_small_batches_of_those_around_it(topic: Topic) -> None:
    for _ in range(4):
        topic.send_batch(0, *(b"x" * 800,) * 50)
    topic.send(0, random.randbytes(3_000_000))
    for _ in range(4):
        topic.send_batch(0, *(b"x" * 800,) * 50)
    source = reader(topic, startingOffsets="earliest", maxBytesPerTrigger="50k")
    at, lengths = source.initialOffset(), []
    while (end := source.latestOffset(at, source.getDefaultReadLimit())) != at:
        lengths.append(sum(stop - start for start, stop in planned(source, at, end).values()))
        at = end

    assert sum(lengths) == 401 and 1 in lengths
    assert len(lengths) < 20 and max(lengths) <= 60, lengths


def test_a_topic_that_was_made_anew_is_noticed(topic: Topic) -> None:
    topic.fill(8)
    before = StreamOffset(dict.fromkeys(topic.queues, 500)).to_json()

    with pytest.raises(SourceError, match=r"has read MessageQueue .* up to 500, but now it ends at 2"):
        reader(topic).latestOffset(before, ALL)

    source = reader(topic, failOnDataLoss="false")
    end = source.latestOffset(before, ALL)
    assert planned(source, before, end) == {queue: (0, 2) for queue in range(4)}


def test_queues_that_are_taken_away_are_told_at_once_and_given_back_are_read_on(
    cluster: ErucaCluster, topic: Topic
) -> None:
    topic.fill(16)
    strict, careless = (reader(topic, startingOffsets="earliest", failOnDataLoss=each) for each in ("true", "false"))
    first = strict.latestOffset(strict.initialOffset(), ReadMaxRows(8))
    topic.grow(cluster, 2)
    last = strict.latestOffset(first, ALL)
    assert planned(strict, first, last) == {queue: (2, 4) for queue in range(4)}

    def read(source: StreamReader) -> int:
        return sum(batch.num_rows for part in source.partitions(first, last) for batch in source.read(part))

    began = monotonic()
    with pytest.raises(
        SourceError, match=r"queueId=2\] cannot be read any more, as .* has fewer read queues at broker-a"
    ):
        read(strict)
    assert monotonic() - began < 60, "nobody waits for brokerLossTimeoutMs"
    assert read(careless) == 4
    topic.grow(cluster, 4)
    assert read(strict) == 8


@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_a_topic_that_may_not_be_read_is_told_at_once(
    cluster: ErucaCluster, topic: Topic, fail_on_data_loss: str
) -> None:
    topic.fill(8)
    source = reader(topic, startingOffsets="earliest", failOnDataLoss=fail_on_data_loss)
    first = source.latestOffset(source.initialOffset(), ALL)
    topic.grow(cluster, 4, perm=2)

    def read() -> int:
        parts = source.partitions(source.initialOffset(), first)
        return sum(batch.num_rows for part in parts for batch in source.read(part))

    began = monotonic()
    with pytest.raises(
        SourceError, match=r"^broker-a lets nobody read .* \(the topic\[.* forbidden\): .*mqadmin updateTopicPerm"
    ):
        read()
    assert monotonic() - began < 60, "nobody waits for brokerLossTimeoutMs"
    topic.grow(cluster, 4)
    assert read() == 8


def test_the_report_follows_finished_batches_only(topic: Topic) -> None:
    topic.fill(8)
    source = reader(topic, startingOffsets="earliest", commitGroup="reporting", commitIntervalMs="0")
    first = source.latestOffset(source.initialOffset(), ReadMaxRows(4))

    with PullConsumer("reporting", nameserver=topic.name_server) as group:
        source.latestOffset(first, ReadMaxRows(4))
        assert [group.query_offset(queue) for queue in topic.queues] == [1, 1, 1, 1]


def test_queues_without_a_message_are_reported_too(
    cluster: ErucaCluster, topic: Topic, fresh_clients: ClusterClients
) -> None:
    topic.fill(3)
    group, access = "all-queues", Access(name_server=topic.name_server)
    with PullConsumer(group, nameserver=topic.name_server) as consumer:
        for queue in topic.queues[:3]:
            consumer.update_offset(queue, 0)
        source = reader(topic, startingOffsets="group", commitGroup=group, commitIntervalMs="0", onGroupReset="fail")
        end = source.latestOffset(source.initialOffset(), ALL)
        assert planned(source, source.initialOffset(), end) == {queue: (0, 1) for queue in range(3)}

        topic.grow(cluster, 6)
        deadline = monotonic() + 60
        while count_queues(source.reportLatestOffset()) < 6:  # the broker tells the nameserver
            assert monotonic() < deadline
        assert source.latestOffset(end, ALL) is end, "there is nothing to read in the new queues"

        reported = fresh_clients.call(access, lambda asking: stored(asking, group, topic.queues))
        assert [reported[queue] for queue in topic.queues] == [1, 1, 1, 0, 0, 0]
        consumer.update_offset(topic.queues[5], 7)
        with pytest.raises(SourceError, match=r"all-queues was set from 0 to 7 in .*queueId=5"):
            source.latestOffset(end, ALL)


def count_queues(offset: dict[str, Any]) -> int:
    return sum(len(queues) for brokers in offset["queues"].values() for queues in brokers.values())


def test_a_reset_of_the_group_is_noticed_when_that_is_wanted(topic: Topic) -> None:
    topic.fill(16)
    given = {"startingOffsets": "earliest", "commitGroup": "watched", "commitIntervalMs": "0"}
    watching, careless = reader(topic, **given, onGroupReset="fail"), reader(topic, **given)
    first = watching.latestOffset(watching.initialOffset(), ReadMaxRows(8))
    second = watching.latestOffset(first, ReadMaxRows(4))
    third = watching.latestOffset(second, ReadMaxRows(4))
    queue = topic.queues[2]

    with PullConsumer("watched", nameserver=topic.name_server) as group:
        group.update_offset(queue, 2)  # an older report, as after a crash of the broker
        assert watching.latestOffset(third, ALL) is third

        group.update_offset(queue, 1)
        with pytest.raises(SourceError, match=r"watched was set from 4 to 1 in .*queueId=2.* startingOffsets=group"):
            watching.latestOffset(third, ALL)

        careless.latestOffset(third, ALL)
        assert group.query_offset(queue) == 4


def test_the_offset_of_a_time_is_the_first_message_from_then_on(topic: Topic, fresh_clients: ClusterClients) -> None:
    for number in range(30):  # many share a millisecond
        topic.send(0, b"%d" % number)
    queue = topic.queues[0]
    with PullConsumer(nameserver=topic.name_server) as consumer:
        times = [each.store_timestamp for each in consumer.pull(queue, 0, 100).records]
    assert len(times) == 30

    def found(timestamp: int) -> int | None:
        access = Access(name_server=topic.name_server)
        return fresh_clients.call(access, lambda consumer: offset_from(consumer, queue, timestamp))

    for timestamp in {time + around for time in times for around in (-1, 0, 1)}:
        assert found(timestamp) == next((place for place, time in enumerate(times) if time >= timestamp), None)


def test_a_queue_of_another_topic_among_the_starts_is_named(topic: Topic) -> None:
    other = {**dict.fromkeys(topic.queues, 0), MessageQueue("elsewhere", "broker-a", 0): 0}

    def started(positions: dict[MessageQueue, int]) -> None:
        source = reader(topic, startingOffsets=_json(positions))
        source.latestOffset(source.initialOffset(), ALL)

    with pytest.raises(SourceError, match=r"names MessageQueue \[topic=elsewhere.* does not read"):
        started(other)
    with pytest.raises(SourceError, match=r"leaves MessageQueue .*queueId=3\] out: .*-2 for its beginning"):
        started(dict.fromkeys(topic.queues[:3], 0))


def _json(positions: dict[MessageQueue, int]) -> str:
    return json.dumps(write_positions(positions))
