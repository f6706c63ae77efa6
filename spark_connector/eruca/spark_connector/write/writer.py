"""Sends the messages of one task: many requests under way, each retried until its message is stored.

Owns retries, the order within a queue, and what the task waits for; the requests are those of the client's ``Sender``.
``MessageWriter`` runs on the loop of the clients. The thread of the task uses ``PendingSends`` and encodes the next
messages meanwhile. Knows nothing of rows.
What nameservers do not know is away, once a query has written: a broker that stops takes its topics along.
Invariants: a message is stored at least once, or the task fails. Batches for one chosen queue are stored there in the
order in which they were added, without a gap: after a failure nothing more is sent.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeVar

from eruca.client import Message, MessageQueue, PullConsumer
from eruca.client.admin_calls import NEW_TOPIC_QUEUES
from eruca.client.compression import compressor
from eruca.client.errors import ClientError, TopicNotFound
from eruca.client.outcomes import SendResult, SendStatus
from eruca.client.producing.send import BATCH, PLAIN, Send, SendKind, with_flags
from eruca.client.producing.sender import Sender
from eruca.client.selectors import by_hash
from eruca.protocol import names
from eruca.protocol.message import TRANSACTION_PREPARED
from eruca.spark_connector.errors import SinkError
from eruca.spark_connector.runtime import clients
from eruca.spark_connector.runtime.retry import retry
from eruca.spark_connector.sink_options import SinkOptions
from eruca.spark_connector.write.encoder import MessageBatch, SingleMessage
from eruca.spark_connector.write.half_messages import BACKOFF_SECONDS, HalfMessage

T = TypeVar("T")

MESSAGES_AT_ONCE: Final = 64
_BATCH_PROPERTIES: Final = "WAIT\x01true"


class _Outgoing(NamedTuple):
    """What one send carries; ``text`` are the properties behind the unique id, for a batch all of them."""

    topic: str
    queue: MessageQueue | None
    body: bytes
    text: str
    kind: SendKind


class MessageWriter:
    """Sends messages to brokers for one task of an epoch of its write."""

    def __init__(self, consumer: PullConsumer, options: SinkOptions, epoch: int = 0) -> None:
        self._consumer = consumer
        self._session = consumer.session
        self._options = options
        self._epoch = epoch
        self._sender = Sender(consumer.session, options.producer_group)
        self._queue_locks: dict[MessageQueue, asyncio.Lock] = {}
        self._failed = False
        self._compress = compressor()

    async def send_batch(self, batch: MessageBatch) -> None:
        """Store a batch. Raises SinkError."""
        outgoing = _Outgoing(batch.topic, batch.queue, batch.body, _BATCH_PROPERTIES, BATCH)
        if batch.queue is None:
            await self._store([outgoing])
        else:
            async with self._queue_locks.setdefault(batch.queue, asyncio.Lock()):
                await self._store([outgoing])

    async def send_messages(self, messages: Sequence[SingleMessage]) -> None:
        """Store messages one by one, all under way at once. Raises SinkError."""
        await self._store([self._outgoing(each) for each in messages])

    async def send_half_messages(self, messages: Sequence[SingleMessage]) -> list[HalfMessage]:
        """Store half messages; returns where they are. Raises SinkError."""
        more = f"\x02{names.TRANSACTION_PREPARED}\x01true\x02{names.PRODUCER_GROUP}\x01{self._options.producer_group}"
        results = await self._store([self._outgoing(each, more, TRANSACTION_PREPARED) for each in messages])
        return [HalfMessage.of(each) for each in results]

    async def send_marker(self, queue: MessageQueue, properties: str, body: bytes) -> int:
        """Store one message in a queue; returns its offset there. Raises SinkError."""
        (result,) = await self._store([self._outgoing(SingleMessage(queue.topic, queue, body, properties, 0))])
        return result.offset

    def _outgoing(self, message: SingleMessage, more: str = "", sys_flag: int = 0) -> _Outgoing:
        body, compressed = self._compress(message.body)
        sys_flag |= compressed
        kind = with_flags(PLAIN, message.flag, sys_flag) if sys_flag or message.flag else PLAIN
        return _Outgoing(message.topic, message.queue, body, f"\x02{message.properties}{more}", kind)

    # ------------------------------------------------------------------ attempts

    async def _store(self, messages: Sequence[_Outgoing]) -> list[SendResult]:
        """Store messages, each with as many attempts as it takes; the results in their order. Raises SinkError."""
        deadline = time.monotonic() + self._options.retry_timeout_ms / 1000
        sends = [self._start(each) for each in messages]
        outcomes = await asyncio.gather(*(each.future for each in sends), return_exceptions=True)
        if not any(map(self._why_not_stored, outcomes)):
            return [each for each in outcomes if isinstance(each, SendResult)]
        # A task for each message would cost more than its request, so there is one only where some are sent again.
        return await asyncio.gather(
            *(self._retry(*each, deadline) for each in zip(messages, sends, outcomes, strict=True))
        )

    def _start(self, message: _Outgoing, failed_broker: str | None = None) -> Send:
        """Begin one attempt, if possible at another broker than the one that failed.

        Each attempt is a send of its own with a new unique id: of two half messages that were stored for one message,
        one is known.
        """
        topic = self._sender.topic(message.topic)
        send = Send(
            self._sender,
            topic,
            self._sender.loop.create_future(),
            message.body,
            message.text,
            self._options.send_timeout_ms / 1000,
            message.kind,
            queue=message.queue,
            fixed=message.queue is not None,
        )
        if message.queue is None and failed_broker is not None:
            send.choose = lambda route: topic.turn.choose(route.to_send, failed_broker)
        if self._failed:
            send.future.set_exception(
                SinkError(f"Not sent to {message.topic}, since an earlier message of the task could not be sent.")
            )
        else:
            self._sender.append(send)
        return send

    async def _retry(
        self, message: _Outgoing, send: Send, outcome: SendResult | BaseException, deadline: float
    ) -> SendResult:
        """The result of a message whose first attempt has ended. Raises SinkError."""
        backoff = iter(BACKOFF_SECONDS)
        while (why := self._why_not_stored(outcome)) is not None:
            if isinstance(outcome, BaseException) and not self._is_retriable(outcome):
                raise self._give_up(message, why, outcome)
            wait = next(backoff, BACKOFF_SECONDS[-1])
            if time.monotonic() + wait > deadline:
                why = f"for {self._options.retry_timeout_ms} ms (retryTimeoutMs); the last time: {why}"
                raise self._give_up(message, why, outcome)
            await asyncio.sleep(wait)
            with suppress(ClientError):
                await self._session.directory.refresh(message.topic)
            send = self._start(message, send.brokers[-1] if send.brokers else None)
            (outcome,) = await asyncio.gather(send.future, return_exceptions=True)
        assert isinstance(outcome, SendResult)
        return outcome

    def _is_retriable(self, error: BaseException) -> bool:
        if isinstance(error, TopicNotFound):
            return self._options.patience(self._epoch) is not None
        return isinstance(error, ClientError) and error.retriable

    def _why_not_stored(self, outcome: SendResult | BaseException) -> str | None:
        """Why an attempt does not count; None where its message is as safe as requireSendOk wants it."""
        if not isinstance(outcome, SendResult):
            return str(outcome)
        if outcome.status is SendStatus.SEND_OK or not self._options.require_send_ok:
            return None
        return f"{outcome.status.name}, so it is less safe than its broker is set to make it"

    def _give_up(self, message: _Outgoing, why: str, outcome: SendResult | BaseException) -> BaseException:
        """The error to raise; nothing more is sent after it."""
        if isinstance(outcome, BaseException) and not isinstance(outcome, ClientError):
            return outcome
        self._failed = True
        error = SinkError(f"Messages to {message.topic} could not be sent: {why}")
        error.__cause__ = outcome if isinstance(outcome, ClientError) else None
        return error

    # ------------------------------------------------------------------ queues

    async def choose(self, topic: str, key: Any, queue_id: int | None, broker: str | None) -> MessageQueue | None:
        """The queue for a row of these columns; None for any. Raises SinkError and ClientError."""
        if key is None and queue_id is None:
            return None
        queues = await self._queues(topic)
        if key is not None:
            return by_hash(queues, Message(topic, b""), key)
        found = [each for each in queues if each.queue_id == queue_id and broker in (None, each.broker_name)]
        if len(found) != 1:
            there = ", ".join(f"{each.broker_name}:{each.queue_id}" for each in queues)
            raise SinkError(
                f"A row names queue {queue_id} of {topic}{f' at {broker}' if broker else ''}, "
                f"which is {'there more than once: add the column brokerName' if found else 'not there'}; "
                f"there are {there}."
            )
        return found[0]

    async def _queues(self, topic: str) -> Sequence[MessageQueue]:
        """The queues that can be written, at least one."""
        route = self._session.directory.known_to_send(topic)
        if route is None or not route.to_send:
            ask = partial(self._session.directory.route_to_send, topic, NEW_TOPIC_QUEUES)
            route = await retry(self._consumer, topic, ask, within=self._options.patience(self._epoch))
        if not route.to_send:
            raise SinkError(f"The topic {topic} has no queue that can be written: look at its permissions.")
        return route.to_send


class PendingSends(Generic[T]):
    """The requests of one task under way, at most ``sendPipeline``; MESSAGES_AT_ONCE single messages count as one."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._clients = clients.this_process()
        self._under_way: deque[Future[T]] = deque()
        self.results: list[T] = []

    def add(self, work: Callable[[PullConsumer], Coroutine[Any, Any, T]]) -> None:
        """Start ``work``, after the oldest has ended where too many are under way. Raises what they raise."""
        if len(self._under_way) >= self._options.send_pipeline:
            self.results.append(self._under_way.popleft().result())
        self._under_way.append(self._clients.submit(self._options.access, work))

    def finish(self) -> list[T]:
        """Wait for all; their results in order. Raises what they raise."""
        while self._under_way:
            self.results.append(self._under_way.popleft().result())
        return self.results

    def settle(self) -> list[T]:
        """After a failure: wait until nothing is under way any more; the results of what succeeded."""
        for each in self._under_way:
            if each.exception() is None:
                self.results.append(each.result())
        self._under_way.clear()
        return self.results
