"""Delivery by delay level: the queue of a level holds its messages in order of due time (ScheduleMessageService).

Owns what is delivered when; ``state.delay_offsets`` keeps the offset of each level. Must not know the event loop: the
time is an argument. Invariant: the messages of a level are delivered in order, and its offset counts exactly those.
"""

from __future__ import annotations

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


class DelayLevels:
    """The queues of all delay levels; ``delays`` are those of level 1, 2, … in ms."""

    def __init__(self, store: Store, offsets: DelayOffsets, redelivery: Redelivery, delays: tuple[int, ...]) -> None:
        self.delays = delays
        self._store = store
        self._offsets = offsets
        self._redelivery = redelivery

    def settle(self) -> None:
        """Move each offset into its queue, which may have been cut at either end. The store is open."""
        for level in range(1, len(self.delays) + 1):
            self._settle(level)

    def _settle(self, level: int) -> tuple[int, int] | None:
        """Offset and end of a level; None where it never had a message."""
        end = self._store.max_offset(SCHEDULE_TOPIC, level - 1)
        known = self._offsets.table.get(level)
        if known is None and not end:
            return None
        offset = min(max(known or 0, self._store.min_offset(SCHEDULE_TOPIC, level - 1)), end)
        self._offsets.table[level] = offset
        return offset, end

    def deliver(self, now: int) -> int:
        """Deliver what is due at ``now`` (ms), one turn per level. Returns when to continue, NEVER if nothing waits."""
        return min((self._deliver(level, now) for level in range(1, len(self.delays) + 1)), default=NEVER)

    def _deliver(self, level: int, now: int) -> int:
        settled = self._settle(level)
        if settled is None:
            return NEVER
        offset, end = settled
        stop = min(end, offset + AT_ONCE)
        latest = now + self.delays[level - 1]
        again = NEVER if stop == end else now
        while offset < stop:
            unit = self._store.unit(SCHEDULE_TOPIC, level - 1, offset)
            if unit is not None:
                if now < unit[2] <= latest:  # beyond the whole delay: the clock was set back, so it is due
                    again = unit[2]
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
