"""Messages that are sent from lines: a body each, or a message in JSON as ``tail -o jsonl`` prints it.

``Delivery`` sends them: those of one queue in their order, those of different queues side by side. A message in JSON
goes to the queue with its broker's name and its number where the topic has that, else always to one and the same queue,
so the order of a queue that is copied stays. Nothing is sent twice: what could not be sent ends the delivery.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import zlib
from dataclasses import dataclass, field
from itertools import count
from time import monotonic
from typing import Any, Literal

import msgspec

from eruca.admin.client import Admin
from eruca.admin.errors import UNREADABLE, AdminError, BadValue, TimedOut
from eruca.admin.messages import send, writable_queues
from eruca.admin.results.answer import Answer
from eruca.protocol import names
from eruca.protocol.queues import MessageQueue

_OF_THE_FIRST = frozenset(
    {
        *(names.DELAY, names.REAL_TOPIC, names.REAL_QUEUE_ID, names.TRANSACTION_PREPARED),
        *(names.TIMER_OUT_MS, names.TIMER_ROLL_TIMES, names.TIMER_ORIGIN, *names.TIMER_WISHES),
        *(names.MIN_OFFSET, names.MAX_OFFSET, names.CONSUME_START_TIME),
    }
)
"""Properties of the message that is copied: its delay, its transaction, its place."""


class Line(msgspec.Struct, frozen=True, rename="camel"):
    """A message in JSON: what ``tail -o jsonl`` prints, of which only the body is needed."""

    body: str
    body_encoding: Literal["text", "base64"] = "text"
    tags: str | None = None
    keys: list[str] | str = ""
    properties: dict[str, str] = {}
    flag: int = 0
    broker: str | None = None
    queue_id: int | None = None


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to send."""

    number: int
    """Of its line, from 1."""
    body: bytes
    properties: dict[str, str] = field(default_factory=dict)
    flag: int = 0
    place: tuple[str, int] | None = None
    """The broker and the queue that it comes from."""


class Delivered(Answer, frozen=True, kw_only=True, rename="camel"):
    """What was sent."""

    topic: str
    messages: int
    bytes: int
    seconds: float


def is_message(line: bytes) -> bool:
    """Whether a line is a message as ``tail -o jsonl`` prints it."""
    try:
        found: Any = msgspec.json.decode(line)
    except UNREADABLE:
        return False
    return isinstance(found, dict) and {"body", "bodyEncoding", "queueOffset"} <= found.keys()


def from_json(line: bytes, number: int) -> Outgoing:
    """A message in JSON. Raises BadValue, which names the line."""
    try:
        found = msgspec.json.decode(line, type=Line)
        body = base64.b64decode(found.body, validate=True) if found.body_encoding == "base64" else found.body.encode()
    except (*UNREADABLE, binascii.Error) as error:
        raise BadValue(f"line {number} is no message in JSON: {error}") from None
    properties = {name: value for name, value in found.properties.items() if name not in _OF_THE_FIRST}
    keys = found.keys if isinstance(found.keys, str) else " ".join(found.keys)
    for name, value in ((names.TAGS, found.tags), (names.KEYS, keys)):
        if value:
            properties.setdefault(name, value)
    place = None if found.broker is None or found.queue_id is None else (found.broker, found.queue_id)
    return Outgoing(number, body, properties, found.flag, place)


class Delivery:
    """Sends messages to a topic, ``rate`` a second at most."""

    def __init__(self, admin: Admin, topic: str, rate: float | None) -> None:
        self._admin = admin
        self._topic = topic
        self._pause = 1 / rate if rate else 0.0
        self._next = self._began = monotonic()
        self._turn = count()
        self._queues: dict[MessageQueue, str] = {}
        self.sent = self.size = 0

    async def send(self, messages: list[Outgoing]) -> None:
        """Returns when all are stored. Raises AdminError, which names the lines that were not."""
        if not self._queues:
            self._queues = await writable_queues(self._admin, self._topic)
        if self._pause:
            for each in messages:
                await asyncio.sleep(self._next - monotonic())
                self._next = max(self._next, monotonic()) + self._pause
                await self._send_all([each])
        else:
            await self._send_all(messages)

    async def _send_all(self, messages: list[Outgoing]) -> None:
        by_queue: dict[MessageQueue, list[Outgoing]] = {}
        for each in messages:
            by_queue.setdefault(self._queue(each), []).append(each)
        results = await asyncio.gather(*(self._send_in_order(queue, own) for queue, own in by_queue.items()))
        failed = [result for result in results if result is not None]
        if failed:
            left = sorted(number for _, numbers in failed for number in numbers)
            lines = f"line {left[0]}" if len(left) == 1 else f"lines {', '.join(map(str, left))}"
            error = TimedOut if isinstance(failed[0][0], TimedOut) else AdminError
            raise error(f"{failed[0][0]}; {lines} and what follows was not sent")

    async def _send_in_order(self, queue: MessageQueue, own: list[Outgoing]) -> tuple[AdminError, list[int]] | None:
        """Send the messages of one queue; the error and the lines that are left, if there is one."""
        for at, each in enumerate(own):
            try:
                await send(self._admin, queue, self._queues[queue], each.body, each.properties, flag=each.flag)
            except AdminError as error:
                return error, [left.number for left in own[at:]]
            self.sent += 1
            self.size += len(each.body)
        return None

    def _queue(self, each: Outgoing) -> MessageQueue:
        queues = list(self._queues)
        if each.place is None:
            return queues[next(self._turn) % len(queues)]
        own = MessageQueue(self._topic, *each.place)
        broker, number = each.place
        return own if own in self._queues else queues[(zlib.crc32(broker.encode()) + number) % len(queues)]

    def result(self) -> Delivered:
        """What was sent so far."""
        return Delivered(
            topic=self._topic, messages=self.sent, bytes=self.size, seconds=round(monotonic() - self._began, 3)
        )
