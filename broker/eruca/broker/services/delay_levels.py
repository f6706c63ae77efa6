"""Delivery by delay level: the queue of a level holds its messages in order of due time (ScheduleMessageService).

Owns what is delivered when; ``state.delay_offsets`` keeps the offset of each level. Must not know the event loop: the
time is an argument. A message is due by its stamp and its level; one whose stamp is ahead of the wall clock, which was
set back, waits for the time of its level from its arrival. Invariant: the messages of a level are delivered in order,
and its offset counts exactly those.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from eruca.broker.services.redelivery import Redelivery, waiting_at
from eruca.broker.state.delay_offsets import DelayOffsets
from eruca.broker.store import Store
from eruca.protocol.names import SCHEDULE_TOPIC

NEVER: Final = 1 << 62
"""A time that never comes."""
AT_ONCE = 32
"""Messages of a level that one turn delivers at most."""
AGAIN_AFTER = 1000
"""Milliseconds until the next try after the store refused a message."""
EXACT_TO = 1000
"""Arrivals are known to this part of the delay of their level."""


class Arrivals:
    """When the messages of a level arrived, by the monotonic clock in ms; of those before ``end`` nobody knows."""

    def __init__(self, end: int) -> None:
        self._first = self._end = end
        self._marks: deque[tuple[int, int]] = deque()
        """The end of the queue after some arrivals, and the time of the first of them."""

    def note(self, offset: int, end: int, passed: int, exact: int) -> None:
        """From ``offset`` on the queue waits, and it ends at ``end`` now; arrivals within ``exact`` ms count as one."""
        while self._marks and self._marks[0][0] <= offset:
            self._marks.popleft()
        if end == self._end:
            return
        if end < self._end:  # its topic was deleted and made again
            self._marks.clear()
            self._first = 0
        self._end = end
        if self._marks and passed - self._marks[-1][1] < exact:
            self._marks[-1] = (end, self._marks[-1][1])
        else:
            self._marks.append((end, passed))

    def of(self, offset: int) -> int | None:
        """When the message at ``offset``, which waits, arrived; None if that is unknown."""
        return next((passed for end, passed in self._marks if offset < end), None) if offset >= self._first else None


class DelayLevels:
    """The queues of all delay levels; ``delays`` are those of level 1, 2, … in ms."""

    def __init__(self, store: Store, offsets: DelayOffsets, redelivery: Redelivery, delays: tuple[int, ...]) -> None:
        self.delays = delays
        self._store = store
        self._offsets = offsets
        self._redelivery = redelivery
        self._arrivals: dict[int, Arrivals] = {}

    def settle(self) -> None:
        """Move each offset into its queue, which may have been cut at either end. The store is open."""
        for level in range(1, len(self.delays) + 1):
            self._settle(level)
            self._arrivals[level] = Arrivals(self._store.max_offset(SCHEDULE_TOPIC, level - 1))

    def _settle(self, level: int) -> tuple[int, int] | None:
        """Offset and end of a level; None where it never had a message."""
        end = self._store.max_offset(SCHEDULE_TOPIC, level - 1)
        known = self._offsets.table.get(level)
        if known is None and not end:
            return None
        offset = min(max(known or 0, self._store.min_offset(SCHEDULE_TOPIC, level - 1)), end)
        self._offsets.table[level] = offset
        return offset, end

    def deliver(self, now: int, passed: int) -> int:
        """Deliver what is due at ``now`` (ms), one turn per level. Returns when to continue, NEVER if nothing waits.

        ``passed`` is the same moment by the monotonic clock.
        """
        return min((self._deliver(level, now, passed) for level in range(1, len(self.delays) + 1)), default=NEVER)

    def _deliver(self, level: int, now: int, passed: int) -> int:
        settled = self._settle(level)
        if settled is None:
            return NEVER
        offset, end = settled
        stop = min(end, offset + AT_ONCE)
        delay, arrivals = self.delays[level - 1], self._arrivals[level]
        arrivals.note(offset, end, passed, delay // EXACT_TO)
        again = NEVER if stop == end else now
        while offset < stop:
            unit = self._store.unit(SCHEDULE_TOPIC, level - 1, offset)
            if unit is not None:
                due = unit[2]
                if due > now + delay:  # the clock was set back since
                    arrived = arrivals.of(offset)
                    due = now if arrived is None else now + arrived + delay - passed
                if due > now:
                    again = due
                    break
                if not self._deliver_one(level, offset, unit[0]):
                    again = now + AGAIN_AFTER
                    break
            offset += 1
        self._offsets.table[level] = offset
        return again

    def _deliver_one(self, level: int, offset: int, physical_offset: int) -> bool:
        waiting = waiting_at(self._store, SCHEDULE_TOPIC, level - 1, offset, physical_offset)
        if waiting is None:
            return True
        record = waiting.record
        return self._redelivery.put(record, waiting.topic, waiting.queue_id, record.properties_text)

    def held(self) -> int:
        """The lowest commit log offset of a waiting message over all levels, NEVER if none waits."""
        units = (self._store.unit(SCHEDULE_TOPIC, level - 1, offset) for level, offset in self._offsets.table.items())
        return min((unit[0] for unit in units if unit is not None), default=NEVER)

    def figures(self) -> dict[str, str]:
        """The offset and the end of each level under the names of the runtime information (28)."""
        return {
            f"scheduleMessageOffset_{level}": f"{offset},{self._store.max_offset(SCHEDULE_TOPIC, level - 1)}"
            for level, offset in sorted(self._offsets.table.items())
        }
