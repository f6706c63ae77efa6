"""The pulls of one task: by the fast path, and one batch by the slow path whenever that fails.

Owns the choice between the two paths. They take turns over the same spans (``spans``): the fast path pulls on sockets
of the thread of the task and retries nothing; the slow path finds out what is wrong, waits, turns to another replica,
or raises the error that the user sees.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from eruca.client import PullConsumer
from eruca.spark_connector.offsets.positions import OffsetRange
from eruca.spark_connector.options import Options
from eruca.spark_connector.read.fast_path import FastPuller
from eruca.spark_connector.read.slow_path import SlowPuller
from eruca.spark_connector.read.spans import Chunk, Spans
from eruca.spark_connector.runtime.clients import ClusterClients
from eruca.spark_connector.runtime.replicas import ReplicaChoice


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
