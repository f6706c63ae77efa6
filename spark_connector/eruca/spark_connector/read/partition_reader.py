"""The rows of one partition: pull its ranges, decode, and hand record batches to Spark. Used by batch and stream.

Owns the choice between two paths, which take turns over the same spans (``spans``): the fast path pulls on sockets of
the thread of the task and retries nothing; the slow path finds out what is wrong, waits, turns to another replica, or
raises the error that the user sees. The thread of the task decodes. What overlaps is the broker, which answers ahead
into the sockets.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
from pyspark.sql.types import StructType

from eruca.client import PullConsumer
from eruca.protocol.subscription import build_subscription
from eruca.spark_connector.offsets.positions import OffsetRange
from eruca.spark_connector.options import Options
from eruca.spark_connector.read.decoder import Decoder
from eruca.spark_connector.read.fast_path import FastPuller
from eruca.spark_connector.read.partitions import OffsetPartition
from eruca.spark_connector.read.slow_path import SlowPuller
from eruca.spark_connector.read.spans import Chunk, Spans
from eruca.spark_connector.runtime import clients
from eruca.spark_connector.runtime.clients import ClusterClients
from eruca.spark_connector.runtime.replicas import ReplicaChoice
from eruca.spark_connector.schema import arrow_schema


def read_partition(options: Options, schema: StructType, partition: Any) -> Iterator[pa.RecordBatch]:
    """The rows of a partition. Raises SourceError.

    ``partition`` is an OffsetPartition, or what Spark makes of a plan without partitions: then there are no rows.
    """
    if not isinstance(partition, OffsetPartition):
        return
    _exclude_imports_from_garbage_collection()
    decoder = Decoder(arrow_schema(schema), _wanted_tags(options), options.max_body)
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


@dataclass(frozen=True)
class Pulled:
    """Chunks, and their bodies joined where they are joined already. Both are valid until the next pull."""

    chunks: list[Chunk]
    data: memoryview | None


class Puller:
    """Pulls ranges of queues in order, as a context manager which ends what is under way."""

    def __init__(self, clients: ClusterClients, options: Options, ranges: Iterable[OffsetRange]) -> None:
        self._clients = clients
        self._options = options
        self._spans = Spans(options, ranges)
        self._replicas = ReplicaChoice()
        self._fast = FastPuller(clients, options, self._replicas)
        self._slow: SlowPuller | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._fast.release()
        self._fast.close()
        if self._slow is not None:
            # Not waited for: this may run when the process ends.
            self._clients.submit(self._options.access, self._stop_slow)

    def next(self, rows: int) -> Pulled | None:
        """Chunks over about ``rows`` offsets, none or more; None at the end of the ranges. Raises SourceError."""
        if not self._spans.unfinished:
            return None
        if self._fast.useful:
            chunks, data, succeeded = self._fast.next_chunks(self._spans, rows)
            if chunks or succeeded:
                return Pulled(chunks, data)
        return Pulled(
            self._clients.call(self._options.access, lambda consumer: self._pull_slowly(consumer, rows)), None
        )

    async def _pull_slowly(self, consumer: PullConsumer, rows: int) -> list[Chunk]:
        if self._slow is None:
            self._slow = SlowPuller(consumer, self._options, self._spans, self._replicas)
        chunks = await self._slow.next_chunks(rows)
        if self._fast.useful:
            self._slow.stop()  # the fast path goes on, so nothing may be under way here
        return chunks

    async def _stop_slow(self, _: PullConsumer) -> None:
        if self._slow is not None:
            self._slow.stop()
