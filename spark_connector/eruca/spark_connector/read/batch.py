"""``spark.read.format("rocketmq")``: one frozen piece of the queues.

Owns the plan: both ends of every queue are resolved once, when Spark plans, so that a batch that is computed again
reads the same offsets, whatever has arrived since. The reader is pickled for the tasks and holds nothing but values.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter
from pyspark.sql.types import StructType

from eruca.client import PullConsumer
from eruca.remoting.clock import now_ms
from eruca.spark_connector.offsets import bounds, resolution
from eruca.spark_connector.offsets.discovery import find_queues
from eruca.spark_connector.offsets.positions import OffsetRange
from eruca.spark_connector.options import Options
from eruca.spark_connector.read.description import describe
from eruca.spark_connector.read.partitions import OffsetPartition, plan_partitions
from eruca.spark_connector.read.preparation import prepare
from eruca.spark_connector.read.pushdown import NEVER, PushedFilters, read_filters
from eruca.spark_connector.runtime import clients

log = logging.getLogger("eruca.spark")


class BatchReader(DataSourceReader):
    """Reads a range of every queue; ``parallelism`` is how many tasks can run at once."""

    def __init__(self, options: Options, schema: StructType, parallelism: int) -> None:
        self._options = options
        self._schema = schema
        self._parallelism = parallelism
        self._wanted = PushedFilters()

    def partitions(self) -> list[OffsetPartition]:
        """The plan. Raises SourceError."""
        ranges = clients.this_process().call(self._options.access, self._plan)
        planned = plan_partitions(ranges, self._options, self._parallelism)
        log.info("rocketmq %s", describe(planned))
        return planned

    async def _plan(self, consumer: PullConsumer) -> list[OffsetRange]:
        options = self._options
        queues = await find_queues(consumer, options)
        await prepare(consumer, options, queues)
        starts, ends = await asyncio.gather(
            resolution.starts(consumer, options, queues, now_ms()),
            resolution.ends(consumer, options, queues),
        )
        ranges = [OffsetRange(queue, starts[queue], ends[queue]) for queue in queues if starts[queue] < ends[queue]]
        return await narrow(consumer, ranges, self._wanted)

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """The rows of a partition."""
        from eruca.spark_connector.read.partition_reader import read_partition  # what plans needs nothing of it

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


async def narrow(consumer: PullConsumer, ranges: list[OffsetRange], wanted: PushedFilters) -> list[OffsetRange]:
    """What is left of the ranges where only this is wanted."""

    async def left(whole: OffsetRange) -> OffsetRange:
        queue, times = whole.queue, wanted.times
        start, end = max(whole.start, wanted.offsets.low), min(whole.end, wanted.offsets.high)
        if start < end and times.low > 0:
            found = await bounds.offset_from(consumer, queue, times.low)
            start = end if found is None else max(start, found)
        if start < end and times.high < NEVER:
            found = await bounds.offset_from(consumer, queue, max(0, times.high))
            end = end if found is None else min(end, found)
        return OffsetRange(queue, start, end)

    narrowed = await asyncio.gather(*(left(each) for each in ranges if wanted.has(each.queue)))
    return [each for each in narrowed if each.start < each.end]
