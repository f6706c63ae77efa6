"""Pulls by the slow path: through the client, on its loop, with retries, other replicas, waits and clear errors.

Owns what an answer means that is not what was asked for. Every method runs on the loop of the clients. It handles
records as bytes only. ``spans`` decides what is pulled next; ``fast_path`` is the other path.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from functools import partial
from itertools import count

from eruca.client import MessageQueue, PullConsumer, PullResult, PullStatus
from eruca.client.errors import AccessDenied, BrokerRefused, ClientError
from eruca.spark_connector.errors import SourceError
from eruca.spark_connector.options import Options
from eruca.spark_connector.read.spans import BATCH_BYTES, Chunk, Span, Spans
from eruca.spark_connector.runtime.replicas import MASTER, SLAVE, UNREACHABLE, ReplicaChoice, has_other_replica
from eruca.spark_connector.runtime.retry import forbidden, retry_while_away

log = logging.getLogger("eruca.spark")
IDLE_BACKOFF_SECONDS = (0.1, 0.2, 0.4, 0.8)
"""The wait before each retry of a pull that found nothing and did not advance."""


class _Withdrawn(Exception):
    """The topic has fewer read queues than when the query was planned, so no broker lets this one be read."""


class SlowPuller:
    """Pulls the spans of one task; ``replicas`` chooses the replica of each broker."""

    def __init__(self, consumer: PullConsumer, options: Options, spans: Spans, replicas: ReplicaChoice) -> None:
        self._consumer = consumer
        self._options = options
        self._spans = spans
        self._replicas = replicas
        self._calls: set[asyncio.Future[PullResult]] = set()
        self._known_ends: dict[MessageQueue, int] = {}
        self._withdrawn: set[MessageQueue] = set()

    async def next_chunks(self, rows: int) -> list[Chunk]:
        """Chunks over ``rows`` offsets or BATCH_BYTES, fewer at the end of the ranges, none after it.

        Raises SourceError and ClientError.
        """
        spans = self._spans
        chunks: list[Chunk] = []
        size = 0
        while rows > 0 and size < BATCH_BYTES and spans.unfinished:
            self._start(spans.begin())
            span = spans.first
            found = 0
            try:
                result = await span.call
                reached = await self._advance(span, result)
            except _Withdrawn as error:
                if self._options.fail_on_data_loss:
                    raise SourceError(str(error)) from None
                log.warning("the messages from %d to %d are not read: %s", span.start, span.end - 1, error)
                reached = span.end
            else:
                if result.status is PullStatus.FOUND and result.body:
                    chunks.append(Chunk(span.queue, result.body, span.end))
                    found = len(result.body)
                    size += found
            rows -= reached - span.start
            self._start(spans.advance(reached, found))
        return chunks

    def stop(self) -> None:
        """Cancel the pulls under way; their spans are pulled again."""
        for call in tuple(self._calls):
            call.cancel()
        self._spans.take_back()

    def _start(self, begun: list[Span]) -> None:
        for span in begun:
            span.call = call = asyncio.ensure_future(self._pull(span.queue, span.start, span.end))
            self._calls.add(call)
            call.add_done_callback(self._ended)

    def _ended(self, call: asyncio.Future[PullResult]) -> None:
        self._calls.discard(call)
        if not call.cancelled():
            call.exception()  # retrieved, so that asyncio does not log it where nobody waits for it

    async def _pull(self, queue: MessageQueue, start: int, end: int) -> PullResult:
        pull = partial(self._pull_of_a_replica, queue, start, end)
        try:
            return await retry_while_away(self._consumer, queue, pull, self._options.broker_loss_timeout)
        except UNREACHABLE as error:
            raise SourceError(
                f"{queue.broker_name} was asked several times for {queue}, and did not answer within "
                f"{self._options.pull_timeout_ms} ms (pullTimeoutMs): look whether it is alive and not too busy "
                f"({error})."
            ) from error
        except BrokerRefused as error:
            if isinstance(error, AccessDenied) or not forbidden(error):
                raise
            raise SourceError(
                f"{queue.broker_name} lets nobody read {queue} now ({error.remark}): the topic, the group "
                f"{self._consumer.group} or the broker has no permission to be read. Give it back (mqadmin "
                "updateTopicPerm, updateSubGroup -s true, or brokerPermission) and start the query again."
            ) from error

    async def _pull_of_a_replica(self, queue: MessageQueue, start: int, end: int) -> PullResult:
        broker_id = self._replicas.of(queue.broker_name)
        try:
            return await self._pull_of(queue, start, end, broker_id)
        except BrokerRefused:
            await self._check_withdrawn(queue)
            raise
        except UNREACHABLE:
            if not await has_other_replica(self._consumer, queue):
                raise
            other = SLAVE if broker_id == MASTER else MASTER
            result = await self._pull_of(queue, start, end, other)
            self._replicas.turn(queue.broker_name, other)
            return result

    async def _check_withdrawn(self, queue: MessageQueue) -> None:
        """Raise _Withdrawn for a queue that is no more among those that its broker lets be read."""
        if queue not in self._withdrawn:
            with suppress(ClientError):
                there = await self._consumer.fetch_queues(queue.topic)
                left = [each for each in there if each.broker_name == queue.broker_name]
                if left and queue not in left:
                    self._withdrawn.add(queue)
        if queue in self._withdrawn:
            raise _Withdrawn(
                f"{queue} cannot be read any more, as {queue.topic} has fewer read queues at {queue.broker_name} now: "
                "give it as many as before (mqadmin updateTopic -r) until all is read, or set failOnDataLoss=false to "
                "go on without the rest."
            )

    async def _pull_of(self, queue: MessageQueue, start: int, end: int, broker_id: int) -> PullResult:
        options = self._options
        return await self._consumer.pull(
            queue,
            start,
            self._spans.count(start, end),
            expression=options.expression,
            expression_type=options.expression_type,
            timeout=options.pull_timeout_ms / 1000,
            broker_id=broker_id,
        )

    # ------------------------------------------------------------------ answers

    async def _advance(self, span: Span, result: PullResult) -> int:
        """The offset up to which the answer covers the span, at most the end of the span."""
        if _begins_later(result, span):
            return self._moved(span, result)
        reached = min(result.next_offset, span.end)
        if result.status is PullStatus.FOUND:
            self._replicas.suggest(span.queue.broker_name, result.broker_id)
            if reached <= span.start:
                raise SourceError(
                    f"The broker answered a pull of {span.queue} at {span.start} with messages, and to go on at "
                    f"{result.next_offset}: it does not follow the protocol."
                )
            return reached
        if result.status is PullStatus.NO_MATCHED_MESSAGE and reached > span.start:
            return reached
        return await self._wait(span)

    async def _wait(self, span: Span) -> int:
        """The queue ends before the span, as at a slave that lags: pull again, then the rest counts as lost.

        While there is no master a task of a stream waits for one, as it would for a broker that does not answer.
        """
        if span.start >= self._known_ends.get(span.queue, span.end):
            return span.end
        began, within = time.monotonic(), self._options.broker_loss_timeout or 0.0
        for attempt in count():
            if attempt >= len(IDLE_BACKOFF_SECONDS) and (
                self._has_master(span.queue.broker_name) or time.monotonic() - began >= within
            ):
                break
            await asyncio.sleep(IDLE_BACKOFF_SECONDS[min(attempt, len(IDLE_BACKOFF_SECONDS) - 1)])
            self._replicas.forget(span.queue.broker_name)
            with suppress(ClientError):  # a master that came back may have another address
                await self._consumer.fetch_queues(span.queue.topic)
            result = await self._pull(span.queue, span.start, span.end)
            if _begins_later(result, span):
                return self._moved(span, result)
            if result.next_offset > span.start:
                # This answer is dropped: the span is pulled again, and now it advances.
                return span.start
        self._known_ends[span.queue] = result.max_offset
        return self._lost(span, span.end, f"the queue reaches from {result.min_offset} to {result.max_offset}")

    def _has_master(self, broker: str) -> bool:
        return self._replicas.of(broker) == MASTER and broker in self._consumer.session.directory.masters

    def _moved(self, span: Span, result: PullResult) -> int:
        there = f"the queue reaches from {result.min_offset} to {result.max_offset}"
        return self._lost(span, min(result.min_offset, span.end), there)

    def _lost(self, span: Span, until: int, there: str) -> int:
        if self._options.fail_on_data_loss:
            raise SourceError(
                f"The offsets from {span.start} on of {span.queue} are not there: {there}. They were "
                "deleted by retention, or the topic was created again, or a slave is behind a master that is away, or "
                "the query names offsets beyond the end; set failOnDataLoss=false to go on without them."
            )
        return until


def _begins_later(result: PullResult, span: Span) -> bool:
    """Whether what a pull asked for is deleted. A queue that ends before it may be a slave's that lags."""
    return result.status is PullStatus.OFFSET_MOVED and result.min_offset > span.start
