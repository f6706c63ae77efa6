"""What Spark reads from and writes to in the benchmark: a cluster of RocketMQ, or Kafka's broker.

Both have the same face: `fill` a topic with rows of a size, and `works`, what is measured, by name. Topics have
QUEUES queues. TRIGGER rows are a micro-batch of a measured stream.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tests.bench.kafka_broker import KafkaBroker
from tests.bench.spark_batches import durations
from tests.bench.systems import RELEASE as RELEASE
from tests.support.spark import Cluster, Topic

QUEUES = 8
TRIGGER = 100_000
ONE_COLUMN = "queueOffset bigint"
BODY = "body binary"
Work = Callable[[], float | None]
"""Something to measure from outside; a stream also tells the seconds of its triggers."""


class RocketMQ:
    """One cluster."""

    streams = True

    def __init__(self, title: str, spark: SparkSession, cluster: Cluster, home: Path) -> None:
        self.title = title
        self.spark = spark
        self._cluster = cluster
        self._checkpoints = (home / str(number) for number in itertools.count())

    def fill(self, size: int, rows: int) -> None:
        """Rows of ``size`` bytes, by the sink."""
        for topic in (f"Rows{size}", f"Copies{size}"):
            Topic(self._cluster, topic, QUEUES).close()
        self._write(f"Rows{size}", size, rows)

    def works(self, size: int, rows: int) -> dict[str, Work]:
        """What is measured."""
        return {
            "read, default columns": lambda: noop(self._batch(size)),
            "read, body only": lambda: noop(self._batch(size, BODY)),
            "read, offset only": lambda: noop(self._batch(size, ONE_COLUMN)),
            "stream": lambda: self._stream(size),
            "write": lambda: self._write(f"Copies{size}", size, rows),
        }

    def micro_batches(self, count: int) -> list[float]:
        """The ms of micro-batches with one message in each queue."""
        topic = Topic(self._cluster, "Few", QUEUES)
        reader = self._options(self.spark.readStream, "Few").option("latestOffsetCacheMs", 0)
        try:
            return durations(reader.load(), next(self._checkpoints), count, lambda: topic.fill(QUEUES))
        finally:
            topic.close()

    def _options(self, reader: Any, topic: str) -> Any:
        return reader.format("rocketmq").option("nameServer", self._cluster.address).option("subscribe", topic)

    def _batch(self, size: int, schema: str | None = None) -> DataFrame:
        reader = self._options(self.spark.read, f"Rows{size}")
        frame: DataFrame = (reader.schema(schema) if schema else reader).load()
        return frame

    def _stream(self, size: int) -> float:
        reader = self._options(self.spark.readStream, f"Rows{size}").option("startingOffsets", "earliest")
        writer = reader.option("maxOffsetsPerTrigger", TRIGGER).load().writeStream.format("noop")
        writer = writer.option("checkpointLocation", str(next(self._checkpoints)))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(600)
        triggers: float = sum(each.durationMs["triggerExecution"] for each in query.recentProgress)
        return triggers / 1000

    def _write(self, topic: str, size: int, rows: int) -> None:
        writer = bodies(self.spark, size, rows).write.format("rocketmq").mode("append")
        writer.option("nameServer", self._cluster.address).option("topic", topic).option("idempotent", False).save()


class Kafka:
    """Kafka's broker, read and written by Spark's own source and sink.

    Without streams: that source of Spark 4.0, the last one complete on Maven Central, does not stream on later ones.
    """

    streams = False
    title = "Kafka 4.1.0"

    def __init__(self, spark: SparkSession, broker: KafkaBroker) -> None:
        self.spark = spark
        self._address = broker.address

    def fill(self, size: int, rows: int) -> None:
        """The same rows, by Spark's Kafka sink."""
        self._write(f"Rows{size}", size, rows)

    def works(self, size: int, rows: int) -> dict[str, Work]:
        """What is measured."""
        return {
            "read, default columns": lambda: noop(self._batch(size)),
            "read, body only": lambda: noop(self._batch(size).select("value")),
            "read, offset only": lambda: noop(self._batch(size).select("offset")),
            "write": lambda: self._write(f"Copies{size}", size, rows),
        }

    def micro_batches(self, count: int) -> list[float]:
        """None, without streams."""
        raise NotImplementedError

    def _batch(self, size: int) -> DataFrame:
        reader = self.spark.read.format("kafka").option("kafka.bootstrap.servers", self._address)
        return reader.option("subscribe", f"Rows{size}").load()

    def _write(self, topic: str, size: int, rows: int) -> None:
        writer = bodies(self.spark, size, rows).withColumnRenamed("body", "value").write.format("kafka")
        # Without idempotence: its two tasks share a producer, and on a busy machine its sequence numbers get mixed up.
        writer = writer.option("kafka.bootstrap.servers", self._address).option("kafka.enable.idempotence", "false")
        writer.option("kafka.acks", "1").option("topic", topic).save()


def bodies(spark: SparkSession, size: int, rows: int) -> DataFrame:
    """``rows`` different bodies of ``size`` bytes, in two partitions."""
    body = f"CAST(rpad(CAST(id AS STRING), {size}, 'x') AS BINARY) AS body"
    return spark.range(rows, numPartitions=2).selectExpr(body)


def noop(frame: DataFrame) -> None:
    """Compute every row and throw it away."""
    frame.write.format("noop").mode("overwrite").save()
