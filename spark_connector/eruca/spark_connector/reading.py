"""What one task does: pull its ranges, decode, and hand record batches to Spark.

Owns which way is pulled: the short one, and a batch the patient way whenever that fails. All of it is done by the
task's own thread, with nothing to hand over: what overlaps is the broker, which answers ahead into the sockets. Used by
batch and stream.
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
from eruca.spark_connector.options import Options
from eruca.spark_connector.planning import QueuePartition
from eruca.spark_connector.pulling import Puller
from eruca.spark_connector.replicas import Chosen
from eruca.spark_connector.schema import arrow_schema
from eruca.spark_connector.spans import Chunk, Spans
from eruca.spark_connector.wires import Wires


def read_partition(options: Options, schema: StructType, partition: Any) -> Iterator[pa.RecordBatch]:
    """The rows of a partition. Raises SourceError.

    ``partition`` is a QueuePartition, or what Spark makes of a plan without partitions: then there are no rows.
    """
    if not isinstance(partition, QueuePartition):
        return
    _leave_imports_out_of_collections()
    decoder = Decoder(arrow_schema(schema), _wanted_tags(options))
    line, spans, chosen = link.this_process(), Spans(options, partition.ranges), Chosen()
    wires = Wires(line, options, chosen)
    patient = _Patient(line, options, spans, chosen)
    rows = options.arrow_batch_rows
    try:
        while spans.unfinished:
            chunks, data, well = wires.next_chunks(spans, rows) if wires.useful else ([], None, False)
            if not chunks and not well:
                chunks, data = patient.next_chunks(rows, release=wires.useful), None
            if chunks:
                batch = decoder.decode(chunks, data)
                if batch.num_rows:
                    yield batch
        wires.keep()
    finally:
        wires.close()
        patient.stop()


class _Patient:
    """The patient way, which runs on the link's loop."""

    def __init__(self, line: link.Link, options: Options, spans: Spans, chosen: Chosen) -> None:
        self._line, self._options, self._spans, self._chosen = line, options, spans, chosen
        self._puller: Puller | None = None

    def next_chunks(self, rows: int, *, release: bool) -> list[Chunk]:
        """A batch; with ``release`` nothing is under way after it. Raises SourceError."""

        async def pull(consumer: PullConsumer) -> list[Chunk]:
            if self._puller is None:
                self._puller = Puller(consumer, self._options, self._spans, self._chosen)
            chunks = await self._puller.next_chunks(rows)
            if release:
                self._puller.stop()
            return chunks

        return self._line.ask(self._options.access, pull)

    def stop(self) -> None:
        """Give up what is under way. Not waited for: this may run when the process ends."""

        async def stop(_: PullConsumer) -> None:
            if self._puller is not None:
                self._puller.stop()

        if self._puller is not None:
            self._line.begin(self._options.access, stop)


@cache
def _leave_imports_out_of_collections() -> None:
    """Once a process: Spark's workers collect garbage after each task, 30 ms and more for all that was imported."""
    gc.freeze()


def _wanted_tags(options: Options) -> frozenset[str] | None:
    if options.sql_filter is not None:
        return None
    return frozenset(build_subscription("", options.tags, version=0).tags_set) or None
