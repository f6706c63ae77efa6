"""Sends the messages of one task: many requests under way, each retried until its message is stored.

Owns retries, the order within a queue, and what the task waits for. ``MessageWriter`` runs on the loop of the clients.
The thread of the task uses ``PendingSends`` and encodes the next messages meanwhile. Knows nothing of rows.
Invariants: a message is stored at least once, or the task fails. Messages for one chosen queue are stored there in the
order in which they were added, without a gap: after a failure nothing more is sent.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Generic, TypeVar

from eruca.client import Message, MessageQueue, PullConsumer
from eruca.client.compression import compressor
from eruca.client.errors import ClientError, TopicNotFound
from eruca.client.network.identity import unique_keys
from eruca.client.network.routes import Route
from eruca.client.outcomes import SendStatus
from eruca.client.producing.send import SendEndpoint
from eruca.client.selectors import RoundRobin, by_hash
from eruca.protocol import api, names
from eruca.protocol.headers.send import SendMessageV2, SendReply
from eruca.protocol.message import TRANSACTION_PREPARED
from eruca.remoting import Answer
from eruca.remoting.calls import Receiver
from eruca.remoting.clock import now_ms
from eruca.spark_connector.errors import SinkError
from eruca.spark_connector.runtime import clients
from eruca.spark_connector.sink_options import SinkOptions
from eruca.spark_connector.write.encoder import MessageBatch, SingleMessage
from eruca.spark_connector.write.half_messages import BACKOFF_SECONDS, HalfMessage

T = TypeVar("T")
Stored = tuple[MessageQueue, SendReply, str]
"""Where a message was stored, what its broker says of it, and its unique key."""

NEW_TOPIC_QUEUES = 4
"""Queues of a topic that a broker creates by the first message (DefaultMQProducer in 4.9.7)."""
MESSAGES_AT_ONCE = 64


class MessageWriter:
    """Sends messages to brokers for one task."""

    def __init__(self, consumer: PullConsumer, options: SinkOptions) -> None:
        self._session = consumer.session
        self._options = options
        self._turns: dict[str, RoundRobin] = {}
        self._orders: dict[MessageQueue, asyncio.Lock] = {}
        self._failed = False
        self._compress = compressor()

    async def send_batch(self, batch: MessageBatch) -> None:
        """Store a batch. Raises SinkError."""

        def request() -> tuple[SendMessageV2, bytes]:
            header = self._header(batch.topic, "WAIT\x01true", 0, 0)
            header.batch = True
            return header, batch.body

        if batch.queue is None:
            await self._deliver(api.SEND_BATCH_MESSAGE, batch.topic, None, request)
        else:
            async with self._orders.setdefault(batch.queue, asyncio.Lock()):
                await self._deliver(api.SEND_BATCH_MESSAGE, batch.topic, batch.queue, request)

    async def send_messages(self, messages: Sequence[SingleMessage]) -> None:
        """Store messages one by one, all under way at once. Raises SinkError."""
        await self._send(messages, "", 0)

    async def send_half_messages(self, messages: Sequence[SingleMessage]) -> list[HalfMessage]:
        """Store half messages; returns where they are. Raises SinkError."""
        more = f"\x02{names.TRANSACTION_PREPARED}\x01true\x02{names.PRODUCER_GROUP}\x01{self._options.producer_group}"
        return [HalfMessage.of(*each) for each in await self._send(messages, more, TRANSACTION_PREPARED)]

    async def send_marker(self, queue: MessageQueue, text: str, body: bytes) -> int:
        """Store one message in a queue; its offset there. Raises SinkError."""
        message = SingleMessage(queue.topic, queue, body, text, 0)
        return (await self.send(_Outgoing(message, "", 0)))[1].queue_offset

    async def _send(self, messages: Sequence[SingleMessage], more: str, bits: int) -> list[Stored]:
        deliveries = [_Delivery(self, _Outgoing(message, more, bits)) for message in messages]
        return await asyncio.gather(*(each.stored_at for each in deliveries))

    def start(self, what: _Outgoing, receiver: Receiver[Answer[SendReply]]) -> MessageQueue | None:
        """Send a message to the queue whose turn it is, which is returned; None where something is to be done first."""
        message = what.message
        route = self._session.directory.routes.get(message.topic)
        if self._failed or route is None or not route.to_send:
            return None
        queue = message.queue or self._turn(message.topic).choose(route.to_send)
        address = self._session.directory.master_now(queue.broker_name)
        connection = None if address is None else self._session.ready(address)
        if connection is None:
            return None
        header, body = self._stamp(what)
        header.queue_id = queue.queue_id
        timeout = self._options.send_timeout_ms / 1000
        connection.call_for(receiver, api.SEND_MESSAGE_V2, header, body, timeout=timeout)
        return queue

    def stored(self, answer: Answer[SendReply]) -> bool:
        """Whether a message so answered is as safe as it is to be."""
        return not answer.code or not self._options.require_send_ok

    async def send(self, what: _Outgoing) -> Stored:
        """Store one message, as often as it takes. Raises SinkError."""
        message = what.message
        queue, reply = await self._deliver(api.SEND_MESSAGE_V2, message.topic, message.queue, lambda: self._stamp(what))
        return queue, reply, what.key

    def _stamp(self, what: _Outgoing) -> tuple[SendMessageV2, bytes]:
        # Each attempt has an id of its own: of two half messages that were stored for one message, one is known.
        message, now = what.message, time.time()
        what.key = unique_keys().next(now)
        body, compressed = self._compress(message.body)
        text = f"UNIQ_KEY\x01{what.key}\x02{message.properties}{what.more}"
        return self._header(message.topic, text, what.bits | compressed, message.flag), body

    def _turn(self, topic: str) -> RoundRobin:
        turn = self._turns.get(topic)
        if turn is None:
            turn = self._turns[topic] = RoundRobin()
        return turn

    def _header(self, topic: str, text: str, bits: int, flag: int) -> SendMessageV2:
        return SendMessageV2(
            producer_group=self._options.producer_group,
            topic=topic,
            default_topic_queue_nums=NEW_TOPIC_QUEUES,
            queue_id=0,
            sys_flag=bits,
            born_timestamp=now_ms(),
            flag=flag,
            properties=text,
            reconsume_times=0,
        )

    async def _deliver(
        self,
        endpoint: SendEndpoint,
        topic: str,
        queue: MessageQueue | None,
        request: Callable[[], tuple[SendMessageV2, bytes]],
    ) -> tuple[MessageQueue, SendReply]:
        waits, avoid = iter(BACKOFF_SECONDS), None
        deadline = time.monotonic() + self._options.retry_timeout_ms / 1000
        while not self._failed:
            target = queue
            try:
                if target is None:
                    target = self._turn(topic).choose(self._queues(await self._route(topic), topic), avoid)
                header, body = request()
                header.queue_id = target.queue_id
                address = await self._session.master(target.broker_name, topic)
                timeout = self._options.send_timeout_ms / 1000
                answer = await self._session.call(address, endpoint, header, body, timeout=timeout)
                if self.stored(answer):
                    return target, answer.header
                failed = SendStatus(int(answer.code)).name + ", so it is less safe than its broker is set to make it"
            except ClientError as error:
                failed = str(error)
                if not _is_retriable(error):
                    raise self._giving_up(topic, failed) from error
            wait = next(waits, BACKOFF_SECONDS[-1])
            if time.monotonic() + wait > deadline:
                raise self._giving_up(
                    topic, f"for {self._options.retry_timeout_ms} ms (retryTimeoutMs); the last time: {failed}"
                )
            avoid = None if target is None else target.broker_name
            await asyncio.sleep(wait)
            with suppress(ClientError):
                await self._session.directory.refresh(topic)
        raise SinkError(f"Not sent to {topic}, since an earlier message of the task could not be sent.")

    async def _route(self, topic: str) -> Route:
        known = self._session.directory.routes.get(topic)
        if known is not None and known.to_send:
            return known
        return await self._session.directory.route_to_send(topic, NEW_TOPIC_QUEUES)

    def _queues(self, route: Route, topic: str) -> Sequence[MessageQueue]:
        if not route.to_send:
            raise SinkError(f"The topic {topic} has no queue that can be written: look at its permissions.")
        return route.to_send

    def _giving_up(self, topic: str, why: str) -> SinkError:
        self._failed = True
        return SinkError(f"Messages to {topic} could not be sent: {why}")

    async def choose(self, topic: str, key: Any, queue_id: int | None, broker: str | None) -> MessageQueue | None:
        """The queue for a row of these columns; None for any. Raises SinkError and ClientError."""
        if key is None and queue_id is None:
            return None
        queues = self._queues(await self._route(topic), topic)
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


class _Outgoing:
    """A message that travels with ``more`` properties and ``bits`` of sysFlag; ``key`` is that of its last attempt."""

    __slots__ = ("bits", "key", "message", "more")

    def __init__(self, message: SingleMessage, more: str, bits: int) -> None:
        self.message, self.more, self.bits, self.key = message, more, bits, ""


class _Delivery:
    """One message under way (a Receiver): the first attempt without a task, all others in one.

    A task for each message would cost more than the request does.
    """

    __slots__ = ("_queue", "_task", "_what", "_writer", "stored_at")

    def __init__(self, writer: MessageWriter, what: _Outgoing) -> None:
        self.stored_at: asyncio.Future[Stored] = asyncio.get_running_loop().create_future()
        self._writer = writer
        self._what = what
        self._queue = writer.start(what, self)
        if self._queue is None:
            self._begin()

    def done(self) -> bool:
        """Whether nobody waits for the answer."""
        return self.stored_at.done()

    def set_result(self, answer: Answer[SendReply], /) -> None:
        """It was stored."""
        if self._queue is None or not self._writer.stored(answer):
            self._begin()
        else:
            self.stored_at.set_result((self._queue, answer.header, self._what.key))

    def set_exception(self, exception: Exception, /) -> None:
        """The first attempt failed."""
        self._begin()

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._send())

    async def _send(self) -> None:
        try:
            stored = await self._writer.send(self._what)
        except Exception as error:
            if not self.stored_at.done():
                self.stored_at.set_exception(error)
        else:
            if not self.stored_at.done():
                self.stored_at.set_result(stored)


def _is_retriable(error: ClientError) -> bool:
    return error.retriable and not isinstance(error, TopicNotFound)


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
