"""The markers of transactional writes: which attempt of an epoch counts, for ever.

Owns the topic of markers, one queue of one broker, and what is in it: lists of half messages (tag ``list``), written by
tasks, and markers (tag ``marker``) that name the lists of one attempt. **The first marker of a write and epoch in the
queue is the truth**: whoever writes one reads the queue up to it before acting, so any number of drivers, also one that
was thought dead, come to the same answer. A half message is committed only if the attempt that counts lists it.

The last marker of the write whose messages are all committed is stored as the offset of a group: reading begins there.
It may be old or lost, then more is read. A marker is never at offset 0, which brokers return for a new group: lists
come first.
Runs on the loop of the clients.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from eruca.client import MessageQueue, PullConsumer, PullResult, PullStatus
from eruca.client.compression import decompress
from eruca.client.errors import ClientError, TopicNotFound
from eruca.protocol import names
from eruca.spark_connector.errors import SinkError
from eruca.spark_connector.runtime.retry import retry
from eruca.spark_connector.sink_options import SinkOptions
from eruca.spark_connector.write.half_messages import HalfMessage, pack, unpack
from eruca.spark_connector.write.row_ids import Origin
from eruca.spark_connector.write.writer import MessageWriter

T = TypeVar("T")

MARKER: Final = "marker"
LIST: Final = "list"
GROUP_PREFIX: Final = "SPARK_MARKERS_"
"""Prefix of the group whose offset is that of the last marker of a write; the id of the write follows."""
HALF_MESSAGES_A_LIST: Final = 20_000
_SOON: Final = 0.05
_MAKE: Final = "make a topic on one broker with mqadmin updateTopic -b … -r 1 -w 1"


@dataclass(frozen=True)
class Marker:
    """What a marker says: the lists by their offsets, whether their order within queues counts, and who wrote it."""

    offset: int
    attempt: str
    lists: tuple[int, ...]
    ordered: bool


class Markers:
    """The markers of one write, for an epoch of it."""

    def __init__(self, consumer: PullConsumer, options: SinkOptions, origin: Origin) -> None:
        self._consumer = consumer
        self._options = options
        self._write = origin.write
        self._patience = options.patience(origin.epoch)
        self._group = GROUP_PREFIX + origin.write

    async def _queue(self) -> MessageQueue:
        topic = self._options.marker_topic
        assert topic is not None
        try:
            ask = partial(self._consumer.fetch_send_queues, topic)
            queues = await retry(self._consumer, topic, ask, within=self._patience)
        except TopicNotFound as error:
            raise SinkError(f"markerTopic {topic} is not there: {_MAKE}.") from error
        if len(queues) != 1:
            raise SinkError(
                f"markerTopic {topic} has {len(queues)} queues, and it takes exactly one, so that all agree which "
                f"marker is the first: {_MAKE}."
            )
        return queues[0]

    async def find(self, epoch: int, *, through: int | None = None) -> Marker | None:
        """The marker that counts for an epoch; None while there is none.

        ``through`` is an offset that the reading must have reached, that of a marker just written; by default what
        the broker shows now.
        """
        queue = await self._queue()
        end = await self._ask(queue, self._consumer.max_offset) if through is None else through + 1
        at = max(await self._ask(queue, self._consumer.min_offset), await self._last(queue) or 0)
        deadline = time.monotonic() + self._options.retry_timeout_ms / 1000
        while at < end:
            result = await self._pull(queue, at, 1024, MARKER)
            for record in result.records if result.status is PullStatus.FOUND else ():
                found = json.loads(record.body)
                if (found["write"], found["epoch"]) == (self._write, epoch):
                    return Marker(record.queue_offset, found["attempt"], tuple(found["lists"]), found["ordered"])
            if result.next_offset <= at:
                if time.monotonic() > deadline:
                    raise SinkError(f"{queue} does not show its message at {at}: is its broker's disk damaged?")
                await asyncio.sleep(_SOON)  # a broker shows a message a moment after it acknowledged it
            at = max(at, result.next_offset)
        return None

    async def is_finished(self, marker: Marker) -> bool:
        """Whether all that a marker names is committed; False where that is not known."""
        return await self._last(await self._queue()) == marker.offset

    async def _last(self, queue: MessageQueue) -> int | None:
        return await self._ask(queue, lambda queue: self._consumer.query_offset(queue, group=self._group))

    async def _ask(self, queue: MessageQueue, ask: Callable[[MessageQueue], Awaitable[T]]) -> T:
        return await retry(self._consumer, queue.topic, lambda: ask(queue), within=self._patience)

    async def _pull(self, queue: MessageQueue, offset: int, count: int, tags: str) -> PullResult:
        return await self._ask(queue, lambda queue: self._consumer.pull(queue, offset, count, expression=tags))

    async def decide(
        self, writer: MessageWriter, epoch: int, attempt: str, lists: list[int], *, ordered: bool
    ) -> Marker:
        """Write a marker; the one that counts then, which may be an earlier one. Raises SinkError and ClientError."""
        queue = await self._queue()
        body = {"write": self._write, "epoch": epoch, "attempt": attempt, "lists": lists, "ordered": ordered}
        text = f"WAIT\x01true\x02{names.TAGS}\x01{MARKER}\x02{names.KEYS}\x01{self._write}"
        written = await writer.send_marker(queue, text, json.dumps(body).encode())
        marker = await self.find(epoch, through=written)
        if marker is None:
            raise SinkError(f"The marker of epoch {epoch} at offset {written} of {queue} cannot be found again.")
        return marker

    async def write_list(self, writer: MessageWriter, half_messages: list[HalfMessage]) -> list[int]:
        """Store the half messages of a task; the offsets of the lists."""
        queue = await self._queue()
        text = f"WAIT\x01true\x02{names.TAGS}\x01{LIST}\x02{names.KEYS}\x01{self._write}"
        parts = [
            half_messages[at : at + HALF_MESSAGES_A_LIST] for at in range(0, len(half_messages), HALF_MESSAGES_A_LIST)
        ]
        return [await writer.send_marker(queue, text, pack(part)) for part in parts]

    async def read_list(self, offset: int) -> list[HalfMessage]:
        """The half messages of one list. Raises SinkError when it is not there any more."""
        queue = await self._queue()
        deadline = time.monotonic() + self._options.retry_timeout_ms / 1000
        while True:
            result = await self._pull(queue, offset, 1, "*")
            if result.status is PullStatus.FOUND:
                record = result.records[0]
                if record.queue_offset == offset and record.tags == LIST:
                    return unpack(decompress(record.body, record.sys_flag))
            if result.min_offset > offset or time.monotonic() > deadline:
                raise SinkError(
                    f"The list of half messages at {offset} of {queue} is not there: the queue reaches from "
                    f"{result.min_offset} to {result.max_offset}. Retention must keep markers as long as messages."
                )
            await asyncio.sleep(_SOON)

    async def remember(self, marker: Marker) -> None:
        """All that this marker names is committed: later readings begin here. That this fails costs only time."""
        queue = await self._queue()
        try:
            await self._consumer.update_offset(queue, marker.offset, group=self._group)
        except ClientError:
            return
