"""What a slave knows of deliveries, so that as a master it delivers each waiting message once.

Owns the note ``eruca.delays`` while this broker follows. Messages with a delay of their own are settled by their copies
as these come. The levels are as the master says, but what it says counts only once the log here goes as far as the
master's did then: else a message would count as delivered whose copy never came. Must not deliver anything. Invariant:
what the note calls delivered is in this log, on the disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from eruca.broker.services.delay_recovery import delivered, settle_by_origin
from eruca.broker.state.delay_mark import DelayMark, Mark
from eruca.broker.state.delay_offsets import DelayOffsets
from eruca.broker.state.settled import Settled
from eruca.broker.store import Store
from eruca.broker.store.results import Durability
from eruca.protocol import properties_text
from eruca.protocol.names import TIMER_TOPIC


class Told(NamedTuple):
    """What a master said of its levels."""

    position: int
    """Up to where the log was copied before the master was asked: all that was delivered there, ``levels`` counts."""
    levels: Mapping[int, int]
    master_end: int
    """Where the master's log ended after it was asked: all that ``levels`` counts is before."""


class CopiedDelays:
    """The deliveries in a slave's log."""

    def __init__(self, store: Store, offsets: DelayOffsets, mark: DelayMark, levels: int) -> None:
        self._store = store
        self._offsets = offsets
        self._mark = mark
        self._levels = levels
        self._settled = Settled()
        self._origins: list[bytes] = []
        """What the copies name that came since the last look."""
        self._waiting: Told | None = None

    @property
    def position(self) -> int:
        """Up to where the log's records were copied whole."""
        return self._store.replicator.whole_offset

    def begin(self) -> None:
        """Find out what was delivered so far; after the store was opened. Raises OSError."""
        mark = self._mark.current
        if mark is None or not self._store.replicator.begin_offset <= mark.position <= self.position:
            self._mark.forget()
        found = delivered(self._store, self._mark.current, self._offsets.table, self._levels)
        self._offsets.table = found.levels
        self._settled = found.settled
        self._store.replicator.on_record = self._copied

    def _copied(self, properties: bytes) -> None:
        if b"TIMER_ORIGIN\x01" in properties:
            self._origins.append(properties_text.get(properties, "TIMER_ORIGIN"))

    async def heard(self, told: Told) -> None:
        """The master was asked: note the newest of what it said that counts by now. Raises OSError."""
        end = self.position
        reached = next((each for each in (told, self._waiting) if each is not None and each.master_end <= end), None)
        if reached is told:
            self._waiting = None
        elif reached is self._waiting:
            self._waiting = told
        if reached is not None:
            await self._note(reached)

    async def _note(self, told: Told) -> None:
        waiter = self._store.on_disk(told.master_end)
        if waiter is not None and await waiter is not Durability.DURABLE:
            return
        self._settle()
        self._offsets.stage(told.levels)
        self._mark.stage(Mark(told.position, told.levels, *self._settled.contents(), copied=True))
        await self._offsets.saved()
        await self._mark.saved()

    def _settle(self) -> None:
        self._store.drain()
        origins, self._origins = self._origins, []
        for origin in origins:
            settle_by_origin(self._store, origin, self._settled)
        self._settled.add_below(self._store.min_offset(TIMER_TOPIC, 0))
