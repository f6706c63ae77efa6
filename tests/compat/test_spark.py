"""Spark reads Apache RocketMQ's own broker, which grants 32 messages a pull and filters by SQL92, and writes to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.compat.clients import JavaClients, drain
from tests.compat.test_mqadmin import eruca_mqadmin
from tests.support.apache import ApacheCluster
from tests.support.java import Judge
from tests.support.spark import Topic, assert_rows, read, read_stream, rows_of, spark_session


@pytest.fixture(scope="module")
def filtering(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheCluster]:
    """Apache 4.9.7 that knows SQL92."""
    with ApacheCluster("4.9.7", tmp_path_factory.mktemp("apache-sql"), {"enablePropertyFilter": "true"}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(scope="module")
def topic(filtering: ApacheCluster) -> Iterator[Topic]:
    """A topic with messages of many sizes, tags, properties, compressed and in batches."""
    made = Topic(filtering, "SparkReads", 4)
    for number in range(400):
        tag = "Aa" if number % 5 == 0 else "BB"  # one hash code
        made.send(number % 4, b"%d" % number * (number + 1), tags=tag, keys=f"k{number}", properties={"n": str(number)})
    made.send(1, b"z" * 200_000)
    made.send_batch(2, b"one", b"two", b"three")
    yield made
    made.close()


def test_rows_are_what_was_sent(spark: SparkSession, topic: Topic) -> None:
    assert_rows(rows_of(read(spark, topic)), topic.rows)
    assert_rows(rows_of(read(spark, topic, minPartitions=9, arrowBatchRows=50)), topic.rows)


def test_an_interval_is_exact(spark: SparkSession, topic: Topic) -> None:
    stamps = {
        (row.queueId, row.queueOffset): int(row.ms)
        for row in read(spark, topic, "queueId int, queueOffset bigint, storeTimestamp timestamp")
        .selectExpr("queueId", "queueOffset", "unix_millis(storeTimestamp) ms")
        .collect()
    }
    ordered = sorted(stamps.values())
    for start, end in ((ordered[50], ordered[300]), (ordered[0], ordered[1]), (ordered[-1], ordered[-1] + 1)):
        wanted = {place: topic.rows[place] for place, stamp in stamps.items() if start <= stamp < end}
        assert_rows(rows_of(read(spark, topic, startingTimestamp=start, endingTimestamp=end)), wanted)


def test_filters(spark: SparkSession, topic: Topic) -> None:
    tagged = {place: row for place, row in topic.rows.items() if row["tags"] == "Aa"}
    assert_rows(rows_of(read(spark, topic, tags="Aa")), tagged)

    assert len(rows_of(read(spark, topic, sqlFilter="n BETWEEN 100 AND 199 AND TAGS = 'BB'"))) == 80
    with pytest.raises(Exception, match='refuses sqlFilter="n >> 3"'):
        read(spark, topic, sqlFilter="n >> 3").collect()


def test_a_stream_reads_all_once(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    query = (
        read_stream(spark, topic, startingOffsets="earliest", maxOffsetsPerTrigger=150, commitGroup="SparkLake")
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "rows"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )

    assert query.awaitTermination(120)
    assert_rows(rows_of(spark.read.parquet(str(tmp_path / "rows"))), topic.rows)
    # Its group is found by tools, though it never had a member.
    progress, deadline = "", time.monotonic() + 60
    while topic.name not in progress and time.monotonic() < deadline:
        progress = eruca_mqadmin(("consumerProgress", "-n", topic.name_server, "-g", "SparkLake")).stdout
    rows = [line.split() for line in progress.splitlines() if line.startswith(topic.name)]
    assert len(rows) == 4 and all(row[3] == row[4] != "0" for row in rows), progress


def test_what_spark_writes_java_reads(
    spark: SparkSession, filtering: ApacheCluster, judge: Judge, fresh: Callable[[str], str]
) -> None:
    topic = Topic(filtering, "SparkWrites", 4)
    rows = spark.range(3000, numPartitions=2).selectExpr(
        "CAST(concat('grüße ', id) AS BINARY) AS body",
        "IF(id % 2 = 0, 'Even', NULL) AS tags",
        "concat('k', id, ' all') AS keys",
        "CAST(id AS INT) AS flag",
        "id % 7 AS shardingKey",
        "map('n', CAST(id AS STRING), 'größe', 'x y') AS properties",
    )
    writer = rows.write.format("rocketmq").option("nameServer", filtering.address).option("topic", topic.name)
    writer.mode("append").save()

    with JavaClients(judge).puller(fresh("readers"), filtering.address) as puller:
        seen = drain(puller, topic.name)

    assert sorted(each.flag for each in seen) == list(range(3000))
    queue_of_key: dict[int, set[int]] = {}
    for each in seen:
        n = each.flag
        assert each.body.decode() == f"grüße {n}"
        assert (each.tags, each.keys) == ("" if n % 2 else "Even", f"k{n} all")
        assert {name: each.properties[name] for name in ("n", "größe")} == {"n": str(n), "größe": "x y"}
        queue_of_key.setdefault(n % 7, set()).add(each.queue)
    assert all(len(queues) == 1 for queues in queue_of_key.values())
    assert len({each.properties["SPARK_ID"] for each in seen}) == len({each.message_id for each in seen}) == 3000
    topic.close()
