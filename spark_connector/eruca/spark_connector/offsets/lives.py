"""Whether a queue is still the one that a query has read: a topic may be deleted and made again meanwhile.

An offset does not say so once the new queue is as long as the old one was. Owns the marks that say it: the store time
and the physical offset of a message that was read, which the end of each batch carries. A message that retention has
deleted says nothing. A mark costs two pulls of one message, so it is compared when a query starts, when its queue was
away, and every CHECK_SECONDS, and is then replaced by a newer one. Every coroutine runs on the loop of the clients.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import UTC, datetime

from eruca.client import MessageQueue, PullConsumer, PullStatus
from eruca.client.errors import ClientError
from eruca.spark_connector.offsets import bounds
from eruca.spark_connector.offsets.positions import Mark, Marks, Positions, StreamOffset

CHECK_SECONDS = 30.0
"""Between two comparisons of a mark: in less, a topic is hardly deleted, made again and filled again."""


class Lives:
    """What a running query knows of the lives of its queues; ``monotonic`` gives seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._checked: dict[MessageQueue, float] = {}
        self._silent: dict[MessageQueue, float] = {}
        self._deleted: dict[MessageQueue, int] = {}
        self._gone: frozenset[MessageQueue] = frozenset()
        self._old: set[MessageQueue] = set()
        self._replaced: dict[MessageQueue, tuple[Mark, Mark]] = {}

    def looked(self, gone: frozenset[MessageQueue]) -> None:
        """``gone`` are away now: their marks are compared when they are back."""
        for queue in self._gone - gone:
            self._checked.pop(queue, None)
            self._silent.pop(queue, None)
        self._gone = gone

    async def replaced(self, consumer: PullConsumer, marks: Marks, queues: Collection[MessageQueue]) -> Marks:
        """What is at the offsets of those marks whose message is another one now; only ``queues`` are asked."""
        now = self._monotonic()
        due = {
            queue: mark.offset
            for queue, mark in marks.items()
            if queue in queues and now - self._checked.get(queue, -math.inf) >= CHECK_SECONDS
        }
        for queue, there in (await self._ask(consumer, due)).items():
            self._checked[queue] = now
            self._old.add(queue)
            if there is not None and there != marks[queue]:
                self._replaced[queue] = marks[queue], there
        return {
            queue: there
            for queue, (mark, there) in self._replaced.items()
            if queue in queues and marks.get(queue) == mark
        }

    async def mark(self, consumer: PullConsumer, since: StreamOffset | None, end: StreamOffset) -> StreamOffset:
        """The end of a batch with its marks: those of ``since``, and new ones where there are none, or old ones."""
        known = since.marks if since is not None else {}
        kept = {queue: mark for queue, mark in known.items() if queue in end.queues and queue not in end.began}
        wanted = {
            queue: offset - 1
            for queue, offset in end.queues.items()
            if offset
            and queue not in self._gone
            and (queue not in kept or queue in self._old)
            and self._deleted.get(queue) != offset
        }
        found = await self._ask(consumer, wanted)
        # Asked for after the new ones: as long as the old ones are there, both are of one life.
        old = await self._ask(consumer, {queue: kept[queue].offset for queue in found if queue in kept})
        for queue, there in found.items():
            if there is None:
                self._deleted[queue] = end.queues[queue]
            elif queue not in kept or (queue in old and old[queue] in (kept[queue], None)):
                kept[queue] = there
                self._old.discard(queue)
                self._checked[queue] = self._monotonic()
            else:
                self._checked.pop(queue, None)
        return replace(end, marks=kept)

    async def _ask(self, consumer: PullConsumer, places: Positions) -> dict[MessageQueue, Mark | None]:
        """The messages at these offsets, None where there is none; not of queues whose broker was just silent."""
        now = self._monotonic()
        asked = [each for each in places if now - self._silent.get(each, -math.inf) >= CHECK_SECONDS]
        answers = await asyncio.gather(
            *(_mark_at(consumer, queue, places[queue]) for queue in asked), return_exceptions=True
        )
        found: dict[MessageQueue, Mark | None] = {}
        for queue, answer in zip(asked, answers, strict=True):
            if not isinstance(answer, BaseException):
                found[queue] = answer
            elif isinstance(answer, ClientError):  # the task that reads says what is wrong
                self._silent[queue] = self._monotonic()
            else:
                raise answer
        return found


async def begin_after(consumer: PullConsumer, marks: Marks, queue: MessageQueue) -> int:
    """Where a queue begins for a query that has read it before it was made again, or has lost its end.

    The first message stored then or later, if the query has a mark: all of a new queue, and of one that has only lost
    its end what came after that.
    """
    mark = marks.get(queue)
    if mark is None:
        return await bounds.min_offset(consumer, queue)
    first = await bounds.offset_from(consumer, queue, mark.stored)
    return await bounds.max_offset(consumer, queue) if first is None else first


def sentence(queue: MessageQueue, read: int, mark: Mark, there: Mark) -> str:
    """What a query has read of a queue, and what is there."""
    return (
        f"The query has read {queue} up to {read}, but the message at {mark.offset} is another one now, stored at "
        f"{_time(there.stored)} and not at {_time(mark.stored)}: the topic was deleted and "
        "created again, or its broker lost data."
    )


def _time(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError):  # after the year 9999: a clock that was wrong
        return f"{ms} ms since 1970"


async def _mark_at(consumer: PullConsumer, queue: MessageQueue, offset: int) -> Mark | None:
    result = await bounds.pull_one(consumer, queue, offset)
    if result.status is not PullStatus.FOUND or not result.records or result.records[0].queue_offset != offset:
        return None
    record = result.records[0]
    return Mark(offset, record.store_timestamp, record.physical_offset)
