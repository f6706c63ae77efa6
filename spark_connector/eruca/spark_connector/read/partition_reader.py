"""The rows of one partition: pull its ranges, decode, and hand record batches to Spark. Used by batch and stream.

The thread of the task does all of this work. What overlaps is the broker, which answers ahead into the sockets.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import cache
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from eruca.protocol.subscription import build_subscription
from eruca.spark_connector.options import Options
from eruca.spark_connector.read.decoder import Decoder
from eruca.spark_connector.read.partitions import OffsetPartition
from eruca.spark_connector.read.puller import Puller
from eruca.spark_connector.runtime import clients
from eruca.spark_connector.schema import arrow_schema


def read_partition(options: Options, schema: StructType, partition: Any) -> Iterator[pa.RecordBatch]:
    """The rows of a partition. Raises SourceError.

    ``partition`` is an OffsetPartition, or what Spark makes of a plan without partitions: then there are no rows.
    """
    if not isinstance(partition, OffsetPartition):
        return
    _exclude_imports_from_garbage_collection()
    decoder = Decoder(arrow_schema(schema), _wanted_tags(options))
    with Puller(clients.this_process(), options, partition.ranges) as puller:
        while (pulled := puller.next(options.arrow_batch_rows)) is not None:
            if pulled.chunks:
                batch = decoder.decode(pulled.chunks, pulled.data)
                if batch.num_rows:
                    yield batch


@cache
def _exclude_imports_from_garbage_collection() -> None:
    """Once a process: Spark's workers collect garbage after each task, 30 ms and more for all that was imported."""
    gc.freeze()


def _wanted_tags(options: Options) -> frozenset[str] | None:
    if options.sql_filter is not None:
        return None
    return frozenset(build_subscription("", options.tags, version=0).tags_set) or None
