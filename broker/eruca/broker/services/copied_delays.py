"""The delivery progress of a slave: once it is a master, it delivers each waiting message exactly once.

Owns the mark ``eruca.delays`` while this broker is a slave. Messages with a delay of their own are settled when their
copies arrive in the log. The offsets of the levels come from the master. They count only when the log here has reached
the master's end at the time of the answer, with that master's bytes: else a message would count as delivered although
its copy never arrived. Must not deliver anything. Invariant: whatever the mark counts as delivered is in this log, on
the disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from eruca.broker.services.delay_recovery import delivered, is_of_level, is_of_timers, settle_by_origin
from eruca.broker.services.redelivery import record_at
from eruca.broker.state.delay_mark import DelayMark, Deliveries
from eruca.broker.state.delay_offsets import DelayOffsets
from eruca.broker.state.settled import Settled
from eruca.broker.store import Store
from eruca.broker.store.results import Durability
from eruca.protocol import properties_text
from eruca.protocol.names import TIMER_TOPIC
from eruca.protocol.record import Record


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
        self._copies: list[int] = []
        """The commit log offsets of all copies that arrived since the last mark."""
        self._begun_at: int | None = None
        """Where this log ended when this broker began to follow; None while it does not."""
        self._waiting: MasterLevels | None = None
        self.left = 0
        """How often a master was left: what one has said before counts no more."""

    @property
    def position(self) -> int:
        """The end of the last whole record that was copied."""
        return self._store.replicator.whole_offset

    @property
    def begun(self) -> bool:
        """Whether this broker tracks what its master delivers."""
        return self._begun_at is not None

    def begin(self) -> None:
        """Recover what was delivered so far. Call it after the store was opened. Raises OSError.

        What the log shows is marked in memory, so that a promotion does not read it again: it writes its own mark when
        the log is on the disk.
        """
        mark = self._mark.current
        if mark is None or not self._store.replicator.begin_offset <= mark.position <= self.position:
            self._mark.forget()
        self._offsets.settle_back()
        found = delivered(self._store, self._mark.current, self._offsets.table, self._levels, self._store.records_since)
        self._offsets.found(found.levels)
        self._settled = found.settled
        self._begun_at = self.position
        self._mark.stage(Deliveries(self._begun_at, found.levels, *found.settled.contents(), copied=True))
        self._store.replicator.on_record = self._copied

    def end(self) -> None:
        """Note no copies any more: this broker delivers from now on."""
        self._store.replicator.on_record = self._begun_at = self._waiting = None
        self._origins.clear()
        self._copies.clear()

    def leave(self) -> None:
        """The master is followed no more: the log may go on otherwise than its own, and what it has said is forgotten
        where the log has not come so far."""
        self._waiting = None
        self.left += 1

    def records_since(self, position: int) -> Iterator[Record]:
        """The records from ``position`` on that may be deliveries: of the log that this broker has copied since it
        follows it knows them, the rest is read."""
        begun = self._begun_at
        for record in self._store.records_since(position) if begun is None or position < begun else ():
            if begun is not None and record.physical_offset >= begun:
                break
            yield record
        found = (record_at(self._store, offset) for offset in self._copies if offset >= position)
        yield from (record for record in found if record is not None)

    def _copied(self, record: Record) -> None:
        of_timers = is_of_timers(record)
        if of_timers:
            self._origins.append(properties_text.get(record.properties_text, "TIMER_ORIGIN"))
        if of_timers or is_of_level(record):
            self._copies.append(record.physical_offset)

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
        self._copies = [offset for offset in self._copies if offset >= answer.position]
        await self._offsets.saved()
        await self._mark.saved()

    def _settle(self) -> None:
        self._store.drain()
        origins, self._origins = self._origins, []
        for origin in origins:
            settle_by_origin(self._store, origin, self._settled)
        self._settled.add_below(self._store.min_offset(TIMER_TOPIC, 0))
