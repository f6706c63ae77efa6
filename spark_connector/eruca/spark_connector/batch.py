"""``spark.read.format("rocketmq")``: one frozen piece of the queues.

Owns the plan: both ends of every queue are resolved once, when Spark plans, so that a batch that is computed again
reads the same offsets, whatever has arrived since. The reader is pickled for the tasks and holds nothing but values.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter
from pyspark.sql.types import StructType

from eruca.client import PullConsumer
from eruca.spark_connector import cluster, link
from eruca.spark_connector.options import Options
from eruca.spark_connector.planning import QueuePartition, plan_partitions
from eruca.spark_connector.positions import Range
from eruca.spark_connector.pushdown import Wanted, read_filters


class BatchReader(DataSourceReader):
    """Reads a range of every queue; ``parallelism`` is how many tasks can run at once."""

    def __init__(self, options: Options, schema: StructType, parallelism: int) -> None:
        self._options = options
        self._schema = schema
        self._parallelism = parallelism
        self._wanted = Wanted()

    def partitions(self) -> list[QueuePartition]:
        """The plan. Raises SourceError."""
        ranges = link.this_process().ask(self._options.access, self._plan)
        return plan_partitions(ranges, self._options, self._parallelism)

    async def _plan(self, consumer: PullConsumer) -> list[Range]:
        options = self._options
        queues = await cluster.find_queues(consumer, options)
        await cluster.prepare(consumer, options, queues)
        starts, ends = await asyncio.gather(
            cluster.starts(consumer, options, queues, time.time_ns() // 1_000_000),
            cluster.ends(consumer, options, queues),
        )
        ranges = [Range(queue, starts[queue], ends[queue]) for queue in queues if starts[queue] < ends[queue]]
        return await cluster.narrow(consumer, ranges, self._wanted)

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """The rows of a partition."""
        from eruca.spark_connector.reading import read_partition  # what plans needs nothing of it

        return read_partition(self._options, self._schema, partition)


class PushingReader(BatchReader):
    """The same with ``pushdown=true``. Spark refuses a reader with ``pushFilters`` as long as
    spark.sql.python.filterPushdown.enabled is false."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Called by Spark before it plans; it is to apply all filters again."""
        self._wanted = read_filters(filters)
        tags = self._wanted.tag_expression
        if tags is not None and not self._options.filtered:
            self._options = replace(self._options, tags=tags)
        return filters
