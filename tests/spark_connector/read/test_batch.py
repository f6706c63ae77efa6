"""``spark.read`` against a running cluster: rows compared with what was sent."""

from __future__ import annotations

import time
from typing import Any

import pytest
from pyspark.sql import SparkSession

from eruca.spark_connector.errors import SourceError
from eruca.spark_connector.offsets.positions import OffsetRange
from eruca.spark_connector.options import read_options
from eruca.spark_connector.read.batch import BatchReader
from eruca.spark_connector.read.partitions import OffsetPartition
from eruca.spark_connector.schema import default_schema
from tests.support.spark import Topic, assert_rows, read, rows_of


def test_every_kind_of_message_comes_back_as_it_was_sent(spark: SparkSession, topic: Topic) -> None:
    topic.send(0, b"plain")
    topic.send(0, b"x" * 100_000, tags="large", keys=["a", "b"])  # travels compressed
    topic.send(1, "größer".encode(), tags="Ω", properties={"city": "Zürich", "empty-not": "0"}, flag=-7)
    topic.send_batch(2, b"one", b"two", b"three")
    for number in range(300):
        topic.send(3, bytes([number % 256]) * (number * 7 + 1), tags=f"t{number % 3}", keys=f"k{number}")

    found = rows_of(read(spark, topic))

    assert_rows(found, topic.rows)


def test_all_columns(spark: SparkSession, topic: Topic) -> None:
    before = int(time.time() * 1000) - 1
    topic.send(1, b"body", tags="paid", keys="order-1", properties={"city": "Basel"})
    after = time.time() + 1

    frame = read(spark, topic, schema=None)
    assert "properties" not in frame.columns
    row = frame.first()
    assert row is not None
    assert (row.topic, row.brokerName, row.queueId, row.queueOffset) == (topic.name, "broker-a", 1, 0)
    assert (bytes(row.body), row.tags, row["keys"], row.reconsumeTimes, row.flag) == (b"body", "paid", "order-1", 0, 0)
    assert row.messageId == topic.rows[1, 0]["messageId"]
    for stamp in (row.bornTimestamp, row.storeTimestamp):
        assert before / 1000 <= stamp.timestamp() <= after

    asked = read(spark, topic, schema="properties map<string,string>").first()
    assert asked is not None
    assert asked.properties["city"] == "Basel" and asked.properties["KEYS"] == "order-1"
    assert asked.properties["UNIQ_KEY"] == row.messageId
    otherwise = read(spark, topic, schema="QueueID int, BODY binary").first()
    assert otherwise is not None and otherwise.asDict() == {"QueueID": 1, "BODY": b"body"}


def test_queries_of_one_frame_do_not_narrow_each_other(spark: SparkSession, topic: Topic) -> None:
    topic.fill(40)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = read(spark, topic)
        assert frame.where("queueId = 3 AND queueOffset < 4").count() == 4
        assert frame.count() == 40
        assert frame.where("queueId = 1").union(frame.where("queueId = 2 AND queueOffset = 5")).count() == 11
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_an_interval_of_time_is_exact_to_the_message(spark: SparkSession, topic: Topic) -> None:
    topic.fill(40)
    stamps = {
        (row.queueId, row.queueOffset): int(row.ms)
        for row in read(spark, topic, "queueId int, queueOffset bigint, storeTimestamp timestamp")
        .selectExpr("queueId", "queueOffset", "unix_millis(storeTimestamp) ms")
        .collect()
    }
    ordered = sorted(stamps.values())
    start, end = ordered[10], ordered[30]

    found = rows_of(read(spark, topic, startingTimestamp=start, endingTimestamp=end))

    wanted = {place for place, stamp in stamps.items() if start <= stamp < end}
    assert_rows(found, {place: topic.rows[place] for place in wanted})
    assert rows_of(read(spark, topic, startingTimestamp=0, endingTimestamp=start - 100_000)) == {}
    assert len(rows_of(read(spark, topic, startingTimestamp=0, endingTimestamp=ordered[-1] + 1))) == 40


def test_offsets_and_partitions(spark: SparkSession, topic: Topic) -> None:
    topic.fill(100)
    by_queue = {topic.name: {"broker-a": {"0": 3, "1": -2, "2": -1, "3": 24}}}

    found = rows_of(read(spark, topic, startingOffsets=by_queue, minPartitions=7))

    wanted = [(0, n) for n in range(3, 25)] + [(1, n) for n in range(25)] + [(3, 24)]
    assert_rows(found, {place: topic.rows[place] for place in wanted})
    assert read(spark, topic, minPartitions=7).rdd.getNumPartitions() == 7
    assert read(spark, topic).rdd.getNumPartitions() == 1
    assert read(spark, topic, arrowBatchRows=10).rdd.getNumPartitions() == 2
    assert len(rows_of(read(spark, topic, pullBatchSize=3, pullPipeline=2, arrowBatchRows=7))) == 100


def test_topics_by_pattern_and_queues_by_assignment(spark: SparkSession, topic: Topic) -> None:
    topic.fill(8)

    assert len(rows_of(read(spark, topic, subscribePattern=f"{topic.name[:-2]}.."))) == 8
    assigned = rows_of(read(spark, topic, assign={topic.name: {"broker-a": [1, 3]}}))
    assert sorted(assigned) == [(1, 0), (1, 1), (3, 0), (3, 1)]


def test_tags_are_compared_and_not_only_their_hashes(spark: SparkSession, topic: Topic) -> None:
    for number in range(60):
        topic.send(
            number % 4,
            b"x",
            tags="Aa" if number % 5 == 0 else "BB",
        )

    aa = rows_of(read(spark, topic, tags="Aa"))
    assert_rows(aa, {place: row for place, row in topic.rows.items() if row["tags"] == "Aa"})
    assert len(rows_of(read(spark, topic, tags="Aa || BB"))) == 60


def test_group_offsets_are_a_place_to_start(spark: SparkSession, topic: Topic) -> None:
    from eruca.client.sync import PullConsumer

    topic.fill(12)
    with PullConsumer("readers", nameserver=topic.name_server) as group:
        for queue in topic.queues:
            group.update_offset(queue, 2)

    assert sorted(rows_of(read(spark, topic, startingOffsets="group", commitGroup="readers"))) == [
        (queue, 2) for queue in range(4)
    ]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"startingOffset": "latest"}, "has no option startingoffset: did you mean startingOffsets?"),
        ({"sqlFilter": "n >> 3"}, 'refuses sqlFilter="n >> 3"'),
        ({"subscribePattern": "nothing-.*"}, 'subscribePattern="nothing-.*" matches no topic'),
        ({"assign": {"nowhere": {"broker-a": [0]}}}, "No route info of this topic: nowhere"),
    ],
)
def test_the_last_line_of_an_error_says_what_is_wrong(
    spark: SparkSession, topic: Topic, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(Exception, match=r"rocketmq|Error") as raised:
        read(spark, topic, **options).collect()

    text = str(raised.value).split("SQLSTATE")[0].split("JVM stacktrace")[0]
    last = [line for line in text.splitlines() if line.strip()][-1]
    assert sentence in last
    assert text.count('  File "') <= 2, text


def test_offsets_that_are_gone_are_an_error_unless_that_is_allowed(spark: SparkSession, topic: Topic) -> None:
    topic.fill(8)
    beyond = {topic.name: {"broker-a": {"0": 5, "1": 2, "2": -1, "3": -1}}}

    with pytest.raises(Exception, match=r"endingOffsets names 5 for MessageQueue .*, which ends at 2: correct it"):
        read(spark, topic, startingOffsets="earliest", endingOffsets=beyond).collect()

    assert len(rows_of(read(spark, topic, endingOffsets=beyond, failOnDataLoss="false"))) == 8


def test_a_task_says_which_of_its_offsets_are_not_there(topic: Topic) -> None:
    topic.fill(8)
    partition = OffsetPartition((OffsetRange(topic.queues[0], 0, 5),))
    for allowed in (False, True):
        given = {"nameServer": topic.name_server, "subscribe": topic.name, "failOnDataLoss": str(not allowed).lower()}
        reader = BatchReader(read_options(given, streaming=False), default_schema(), 1)
        if allowed:
            assert sum(batch.num_rows for batch in reader.read(partition)) == 2
            continue
        with pytest.raises(SourceError, match=r"^The offsets from 2 on of .* are not there: the queue reaches from"):
            list(reader.read(partition))


def test_an_empty_topic_has_no_rows(spark: SparkSession, topic: Topic) -> None:
    assert read(spark, topic, schema=None).collect() == []
