"""The delivery progress of a slave: once it is a master, it delivers each waiting message exactly once.

Owns the mark ``eruca.delays`` while this broker is a slave. Messages with a delay of their own are settled when their
copies arrive in the log. The offsets of the levels come from the master. They count only when the log here has reached
the master's end at the time of the answer: else a message would count as delivered although its copy never arrived.
Must not deliver anything. Invariant: whatever the mark counts as delivered is in this log, on the disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from eruca.broker.services.delay_recovery import delivered, settle_by_origin
from eruca.broker.state.delay_mark import DelayMark, Deliveries
from eruca.broker.state.delay_offsets import DelayOffsets
from eruca.broker.state.settled import Settled
from eruca.broker.store import Store
from eruca.broker.store.results import Durability
from eruca.protocol import properties_text
from eruca.protocol.names import TIMER_TOPIC


class MasterLevels(NamedTuple):
    """The offsets of a master's levels at one time."""

    position: int
    """The end of the copied log before the request: ``levels`` counts every delivery below it."""
    levels: Mapping[int, int]
    master_end: int
    """The end of the master's log after the request: every delivery in ``levels`` is below it."""


class CopiedDelays:
    """The deliveries that a slave's log contains."""

    def __init__(self, store: Store, offsets: DelayOffsets, mark: DelayMark, levels: int) -> None:
        self._store = store
        self._offsets = offsets
        self._mark = mark
        self._levels = levels
        self._settled = Settled()
        self._origins: list[bytes] = []
        """The origins named by the copies that arrived since the last mark."""
        self._waiting: MasterLevels | None = None

    @property
    def position(self) -> int:
        """The end of the last whole record that was copied."""
        return self._store.replicator.whole_offset

    def begin(self) -> None:
        """Recover what was delivered so far. Call it after the store was opened. Raises OSError."""
        mark = self._mark.current
        if mark is None or not self._store.replicator.begin_offset <= mark.position <= self.position:
            self._mark.forget()
        found = delivered(self._store, self._mark.current, self._offsets.table, self._levels)
        self._offsets.table = found.levels
        self._settled = found.settled
        self._store.replicator.on_record = self._copied

    def end(self) -> None:
        """Note no copies any more: this broker delivers from now on."""
        self._store.replicator.on_record = None
        self._origins.clear()
        self._waiting = None

    def _copied(self, properties: bytes) -> None:
        if b"TIMER_ORIGIN\x01" in properties:
            self._origins.append(properties_text.get(properties, "TIMER_ORIGIN"))

    async def update(self, answer: MasterLevels) -> None:
        """Take an answer of the master, and mark the newest answer that this log has reached. Raises OSError."""
        end = self.position
        reached = next((each for each in (answer, self._waiting) if each is not None and each.master_end <= end), None)
        if reached is answer:
            self._waiting = None
        elif reached is self._waiting:
            self._waiting = answer
        if reached is not None:
            await self._note(reached)

    async def _note(self, answer: MasterLevels) -> None:
        waiter = self._store.on_disk(answer.master_end)
        if waiter is not None and await waiter is not Durability.DURABLE:
            return
        self._settle()
        self._offsets.stage(answer.levels)
        self._mark.stage(Deliveries(answer.position, answer.levels, *self._settled.contents(), copied=True))
        await self._offsets.saved()
        await self._mark.saved()

    def _settle(self) -> None:
        self._store.drain()
        origins, self._origins = self._origins, []
        for origin in origins:
            settle_by_origin(self._store, origin, self._settled)
        self._settled.add_below(self._store.min_offset(TIMER_TOPIC, 0))
