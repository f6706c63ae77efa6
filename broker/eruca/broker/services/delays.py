"""Delayed messages: which ones wait, and the loop that delivers them when due (ScheduleMessageService in 4.9.7).

Owns the loop and when the positions are saved. ``delay_routing`` decides where a message waits, ``delay_levels`` and
``timers`` what is delivered. Runs on masters only. Invariant: positions reach the
disk only after the log up to where they were taken, so no power failure makes an undelivered message look delivered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import structlog

from eruca.broker.services.admission import Destination
from eruca.broker.services.copied_delays import CopiedDelays
from eruca.broker.services.delay_levels import NEVER, DelayLevels
from eruca.broker.services.delay_recovery import delivered
from eruca.broker.services.delay_routing import at_level, until, wished_time
from eruca.broker.services.redelivery import Redelivery
from eruca.broker.services.timers import Timers
from eruca.broker.state.delay_mark import DelayMark, Deliveries
from eruca.broker.state.delay_offsets import DelayOffsets
from eruca.broker.state.statistics import Statistics
from eruca.broker.store import Store
from eruca.broker.store.results import Durability
from eruca.protocol.names import TIMER_TOPIC
from eruca.remoting.log_repeats import Repeats

LOOK_EVERY = 20
"""Milliseconds between two checks for due messages, at most."""
AFTER_A_FAULT = 1.0
"""Seconds until delivery continues after an unexpected error."""

log = structlog.get_logger("eruca.broker")


class Rules(NamedTuple):
    """The settings of delayed messages as functions, since they may change at run time. All times are in ms."""

    clock: Callable[[], int]
    monotonic: Callable[[], int]
    longest: Callable[[], int]
    """The longest allowed delay of a message's own."""
    keep_for: Callable[[], int]
    """How long a waiting message may stay in one part of the log."""
    make_topic: Callable[[str], object]
    """Creates a topic with one queue if it does not exist."""


class Positions(NamedTuple):
    """What was delivered at one time, and the lowest commit log offsets that waiting messages need.

    The first offset is that of the timers, the second that of the levels.
    """

    mark: Deliveries
    needed: tuple[int, int]


class Delays:
    """All delayed messages; ``levels`` are the delays of the levels in ms."""

    def __init__(
        self,
        store: Store,
        statistics: Statistics,
        offsets: DelayOffsets,
        mark: DelayMark,
        levels: tuple[int, ...],
        rules: Rules,
    ) -> None:
        self.offsets = offsets
        redelivery = Redelivery(store, statistics)
        self.levels = DelayLevels(store, offsets, redelivery, levels)
        self.timers = Timers(store, redelivery, rules.keep_for)
        self.copied = CopiedDelays(store, offsets, mark, len(levels))
        self._mark = mark
        self._store = store
        self._rules = rules
        self._needed = (0, 0)
        self._repeats = Repeats()
        self._started = False

    def route(self, values: dict[str, str], to: Destination, level: int, now: int) -> Destination | None:
        """The queue in which a message with these properties waits; None if it is not delayed.

        Writes the stored properties into ``values``. Raises Refused(13) for a delay that is not allowed.
        """
        if level > 0 and self.levels.delays:
            return at_level(values, to, level, len(self.levels.delays))
        due = wished_time(values, now, self._rules.longest())
        if due is None or due <= now:
            return None
        self._rules.make_topic(TIMER_TOPIC)
        return until(values, to, due)

    # ------------------------------------------------------------------ delivery

    def load(self) -> None:
        """Read the state files. Raises StateUnreadable or OSError."""
        self.offsets.load()
        self._mark.load()
        mark = self._mark.current
        if self.offsets.lacks_change and mark is not None:
            self.offsets.reach(mark.levels)

    def start(self) -> None:
        """Recover the positions and save them. Call it after the store was opened.

        If the disk is full, the positions are saved later."""
        self.offsets.settle_back()
        mark, records = self._mark.current, self.copied.records_since
        found = delivered(self._store, mark, self.offsets.table, len(self.levels.delays), records)
        self.copied.end()
        self.offsets.table = found.levels
        self.levels.settle()
        self.timers.begin(found.settled)
        self._store.hold(self._needed_from)
        self._started = True
        try:
            self.save()
        except OSError as error:  # a full disk must not prevent reads
            log.error("delay_offsets_not_saved", reason=str(error))

    def stand_by(self) -> None:
        """Track what the master delivers, and deliver nothing, as a slave. Raises OSError."""
        self.rest()
        self.copied.begin()

    def rest(self) -> None:
        """Deliver nothing, and leave the disk alone, which hangs. ``stand_by`` comes before the next record."""
        self._started = False
        self._store.hold(lambda crowded: NEVER)

    def deliver(self, now: int, passed: int) -> int:
        """Deliver what is due at ``now`` in one turn; returns when to continue (ms).

        ``passed`` is the same moment by the monotonic clock.
        """
        return min(self.levels.deliver(now, passed), self.timers.deliver(now))

    async def run(self) -> None:
        """Deliver until cancelled."""
        while True:
            now = self._rules.clock()
            try:
                again = self.deliver(now, self._rules.monotonic())
            except Exception:
                log.exception("delay_delivery_failed")
                await asyncio.sleep(AFTER_A_FAULT)
            else:
                await asyncio.sleep(min(max(again - now, 0), LOOK_EVERY) / 1000)

    def figures(self) -> dict[str, str]:
        """The progress of delivery under the names of the runtime information (28)."""
        return {**self.levels.figures(), **self.timers.figures()}

    # ------------------------------------------------------------------ positions

    def _needed_from(self, crowded: bool) -> int:
        """The lowest commit log offset that waiting messages need, now or by the positions on disk.

        On a crowded disk messages of levels are not protected, as in RocketMQ; those of timers move.
        """
        needed = (self._needed, self._held())
        return min(min(each[: 1 if crowded else 2]) for each in needed)

    def _positions(self) -> Positions:
        position = self._store.figures().max_offset
        mark = Deliveries(position, dict(self.offsets.table), *self.timers.settled.contents())
        return Positions(mark, self._held())

    def _held(self) -> tuple[int, int]:
        return self.timers.held(), self.levels.held()

    def _stage(self, positions: Positions) -> None:
        self.offsets.stage(positions.mark.levels)
        self._mark.stage(positions.mark)

    async def saved(self) -> None:
        """Save the present positions, after the log is on the disk. Raises OSError."""
        positions = self._positions()
        waiter = self._store.on_disk(positions.mark.position)
        if waiter is None or await waiter is Durability.DURABLE:
            self._stage(positions)
            await self.offsets.saved()
            await self._mark.saved()
            self._needed = positions.needed

    def save(self) -> None:
        """Flush the log and then save the positions, now. If the log cannot be flushed, the positions are not saved.

        A broker that does not deliver writes what it has staged of its master's. Raises OSError.
        """
        if not self._started:
            self.offsets.save()
            return
        try:
            self._store.flush()
        except OSError as error:
            again = self._repeats.failed("flush")
            if again is not None:
                log.error("delay_offsets_not_saved", reason=f"the log cannot be flushed: {error.strerror}", **again)
            return
        self._repeats.over("flush")
        positions = self._positions()
        self._stage(positions)
        self.offsets.save()
        self._mark.save()
        self._needed = positions.needed
