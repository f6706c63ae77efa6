"""Message traces: who sent a message, who consumed it, and how long each took, as RocketMQ's clients write them.

Owns the text of a trace, which Java's and Eruca's mqadmin read (queryMsgTraceById), and its way to the trace topic:
collected, and sent as messages whose keys are the ids and keys of the traced ones. Traces never hold up what they are
about: what cannot be sent is lost, and logged. Facts: TraceDataEncoder, AsyncTraceDispatcher and the hooks of
client.trace in 4.9.7. Two things are different: of a batch each message is traced (Java writes one record with all
ids, which no search finds), and a message of traces ends before its keys are more than a broker takes.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from eruca.client.config import ClientSettings, check_topic
from eruca.client.errors import ClientError
from eruca.client.hooks import DEFAULT_REGION, ConsumeContext, EndTransactionContext, Hook, MessageType, SendContext
from eruca.client.log import log
from eruca.client.message import Message, ReceivedMessage
from eruca.protocol import names
from eruca.remoting.clock import monotonic_ms, now_ms

GROUP_PREFIX = "_INNER_TRACE_PRODUCER"
SEND_AFTER = 0.5
"""Seconds after the first trace of a message of traces until it leaves."""
SEND_FROM = 118_000
"""Characters of traces from which on a message of traces leaves at once."""
MAX_KEYS = 24_000
"""Characters of the keys of one message of traces: all its properties may take 32767 bytes."""
MAX_MESSAGE_SIZE = 1 << 20
SEND_TIMEOUT = 5.0
MAX_WAITING = 10_000
"""Traces that may wait (1024 in Java, whose sends wait, too)."""
MAX_UNDER_WAY = 64
"""Messages of traces under way at once."""
REPORT_AGAIN = 60.0
"""Seconds between two warnings about lost traces."""
STATES = {"COMMIT": "COMMIT_MESSAGE", "ROLLBACK": "ROLLBACK_MESSAGE", "UNKNOWN": "UNKNOW"}
"""The names of transaction states, as Java spells them."""

_numbers = itertools.count()


class Trace(NamedTuple):
    """Some text of traces, and the keys by which it is to be found."""

    text: str
    keys: tuple[str, ...]


def _line(*fields: object) -> str:
    """One record; None is written as Java writes null."""
    return "\x01".join("null" if each is None else str(each) for each in fields) + "\x02"


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _keys_of(message: Message | ReceivedMessage) -> str | None:
    """The business keys as one text."""
    keys = message.keys
    return keys if keys is None or isinstance(keys, str) else " ".join(keys) or None


def _search_keys(message_id: str, keys: str | None) -> tuple[str, ...]:
    return (message_id, *(keys.split() if keys else ()))


def encode_send(context: SendContext, began: int, cost: int) -> Iterable[Trace]:
    """Pub: each message of a send that was stored; times in ms."""
    result = context.result
    assert result is not None
    ids = zip(result.message_ids, result.offset_message_ids, strict=False)
    alone = len(context.messages) == 1
    for message, (message_id, offset_id) in zip(context.messages, ids, strict=False):
        keys = _keys_of(message)
        line = _line(
            "Pub",
            began,
            context.region_id,
            context.producer_group,
            message.topic,
            message_id,
            message.tags,
            keys,
            context.broker_address,
            context.body_size if alone else len(message.body),
            cost,
            context.message_type.value,
            offset_id,
            _flag(result.status.value == 0),
        )
        yield Trace(line, _search_keys(message_id, keys))


def encode_begin(group: str, messages: Iterable[ReceivedMessage], request_id: str, now: int) -> Iterable[Trace]:
    """SubBefore: messages that a listener is about to get."""
    for message in messages:
        region = message.properties.get(names.MSG_REGION)
        keys = _keys_of(message)
        line = _line("SubBefore", now, region, group, request_id, message.message_id, message.reconsume_times, keys)
        yield Trace(line, _search_keys(message.message_id, keys))


def encode_end(
    context: ConsumeContext, messages: Iterable[ReceivedMessage], request_id: str, now: int, cost: int
) -> Iterable[Trace]:
    """SubAfter: the listener has ended; ``cost`` in ms for each message."""
    for message in messages:
        keys = _keys_of(message)
        line = _line(
            "SubAfter",
            request_id,
            message.message_id,
            cost,
            _flag(context.success),
            keys,
            context.return_type.value,
            now,
            context.consumer_group,
        )
        yield Trace(line, _search_keys(message.message_id, keys))


def encode_transaction(context: EndTransactionContext, now: int) -> Trace:
    """EndTransaction: how a transaction ended."""
    message = context.message
    keys = _keys_of(message)
    line = _line(
        "EndTransaction",
        now,
        (message.properties or {}).get(names.MSG_REGION) or DEFAULT_REGION,
        context.producer_group,
        message.topic,
        context.message_id,
        message.tags,
        keys,
        context.broker_address,
        MessageType.TRANSACTION_COMMIT.value,
        context.transaction_id,
        STATES[context.state.name],
        _flag(context.from_check),
    )
    return Trace(line, _search_keys(context.message_id, keys))


class Collector:
    """Takes traces from any thread, and passes them to ``send`` as messages for ``topic``, in the event loop.

    ``send`` starts a send and returns its future; at most ``most_sends`` are under way. Traces wait ``send_after``
    seconds for more; of those that wait for a send, ``most_waiting`` are kept.
    """

    def __init__(
        self,
        topic: str,
        send: Any,
        *,
        send_after: float = SEND_AFTER,
        most_waiting: int = MAX_WAITING,
        most_sends: int = MAX_UNDER_WAY,
    ) -> None:
        self._topic = topic
        self._send = send
        self._send_after = send_after
        self._most_waiting = most_waiting
        self._most_sends = most_sends
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Trace] = deque()
        self._called = False
        self._texts: list[str] = []
        self._keys: dict[str, None] = {}
        self._size = self._keys_size = 0
        self._timer: asyncio.TimerHandle | None = None
        self._under_way: set[asyncio.Future[Any]] = set()
        self._lost = 0
        self._reported_at = 0.0

    def append(self, trace: Trace) -> None:
        """One more; any thread may call."""
        if len(self._waiting) >= self._most_waiting:
            self._lose(1, "too many wait")
            return
        self._waiting.append(trace)
        if not self._called:
            self._called = True
            try:
                self._loop.call_soon_threadsafe(self._collect)
            except RuntimeError:  # a listener that outlived its consumer's event loop
                return

    def _collect(self) -> None:
        self._called = False
        while self._waiting and len(self._under_way) < self._most_sends:
            trace = self._waiting.popleft()
            keys = {key: len(key.encode()) + 1 for key in trace.keys if key not in self._keys}
            if self._keys and self._keys_size + sum(keys.values()) > MAX_KEYS:
                self.send_now()
                keys = {key: len(key.encode()) + 1 for key in trace.keys}
            self._texts.append(trace.text)
            self._size += len(trace.text)
            self._keys.update(dict.fromkeys(keys))
            self._keys_size += sum(keys.values())
            if self._size >= SEND_FROM:
                self.send_now()
        if self._texts and self._timer is None:
            self._timer = self._loop.call_later(self._send_after, self.send_now)

    def send_now(self) -> None:
        """Send what was collected."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._texts:
            return
        count, message = len(self._texts), Message(self._topic, "".join(self._texts).encode(), keys=tuple(self._keys))
        self._texts.clear()
        self._keys.clear()
        self._size = self._keys_size = 0
        try:
            sending: asyncio.Future[Any] = self._send(message)
        except ClientError as error:
            self._lose(count, error)
            return
        self._under_way.add(sending)
        sending.add_done_callback(lambda done: self._sent(done, count))

    def _sent(self, done: asyncio.Future[Any], count: int) -> None:
        self._under_way.discard(done)
        if not done.cancelled() and (error := done.exception()) is not None:
            self._lose(count, error)
        if self._waiting:
            self._collect()

    def _lose(self, count: int, why: object) -> None:
        self._lost += count
        if not self._reported_at or time.monotonic() - self._reported_at >= REPORT_AGAIN:
            self._reported_at = time.monotonic()
            log.warning("%s message traces for %s are lost: %s", self._lost, self._topic, why)

    async def drain(self) -> None:
        """Send all that is there, and wait for it (SEND_TIMEOUT at most)."""
        self._collect()
        self.send_now()
        deadline = self._loop.time() + SEND_TIMEOUT
        while (self._under_way or self._waiting) and self._loop.time() < deadline:
            if self._under_way:
                await asyncio.wait(tuple(self._under_way), timeout=deadline - self._loop.time())
            self._collect()
            self.send_now()


class MessageTrace(Hook):
    """The hook that traces what one client of ``group`` does; ``kind`` is PRODUCE or CONSUME.

    ``topic`` True is RMQ_SYS_TRACE_TOPIC, which belongs to everyone. A topic by name is, as in Java, of the namespace
    that the nameserver's address names, but not of one that the settings name. Its own producer, which is not traced,
    shares the client's connections, unless the settings name a namespace; ``make_producer`` is the class
    Producer, which uses this module.
    """

    def __init__(
        self, group: str, kind: str, topic: bool | str, settings: ClientSettings, make_producer: Callable[..., Any]
    ) -> None:
        self.topic = names.TRACE_TOPIC if isinstance(topic, bool) else topic
        check_topic(self.topic)
        self.group = f"{GROUP_PREFIX}-{group[:200]}-{kind}-{next(_numbers)}"
        self._settings = replace(settings, namespace=None)
        self._make_producer = make_producer
        self._producer: Any = None
        self._collector: Collector | None = None

    async def start(self) -> None:
        """Start to send."""
        producer = self._producer = self._make_producer(
            self.group, send_timeout=SEND_TIMEOUT, max_message_size=MAX_MESSAGE_SIZE, settings=self._settings
        )
        await producer.start()
        self._collector = Collector(self.topic, producer.start_send)

    async def stop(self) -> None:
        """Send what was collected, and end."""
        collector, self._collector = self._collector, None
        if collector is not None:
            await collector.drain()
            await self._producer.stop()

    def _append(self, traces: Iterable[Trace]) -> None:
        collector = self._collector
        if collector is not None:
            for trace in traces:
                collector.append(trace)

    def before_send(self, context: SendContext) -> None:
        """Note the time."""
        context.notes[self] = now_ms(), monotonic_ms()

    def after_send(self, context: SendContext) -> None:
        """A message was stored: Pub."""
        if context.result is not None and context.trace_on and not context.message.topic.startswith(self.topic):
            stamp, began = context.notes[self]
            self._append(encode_send(context, stamp, monotonic_ms() - began))

    def after_end_transaction(self, context: EndTransactionContext) -> None:
        """The end of a transaction was sent: EndTransaction."""
        self._append([encode_transaction(context, now_ms())])

    def before_consume(self, context: ConsumeContext) -> None:
        """A listener gets messages: SubBefore."""
        traced = [each for each in context.messages if each.properties.get(names.TRACE_ON) != "false"]
        from uuid import uuid4  # dear to import, and needed by few

        request_id, now = uuid4().hex.upper(), now_ms()
        context.notes[self] = request_id, monotonic_ms(), traced
        self._append(encode_begin(context.consumer_group, traced, request_id, now))

    def after_consume(self, context: ConsumeContext) -> None:
        """The listener has ended: SubAfter."""
        request_id, began, traced = context.notes[self]
        cost = (monotonic_ms() - began) // len(context.messages)
        self._append(encode_end(context, traced, request_id, now_ms(), cost))
