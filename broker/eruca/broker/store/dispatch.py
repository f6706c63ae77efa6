"""Dispatch: builds consume queue units and index entries from the log (ReputMessageService in RocketMQ).

Owns the pending requests and the rules for tag codes. Knows the queue table and the index, no sockets. Invariant:
requests are dispatched in the order of the log; after ``drain`` every record before ``position`` is in its queue (in
memory at least) and in the index, or waits for the index while the disk has no room, which is logged once.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Final

import structlog

from eruca.broker.store import native
from eruca.broker.store.consume_queue import UNIT_FORM, ConsumeQueue, tag_code
from eruca.broker.store.index import Index
from eruca.broker.store.layout import Request
from eruca.broker.store.queue_table import QueueTable
from eruca.protocol.message import TRANSACTION_PREPARED
from eruca.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC
from eruca.protocol.properties_text import get
from eruca.protocol.record import MIN_RECORD_SIZE
from eruca.remoting.descriptors import reason

Arrival = Callable[[str, int, int, list[int]], None]
"""Called once per queue and round with topic, queue id, new max offset and the tag codes that came."""

log = structlog.get_logger("eruca.broker.store")

_TIMED: Final = (SCHEDULE_TOPIC, TIMER_TOPIC)
"""Topics whose tag codes are times."""
_MOST_FILLED: Final = 100_000
"""Units that are filled in any case: a queue may count on from a log that was removed."""


def _begin(request: Request) -> int:
    """Where its record begins."""
    return request[1]


def _end(request: Request) -> int:
    """Where its record ends."""
    return request[1] + request[2]


class Dispatch:
    """The follower of the log."""

    def __init__(self, queues: QueueTable, index: Index | None, delay_levels: tuple[int, ...]) -> None:
        self.pending: list[Request] = []
        self.position = 0
        """End of the last dispatched record."""
        self.newest = 0
        """Store time up to which all was dispatched; 0 where nothing was."""
        self.on_arrival: Arrival | None = None
        self.lost_units: list[tuple[str, int, int]] = []
        """Units that were filled because the record is missing: topic, queue, queue offset."""
        self.log_begins_later = False
        """Whether the oldest part of the log has been deleted."""
        self._queues = queues
        self._index = index
        self._delay_levels = delay_levels
        self._unindexed: list[Request] = []
        """What waits for the index, which cannot be written at present (a full disk)."""
        self._gone: set[ConsumeQueue] = set()
        """Queues that were deleted while messages of theirs were pending."""

    def unit_code(self, topic: str, properties: bytes, store_time: int) -> int:
        """What a unit stores of a record: the hash code of its tag; of a delayed message the time it is due."""
        if topic == SCHEDULE_TOPIC:
            level = get(properties, "DELAY")
            if level.isdigit() and int(level) > 0:
                number = min(int(level), len(self._delay_levels))
                return store_time + (self._delay_levels[number - 1] if number else 1000)
        elif topic == TIMER_TOPIC:
            due = get(properties, "TIMER_OUT_MS")
            if due.isdigit() and len(due) < 16:
                return int(due)
        return tag_code(get(properties, "TAGS"))

    def drain(self, limit: int | None = None) -> int:
        """Dispatch what waits, with a ``limit`` only records that end at or before it.

        Returns the number of records. Raises OSError, if a unit that does not follow the queue's last one cannot be
        written: its record and those behind it wait on.
        """
        pending = self.pending
        if not pending:
            return 0
        if limit is None:
            work = pending[:]
            pending.clear()
        else:
            count = bisect_right(pending, limit, key=_end)
            if not count:
                return 0
            work = pending[:count]
            del pending[:count]
        units = [request for request in work if request[0] not in self._gone] if self._gone else work
        done, fault = self._queue_up(units)
        if fault is not None:
            left = bisect_left(work, units[done][1], key=_begin)
            pending[:0] = work[left:]
            del work[left:]
        self._dispatched(work)
        if fault is not None:
            raise fault
        return len(work)

    def _dispatched(self, work: list[Request]) -> None:
        """These are in their queues: index them, and go on behind them."""
        if not work:
            return
        if self._index is not None:
            self._index_all(work, self._index)
        self.position = work[-1][1] + work[-1][2]
        self.newest = max(self.newest, work[-1][5])
        if not self.pending:
            self._gone.clear()

    def forget(self, queue: ConsumeQueue) -> None:
        """A queue was deleted: what is pending for it comes into no queue any more."""
        if self.pending:
            self._gone.add(queue)

    def count_on(self) -> None:
        """Let the next message of each queue follow the last one of the log, be that dispatched or not."""
        self._queues.count_on()
        for queue, _, _, _, queue_offset, _, sys_flag in self.pending:
            if not sys_flag & TRANSACTION_PREPARED:
                queue.next_offset = max(queue.next_offset, queue_offset + 1)

    def _queue_up(self, work: list[Request]) -> tuple[int, OSError | None]:
        """How many of the requests are in their queues now, and why not all."""
        touched: set[ConsumeQueue] = set()
        at, fault = native.follow(work, 0, touched, _TIMED), None
        while at < len(work) and fault is None:
            try:
                self._queue_up_one(work[at], touched)
                at = native.follow(work, at + 1, touched, _TIMED)
            except OSError as error:
                fault = error
        self._queues.dirty |= touched
        arrival = self.on_arrival
        for queue in touched:
            if arrival is not None:
                arrival(queue.topic, queue.queue_id, queue.max_offset, queue.arrived)
            queue.arrived = []
            self._queues.force_tail(queue)
        return at, fault

    def _queue_up_one(self, request: Request, touched: set[ConsumeQueue]) -> None:
        """Append the unit of a delayed message, or one that does not follow the queue's last one."""
        queue, position, size, properties, queue_offset, store_time, _ = request
        code = self.unit_code(queue.topic, properties, store_time)
        unit = UNIT_FORM.pack(position, size, code)
        if queue.max_offset == queue_offset or self._close_gap(queue, queue_offset, unit):
            queue.tail += unit
            queue.arrived.append(code)
            touched.add(queue)

    def _close_gap(self, queue: ConsumeQueue, queue_offset: int, unit: bytes) -> bool:
        """Fill the units between a queue's end and a later message; False for one that is there already, or that has a
        damaged offset: it is negative, or higher than any count of messages that the log can have before this one.

        A queue whose older messages were deleted begins at the message; else each lost unit
        repeats the unit of the next message that is left.
        """
        end, position = queue.max_offset, UNIT_FORM.unpack(unit)[0]
        if queue_offset < 0 or queue_offset - end > max(position // MIN_RECORD_SIZE, _MOST_FILLED):
            log.error("queue_offset_damaged", topic=queue.topic, queue_id=queue.queue_id, physical_offset=position)
            return False
        if queue_offset < end:
            if not self._is_made_again(queue, queue_offset, position):
                return False
            self._queues.write_out(queue)
            self._queues.begin_again(queue, queue_offset)
            return True
        if end == 0 and self.log_begins_later:
            self._queues.fill_head(queue, queue_offset)
        else:
            queue.tail += unit * (queue_offset - end)
            queue.lost.update(range(end, queue_offset))
            self.lost_units += [(queue.topic, queue.queue_id, offset) for offset in range(end, queue_offset)]
        return True

    def _is_made_again(self, queue: ConsumeQueue, queue_offset: int, position: int) -> bool:
        """Whether a message belongs to a topic that was deleted and made again: then it holds, and not the earlier ones
        from there on. Where their beginning was deleted, the newest one says whether they are earlier. Where there is
        none at all (they expired, and what came behind them was cut off), the message is in no queue yet."""
        known = self._queues.unit(queue, queue_offset) if queue_offset >= queue.min_offset else None
        known = known or self._queues.last_unit(queue)
        return known is None or known[0] < position

    def _index_all(self, work: list[Request], index: Index) -> None:
        waited = bool(self._unindexed)
        if waited:
            work = self._unindexed + work
            self._unindexed = []
        try:
            index.put(native.keys(work))
        except OSError as fault:
            self._unindexed = work
            if not waited:
                log.error("no_room_in_index", fault=reason(fault), consequence="new messages are not found by key")
        else:
            if waited:
                log.info("room_in_index", messages=len(work))

    @property
    def waiting(self) -> int:
        """Messages that wait for their queue or for the index."""
        return len(self.pending) + len(self._unindexed)

    @property
    def unindexed_from(self) -> int | None:
        """Commit log offset of the first message that waits for the index; None if none does."""
        return self._unindexed[0][1] if self._unindexed else None
