"""The time of small micro-batches, by Spark's own account, and of Spark alone.

A batch counts from its trigger to its end (`triggerExecution` of the query's progress), in ms. Queries write to the
noop sink and keep their checkpoint in a folder.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

WARM_UP = 10
"""Batches that do not count."""


def durations(frame: DataFrame, checkpoint: Path, count: int, feed: Callable[[], None]) -> list[float]:
    """The ms of so many batches, one after each ``feed``."""
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(processingTime="0 seconds").start()
    try:
        query.processAllAvailable()
        took: list[float] = []
        for _ in range(WARM_UP + count):
            feed()
            query.processAllAvailable()
            took = [each.durationMs["triggerExecution"] for each in query.recentProgress if each.numInputRows]
        return took[WARM_UP:]
    finally:
        query.stop()


def base_lines(spark: SparkSession, count: int) -> dict[str, list[float]]:
    """What Spark itself needs: with a source of its own, and with the smallest source in Python."""
    spark.dataSource.register(OneRow)
    rates = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 8).option("numPartitions", 1)
    found = {}
    for name, reader in (
        ("Spark's own rate source, 1 task", rates),
        ("a Python source of one row, 1 task", spark.readStream.format(OneRow.name())),
    ):
        with tempfile.TemporaryDirectory(prefix="eruca-bench-") as folder:
            found[name] = _endless(reader.load(), Path(folder), count)
    return found


def _endless(frame: DataFrame, checkpoint: Path, count: int) -> list[float]:
    """The ms of batches that a source always has more of."""
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(processingTime="0 seconds").start()
    try:
        while len(query.recentProgress) < WARM_UP + count:
            query.awaitTermination(1)
        return [each.durationMs["triggerExecution"] for each in query.recentProgress[WARM_UP:]]
    finally:
        query.stop()


class OneRow(DataSource):
    """A source whose batches are one row each."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "one-row"

    def schema(self) -> str:
        """One number."""
        return "number bigint"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """The reader."""
        return _OneRowReader()


class _OneRowReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:
        return {"number": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        return {"number": start["number"] + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(end["number"])]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"number": [partition.value]})
