"""``spark.read.format("rocketmq")``: one frozen piece of the queues.

Owns the plan: both ends of every queue are resolved once, when Spark plans, so that a batch that is computed again
reads the same offsets, whatever has arrived since. The reader is pickled for the tasks and holds nothing but values.

It takes no filters of Spark (``pushFilters``). PySpark 4.3 keeps the plan and the reader of the query that was planned
last at the loaded frame, for all queries of that frame. A reader that left rows out for one query would leave them out
for others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from eruca.client import PullConsumer
from eruca.remoting.clock import now_ms
from eruca.spark_connector.offsets import resolution
from eruca.spark_connector.offsets.discovery import find_queues
from eruca.spark_connector.offsets.positions import OffsetRange
from eruca.spark_connector.options import Options
from eruca.spark_connector.read.description import describe
from eruca.spark_connector.read.partitions import OffsetPartition, plan_partitions
from eruca.spark_connector.read.preparation import prepare
from eruca.spark_connector.runtime import clients
from eruca.spark_connector.runtime.boundary import boundary

log = logging.getLogger("eruca.spark")


class BatchReader(DataSourceReader):
    """Reads a range of every queue; ``parallelism`` is how many tasks can run at once."""

    def __init__(self, options: Options, schema: StructType, parallelism: int) -> None:
        self._options = options
        self._schema = schema
        self._parallelism = parallelism

    @boundary
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
        resolution.check_order(options, starts, ends)
        return [OffsetRange(queue, starts[queue], ends[queue]) for queue in queues if starts[queue] < ends[queue]]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """The rows of a partition."""
        from eruca.spark_connector.read.partition_reader import read_partition  # what plans needs nothing of it

        with boundary:
            yield from read_partition(self._options, self._schema, partition)
