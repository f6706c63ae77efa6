"""``df.write`` and ``writeStream`` against a running cluster."""

from __future__ import annotations

import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from eruca.client.sync import PullConsumer
from eruca.protocol.record import Record
from eruca.spark_connector import register
from tests.support.eruca import ErucaCluster
from tests.support.spark import Topic, read, read_stream
from tests.support.spark_writes import visible


def write(frame: DataFrame, topic: Topic, **options: Any) -> None:
    writer = frame.write.format("rocketmq").option("nameServer", topic.name_server).mode("append")
    for name, value in {"topic": topic.name, **options}.items():
        writer = writer.option(name, value)
    writer.save()


def stored(topic: Topic) -> list[Record]:
    """All messages of a topic, queue by queue."""
    found: list[Record] = []
    with PullConsumer(nameserver=topic.name_server) as consumer:
        for queue in topic.queues:
            at, end = 0, consumer.max_offset(queue)
            while at < end:
                result = consumer.pull(queue, at, 1024)
                found += result.records
                at = result.next_offset
    return found


def bodies(topic: Topic) -> Counter[str]:
    return Counter(record.body.decode() for record in stored(topic))


def numbers(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count, numPartitions=2).selectExpr("CAST(id AS STRING) AS body", "id % 5 AS shardingKey")


@pytest.fixture
def markers(cluster: ErucaCluster, topic: Topic) -> Topic:
    made = Topic(cluster, f"{topic.name}_m"[-100:], 1)
    made.close()
    return made


def test_rows_with_all_columns(spark: SparkSession, topic: Topic) -> None:
    frame = spark.sql(
        "SELECT CAST('payload' AS BINARY) AS Body, 'Paid' AS TAGS, 'o1 o2' AS keys, 5 AS flag, 2 AS queueid,"
        " map('region', 'north', 'UNIQ_KEY', 'of another') AS properties"
    )

    write(frame, topic)

    columns = "queueId int, body binary, tags string, keys string, flag int, properties map<string,string>"
    [row] = read(spark, topic, columns).collect()
    assert (row.queueId, bytes(row.body), row.tags, row.keys, row.flag) == (2, b"payload", "Paid", "o1 o2", 5)
    assert row.properties["region"] == "north" and row.properties["SPARK_ID"].count("/") == 3


def test_order_by_sharding_key_and_what_was_read_can_be_written(
    cluster: ErucaCluster, spark: SparkSession, topic: Topic
) -> None:
    write(numbers(spark, 5000), topic, sendBatchRows=50)

    for partition in (range(2500), range(2500, 5000)):
        for key in range(5):
            found = [int(each.body) for each in stored(topic) if int(each.body) in partition]
            mine = [number for number in found if number % 5 == key]
            assert mine == sorted(mine) and len(mine) == 500

    copy = Topic(cluster, f"{topic.name}_copy"[-100:], 2)
    write(read(spark, topic, "body binary, keys string, properties map<string,string>"), copy)
    assert bodies(copy) == bodies(topic)
    copy.close()


def test_a_delayed_row_is_delivered_later(spark: SparkSession, topic: Topic) -> None:
    frame = spark.sql("SELECT 'soon' AS body, 1 AS delayLevel UNION ALL SELECT 'at once', 0").coalesce(1)

    write(frame, topic)
    visible(topic.name_server, topic.queues, 2)
    found = {record.body: record.store_timestamp - record.born_timestamp for record in stored(topic)}
    assert found.keys() == {b"soon", b"at once"} and found[b"soon"] >= 900


def test_a_stream_writes_each_row_once(
    cluster: ErucaCluster, spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    topic.fill(40)
    target = Topic(cluster, f"{topic.name}_out"[-100:], 3)

    for _ in range(2):
        query = (
            read_stream(spark, topic, startingOffsets="earliest", maxOffsetsPerTrigger=15)
            .selectExpr("body", "tags", "keys", "flag")
            .writeStream.format("rocketmq")
            .option("nameServer", topic.name_server)
            .option("topic", target.name)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)

    assert bodies(target) == {row["body"].decode(): 1 for row in topic.rows.values()}
    ids = {record.properties["SPARK_ID"] for record in stored(target)}
    assert len(ids) == 40 and {each.split("/")[0] for each in ids} == {query.id}
    assert {each.split("/")[1] for each in ids} == {"0", "1", "2"}
    target.close()


def test_a_stream_that_another_thread_starts(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    topic.fill(6)

    def copy() -> None:
        register(spark)
        writer = read_stream(spark, topic, startingOffsets="earliest").select("body").writeStream.format("rocketmq")
        writer = writer.options(nameServer=topic.name_server, topic=topic.name)
        query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        assert query.awaitTermination(60)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(copy).result()
    assert set(bodies(topic).values()) == {2}


def test_a_transaction_shows_all_or_nothing(spark: SparkSession, topic: Topic, markers: Topic) -> None:
    options = {"delivery": "transactional", "markerTopic": markers.name}
    bad = numbers(spark, 200).selectExpr("IF(body = '150', NULL, body) AS body")
    with pytest.raises(PySparkException):
        write(bad, topic, writeId="load-0", **options)
    assert stored(topic) == []

    for _ in range(2):  # the second time is the same write, so nothing is added
        write(numbers(spark, 200), topic, writeId="load-1", **options)
        assert bodies(topic) == {str(number): 1 for number in range(200)}
    write(numbers(spark, 3), topic, writeId="load-2", **options)
    assert sum(bodies(topic).values()) == 203


ERRORS: list[tuple[str, dict[str, str], str]] = [
    ("SELECT 1 AS value", {}, "BadOption: The rocketmq sink has no column value: did you mean body?"),
    ("SELECT '' AS body", {}, "SinkError: The body of a row is null or empty, which RocketMQ does not take"),
    ("SELECT 'a' AS body, 9 AS queueId", {}, "SinkError: A row names queue 9 of .* which is not there; there are"),
    (
        "SELECT 'a' AS body",
        {"delivery": "transactional", "markerTopic": "SELF", "writeId": "w"},
        "SinkError: markerTopic .* has 4 queues, and it takes exactly one",
    ),
]


def test_the_last_line_of_python_in_an_error_says_the_cause(spark: SparkSession, topic: Topic) -> None:
    for rows, options, sentence in ERRORS:
        given = {name: topic.name if value == "SELF" else value for name, value in options.items()}
        with pytest.raises(PySparkException) as raised:
            write(spark.sql(rows), topic, **given)

        traceback = str(raised.value).partition("Traceback")[2].splitlines()
        said = [line for line in traceback[1:] if line and not line.startswith((" ", "\t"))]
        assert re.search(sentence, said[0]), said
        assert sum(line.startswith("  File ") for line in traceback) <= 2, traceback


def test_a_topic_is_never_overwritten(spark: SparkSession, topic: Topic) -> None:
    writer = spark.sql("SELECT 'a' AS body").write.format("rocketmq").option("nameServer", topic.name_server)
    with pytest.raises(PySparkException, match=r'never replaced: use mode\("append"\)'):
        writer.option("topic", topic.name).mode("overwrite").save()
