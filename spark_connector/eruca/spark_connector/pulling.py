"""Pulling ranges of queues, many requests ahead, in order.

Owns the pipeline of one task. Every method runs on the link's loop. Knows records only as bytes, and nothing of Spark.

A range is cut into spans that are pulled at the same time, at offsets that are only hoped for: a broker grants what it
likes (a stock one 32 messages and 256 KiB). Where an answer ends before its span, the rest of the span is pulled next;
the length of later spans follows what was granted. A filtered range is not dense, so it is one span, and
nextBeginOffset says where to go on.
Invariant: chunks come in the order of the ranges; each says which offsets it answers for; every offset of the ranges is
answered for once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from eruca.client import MessageQueue, PullConsumer, PullResult, PullStatus
from eruca.protocol.headers.pull import PullReply
from eruca.remoting import Answer
from eruca.spark_connector.cluster import persist
from eruca.spark_connector.errors import SourceError
from eruca.spark_connector.lanes import FAILED, Lanes
from eruca.spark_connector.options import Options
from eruca.spark_connector.positions import Range
from eruca.spark_connector.replicas import AWAY, MASTER, SLAVE, differ

GROW_AFTER = 64
"""Full answers in a row after which longer spans are tried again."""
BATCH_BYTES = 8 << 20
"""Stored bytes that end a batch before it has all its rows."""
UNDER_WAY_BYTES = 4 << 20
"""Stored bytes that the requests under way may bring, judged by the last answers."""
LEAST_PULLS = 4
"""Requests under way however large the answers are."""
IDLE_WAITS = (0.1, 0.2, 0.4, 0.8)
"""Seconds before each further attempt of a pull that brought nothing and did not move on."""


@dataclass(frozen=True)
class Chunk:
    """Stored records of one queue, of which those before ``end`` belong to the range."""

    queue: MessageQueue
    body: bytes
    end: int


@dataclass
class _Span:
    queue: MessageQueue
    start: int
    end: int
    pull: asyncio.Future[PullResult] | None
    quick: asyncio.Future[Answer[PullReply]] | None = None


class Puller:
    """Pulls the ranges of one task; with ``lanes`` in the shortest way there is."""

    def __init__(
        self, consumer: PullConsumer, options: Options, ranges: Iterable[Range], lanes: Lanes | None = None
    ) -> None:
        self._consumer = consumer
        self._lanes = lanes
        self._options = options
        self._todo = deque(ranges)
        self._spans: deque[_Span] = deque()
        self._length = options.pull_batch_size
        self._full = 0
        self._answer_bytes: float = UNDER_WAY_BYTES / 16
        self._broker_ids: dict[str, int] = {}
        self._turned: set[str] = set()
        self._known_ends: dict[MessageQueue, int] = {}

    async def next_chunks(self, rows: int) -> list[Chunk]:
        """Chunks over ``rows`` offsets or BATCH_BYTES, fewer at the end of the ranges, none after it.

        Raises SourceError and ClientError.
        """
        chunks: list[Chunk] = []
        size = 0
        while rows > 0 and size < BATCH_BYTES and self.unfinished:
            self._fill()
            span = self._spans[0]
            result = await self._answer(span)
            reached = await self._advance(span, result)
            if result.status is PullStatus.FOUND and result.body:
                chunks.append(Chunk(span.queue, result.body, span.end))
                size += len(result.body)
                self._answer_bytes += (len(result.body) - self._answer_bytes) / 8
            rows -= reached - span.start
            self._spans.popleft()
            self._continue(span.queue, reached, span.end)
        return chunks

    @property
    def unfinished(self) -> bool:
        """Whether there is more to pull."""
        return bool(self._spans or self._todo)

    def stop(self) -> None:
        """Give up what is under way."""
        for span in self._spans:
            for under_way in (span.pull, span.quick):
                if under_way is not None:
                    under_way.cancel()
                    under_way.add_done_callback(_hear_out)
        self._spans.clear()
        self._todo.clear()

    # ------------------------------------------------------------------ spans

    def _fill(self) -> None:
        depth = min(self._options.pull_pipeline, max(LEAST_PULLS, int(UNDER_WAY_BYTES / self._answer_bytes)))
        if len(self._spans) > depth // 2:
            return  # requests that leave together cost both ends less
        while self._todo and len(self._spans) < depth:
            todo = self._todo.popleft()
            end = todo.end if self._options.filtered else min(todo.end, todo.start + self._length)
            self._spans.append(self._begin(todo.queue, todo.start, end))
            if end < todo.end:
                self._todo.appendleft(Range(todo.queue, end, todo.end))

    def _continue(self, queue: MessageQueue, start: int, end: int) -> None:
        """Pull what an answer left of its span, before all that comes after it."""
        pieces: list[_Span] = []
        while start < end:
            last = self._options.filtered or len(pieces) + 1 >= self._options.pull_pipeline
            stop = end if last else min(end, start + self._length)
            pieces.append(self._begin(queue, start, stop))
            start = stop
        self._spans.extendleft(reversed(pieces))

    def _begin(self, queue: MessageQueue, start: int, end: int) -> _Span:
        if self._lanes is not None:
            broker_id = self._broker_ids.get(queue.broker_name, MASTER)
            quick = self._lanes.start(queue, start, self._count(start, end), broker_id)
            if quick is not None:
                return _Span(queue, start, end, None, quick)
        return _Span(queue, start, end, asyncio.ensure_future(self._pull(queue, start, end)))

    async def _answer(self, span: _Span) -> PullResult:
        if span.quick is not None and self._lanes is not None:
            try:
                return self._lanes.result(await span.quick, span.queue)
            except FAILED:
                pass  # the long way below is patient, and tells what is wrong
        if span.pull is None:
            return await self._pull(span.queue, span.start, span.end)
        return await span.pull

    def _count(self, start: int, end: int) -> int:
        most = self._options.pull_batch_size
        return most if self._options.filtered else min(end - start, most)

    async def _pull(self, queue: MessageQueue, start: int, end: int) -> PullResult:
        return await persist(self._consumer, queue.topic, lambda: self._pull_of_a_replica(queue, start, end))

    async def _pull_of_a_replica(self, queue: MessageQueue, start: int, end: int) -> PullResult:
        """A replica that was turned to since another one did not answer is kept for the rest of the task."""
        broker = queue.broker_name
        broker_id = self._broker_ids.get(broker, MASTER)
        try:
            result = await self._pull_of(queue, start, end, broker_id)
        except AWAY:
            if not await differ(self._consumer, queue):
                raise
            other = SLAVE if broker_id == MASTER else MASTER
            result = await self._pull_of(queue, start, end, other)
            self._broker_ids[broker] = other
            self._turned.add(broker)
            broker_id = other
        if self._lanes is not None:
            await self._lanes.open(queue, broker_id)
        return result

    async def _pull_of(self, queue: MessageQueue, start: int, end: int, broker_id: int) -> PullResult:
        options = self._options
        return await self._consumer.pull(
            queue,
            start,
            self._count(start, end),
            expression=options.expression,
            expression_type=options.expression_type,
            timeout=options.pull_timeout_ms / 1000,
            broker_id=broker_id,
        )

    # ------------------------------------------------------------------ answers

    async def _advance(self, span: _Span, result: PullResult) -> int:
        """How far the answer reaches; at most to the span's end."""
        if result.status is PullStatus.OFFSET_MOVED:
            return self._moved(span, result)
        reached = min(result.next_offset, span.end)
        if result.status is PullStatus.FOUND:
            if span.queue.broker_name not in self._turned:
                self._broker_ids[span.queue.broker_name] = result.broker_id
            if reached <= span.start:
                raise SourceError(
                    f"The broker answered a pull of {span.queue} at {span.start} with messages, and to go on at "
                    f"{result.next_offset}: it does not follow the protocol."
                )
            self._measure(span, reached)
            return reached
        if result.status is PullStatus.NO_MATCHED_MESSAGE and reached > span.start:
            return reached
        return await self._wait(span)

    def _measure(self, span: _Span, reached: int) -> None:
        if self._options.filtered:
            return
        if reached < span.end:
            self._length, self._full = max(1, min(self._length, reached - span.start)), 0
        else:
            self._full += 1
            if self._full >= GROW_AFTER:
                self._length, self._full = min(self._options.pull_batch_size, self._length * 2), 0

    async def _wait(self, span: _Span) -> int:
        """The queue ends before the range, as at a slave that lags: look again, then it is lost."""
        if span.start >= self._known_ends.get(span.queue, span.end):
            return span.end
        for wait in IDLE_WAITS:
            await asyncio.sleep(wait)
            self._broker_ids.pop(span.queue.broker_name, None)
            result = await self._pull(span.queue, span.start, span.end)
            if result.status is PullStatus.OFFSET_MOVED:
                return self._moved(span, result)
            if result.next_offset > span.start:
                # Nothing is taken from this answer: the span is pulled again, and now it moves on.
                return span.start
        self._known_ends[span.queue] = result.max_offset
        return self._lost(span, span.end, f"the queue reaches from {result.min_offset} to {result.max_offset}")

    def _moved(self, span: _Span, result: PullResult) -> int:
        there = f"the queue reaches from {result.min_offset} to {result.max_offset}"
        if result.min_offset > span.start:
            return self._lost(span, min(result.min_offset, span.end), there)
        return self._lost(span, span.end, there)

    def _lost(self, span: _Span, until: int, there: str) -> int:
        if self._options.fail_on_data_loss:
            raise SourceError(
                f"The offsets from {span.start} on of {span.queue} are not there any more: {there}. They were "
                "deleted by retention, or the topic was made anew, or a slave is behind a master that is away; "
                "set failOnDataLoss=false to go on without them."
            )
        return until


def _hear_out(pull: asyncio.Future[Any]) -> None:
    """Take note of how a pull that nobody waits for ended, so that asyncio does not complain of it."""
    if not pull.cancelled():
        pull.exception()
