"""What one task does: pull its ranges, decode, and hand record batches to Spark.

Owns the overlap of the two: while a batch is decoded here, the link's thread pulls the next. Used by batch and stream.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import cache
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from eruca.client import PullConsumer
from eruca.protocol.subscription import build_subscription
from eruca.spark_connector import link
from eruca.spark_connector.decoding import Decoder
from eruca.spark_connector.lanes import Lanes
from eruca.spark_connector.options import Options
from eruca.spark_connector.planning import QueuePartition
from eruca.spark_connector.pulling import Chunk, Puller
from eruca.spark_connector.schema import arrow_schema


def read_partition(options: Options, schema: StructType, partition: Any) -> Iterator[pa.RecordBatch]:
    """The rows of a partition. Raises SourceError.

    ``partition`` is a QueuePartition, or what Spark makes of a plan without partitions: then there are no rows.
    """
    if not isinstance(partition, QueuePartition):
        return
    _leave_imports_out_of_collections()
    decoder = Decoder(arrow_schema(schema), _wanted_tags(options))
    line = link.this_process()
    puller: Puller | None = None

    async def pull(consumer: PullConsumer) -> tuple[list[Chunk], bool]:
        nonlocal puller
        if puller is None:
            puller = Puller(consumer, options, partition.ranges, Lanes(consumer, options))
        return await puller.next_chunks(options.arrow_batch_rows), puller.unfinished

    async def stop(consumer: PullConsumer) -> None:
        if puller is not None:
            puller.stop()

    coming = line.begin(options.access, pull)
    try:
        while True:
            chunks, more = coming.result()
            if more:
                coming = line.begin(options.access, pull)
            if chunks:
                batch = decoder.decode(chunks)
                if batch.num_rows:
                    yield batch
            if not more:
                return
    finally:
        coming.cancel()
        line.begin(options.access, stop)  # not waited for: this may run when the process ends


@cache
def _leave_imports_out_of_collections() -> None:
    """Once a process: Spark's workers collect garbage after each task, 30 ms and more for all that was imported."""
    gc.freeze()


def _wanted_tags(options: Options) -> frozenset[str] | None:
    if options.sql_filter is not None:
        return None
    return frozenset(build_subscription("", options.tags, version=0).tags_set) or None
