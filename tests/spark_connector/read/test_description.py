"""What a read will do, said before it and in the log."""

from __future__ import annotations

import logging

import pytest
from pyspark.sql import SparkSession

from eruca.spark_connector import BadOption, explain_read, register
from eruca.spark_connector.offsets.positions import OffsetRange, StreamOffset
from eruca.spark_connector.options import read_options
from eruca.spark_connector.read.batch import BatchReader
from eruca.spark_connector.read.description import describe
from eruca.spark_connector.read.partitions import OffsetPartition
from eruca.spark_connector.read.stream import StreamReader
from eruca.spark_connector.schema import default_schema
from tests.spark_connector.messages import ORDERS
from tests.support.spark import Topic, read, read_stream


def test_a_frame_says_what_it_will_read(spark: SparkSession, topic: Topic) -> None:
    topic.fill(6, queues=2)
    name = topic.name
    frame = read(spark, topic, None, tags="A || B", minPartitions=2)
    whole = f"{name} broker-a:0 0-3, {name} broker-a:1 0-3"

    assert explain_read(frame) == (
        f"reads 6 offsets of 2 queues in 2 tasks, filtered at the broker by tags=A || B: {whole}"
    )
    assert explain_read(read(spark, topic).groupBy("keys").count().orderBy("keys")) == (
        f"reads 6 offsets of 2 queues in 1 task: {whole}"
    )
    both = read(spark, topic, "keys string").join(read(spark, topic, "keys string", tags="A"), "keys")
    assert explain_read(both).count("\n") == 1
    assert explain_read(spark.range(3)) == ""
    assert explain_read(read(spark, topic, startingOffsets="latest")) == (
        "reads nothing: no queue has a message in the range"
    )
    frame = read(spark, topic, "keys string")
    frame.createOrReplaceTempView("described")
    chosen = spark.sql(
        "SELECT id FROM range(3) WHERE id < (SELECT count(*) FROM described WHERE EXISTS (SELECT 1 FROM described))"
    )
    assert explain_read(chosen).splitlines() == [f"reads 6 offsets of 2 queues in 1 task: {whole}"] * 2
    cached = frame.where("keys IS NOT NULL").cache()
    try:
        assert explain_read(cached.groupBy("keys").count()) == f"reads 6 offsets of 2 queues in 1 task: {whole}"
    finally:
        cached.unpersist()
    with pytest.raises(BadOption, match="A stream is planned batch by batch"):
        explain_read(read_stream(spark, topic))


@pytest.mark.usefixtures("fresh_clients")
def test_each_plan_is_a_line_at_info(topic: Topic, caplog: pytest.LogCaptureFixture) -> None:
    topic.fill(6, queues=2)
    caplog.set_level(logging.INFO, "eruca.spark")
    given = {"nameServer": topic.name_server, "subscribe": topic.name, "tags": "a"}

    BatchReader(read_options(given, streaming=False), default_schema(), 2).partitions()
    end = StreamOffset({topic.queues[0]: 3}, {topic.queues[0]: 1}).to_json()
    StreamReader(read_options(given, streaming=True), default_schema(), 2).partitions({"initial": True}, end)

    filtered = "in 1 task, filtered at the broker by tags=a: "
    assert [each.getMessage() for each in caplog.records if each.name == "eruca.spark"] == [
        f"rocketmq reads 6 offsets of 2 queues {filtered}{topic.name} broker-a:0 0-3, {topic.name} broker-a:1 0-3",
        f"rocketmq reads 2 offsets of 1 queue {filtered}{topic.name} broker-a:0 1-3",
    ]


def test_the_processes_of_spark_log_it_at_the_level_of_the_program(spark: SparkSession, topic: Topic) -> None:
    topic.fill(5, queues=1)
    logging.getLogger("eruca.spark").setLevel(logging.INFO)
    spark.conf.set("spark.sql.pyspark.worker.logging.enabled", "true")
    try:
        register(spark)
        assert read(spark, topic).count() == 5
        lines = [row.msg for row in spark.tvf.python_worker_logs().select("msg").collect()]
    finally:
        spark.conf.unset("spark.sql.pyspark.worker.logging.enabled")
        logging.getLogger("eruca.spark").setLevel(logging.NOTSET)
        register(spark)
    assert [line for line in lines if topic.name in line] == [
        f"rocketmq reads 5 offsets of 1 queue in 1 task: {topic.name} broker-a:0 0-5"
    ]


def test_a_line_has_an_end() -> None:
    ranges = tuple(OffsetRange(ORDERS, start, start + 10) for start in range(0, 1000, 10))
    line = describe([OffsetPartition(ranges)])
    assert line.startswith("reads 1,000 offsets of 1 queue in 1 task: ") and line.endswith("310-320, and 68 more")
