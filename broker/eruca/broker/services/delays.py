"""Messages that come later: which wait, and the loop that delivers them when they are due.

Owns the loop, and when the positions are saved (ScheduleMessageService in 4.9.7). ``delay_routing`` decides where a
message waits, ``delay_levels`` and ``timers`` what is delivered. Runs on masters only. Invariant: positions reach the
disk only after the log up to where they were taken, so no power failure makes an undelivered message look delivered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import structlog

from eruca.broker.services.admission import Destination
from eruca.broker.services.copied_delays import CopiedDelays
from eruca.broker.services.delay_levels import DelayLevels
from eruca.broker.services.delay_recovery import delivered
from eruca.broker.services.delay_routing import at_level, until, wished_time
from eruca.broker.services.redelivery import Redelivery
from eruca.broker.services.timers import Timers
from eruca.broker.state.delay_mark import DelayMark, Mark
from eruca.broker.state.delay_offsets import DelayOffsets
from eruca.broker.state.statistics import Statistics
from eruca.broker.store import Store
from eruca.broker.store.results import Durability
from eruca.protocol.names import TIMER_TOPIC

LOOK_EVERY = 20
"""Milliseconds between two looks for messages, at most."""
AFTER_A_FAULT = 1.0
"""Seconds until delivery goes on after an error that nobody expected."""

log = structlog.get_logger("eruca.broker")


class Rules(NamedTuple):
    """What the broker's configuration and clock say; all times in ms."""

    clock: Callable[[], int]
    longest: Callable[[], int]
    """The longest delay that a message may have of its own."""
    keep_for: Callable[[], int]
    """How long a waiting message may lie in the same part of the log."""
    make_topic: Callable[[str], object]
    """Makes a topic with one queue where it is not there."""


class Positions(NamedTuple):
    """What was delivered at one time, and the commit log offsets from which on waiting messages are needed.

    The first is that of the messages with a delay of their own, the second that of the levels.
    """

    mark: Mark
    needed: tuple[int, int]


class Delays:
    """All waiting messages; ``levels`` are the delays of the levels in ms."""

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
        self._started = False

    def postponed(self, values: dict[str, str], to: Destination, level: int, now: int) -> Destination | None:
        """Where a message with these properties waits, None for one that does not; ``values`` gets what is stored.

        Raises Refused(13) for a delay that cannot be.
        """
        if level > 0 and self.levels.delays:
            return at_level(values, to, level, len(self.levels.delays))
        due = wished_time(values, now, self._rules.longest())
        if due is None or due <= now:
            return None
        self._rules.make_topic(TIMER_TOPIC)
        return until(values, to, due)

    # ------------------------------------------------------------------ in time

    def load(self) -> None:
        """Read what was kept. Raises StateUnreadable or OSError."""
        self.offsets.load()
        self._mark.load()

    def start(self) -> None:
        """Find out where to go on, and keep that, later when the disk has no room now; after the store was opened."""
        found = delivered(self._store, self._mark.current, self.offsets.table, len(self.levels.delays))
        self.offsets.table = found.levels
        self.levels.settle()
        self.timers.begin(found.settled)
        self._store.hold(self._kept_from)
        self._started = True
        try:
            self.save()
        except OSError as error:  # a full disk must not keep anybody from reading
            log.error("delay_offsets_not_saved", reason=str(error))

    def stand_by(self) -> None:
        """Deliver nothing, as a slave, but keep track of what the master delivers. Raises OSError."""
        self.copied.begin()

    def deliver(self, now: int) -> int:
        """Deliver what is due at ``now``, in one turn; returns when to go on (ms)."""
        return min(self.levels.deliver(now), self.timers.deliver(now))

    async def run(self) -> None:
        """Deliver, for ever."""
        while True:
            now = self._rules.clock()
            try:
                again = self.deliver(now)
            except Exception:
                log.exception("delays_failed")
                await asyncio.sleep(AFTER_A_FAULT)
            else:
                await asyncio.sleep(min(max(again - now, 0), LOOK_EVERY) / 1000)

    def figures(self) -> dict[str, str]:
        """How far delivery is, as the runtime information names it."""
        return {**self.levels.figures(), **self.timers.figures()}

    # ------------------------------------------------------------------ keeping

    def _kept_from(self, crowded: bool) -> int:
        """From which commit log offset on waiting messages are needed, now or by what is on disk.

        For a crowded disk those of levels go, as in RocketMQ; those with a delay of their own move.
        """
        needed = (self._needed, self._held())
        return min(min(each[: 1 if crowded else 2]) for each in needed)

    def _positions(self) -> Positions:
        position = self._store.figures().max_offset
        mark = Mark(position, dict(self.offsets.table), *self.timers.settled.contents())
        return Positions(mark, self._held())

    def _held(self) -> tuple[int, int]:
        return self.timers.held(), self.levels.held()

    def _keep(self, positions: Positions) -> None:
        self.offsets.stage(positions.mark.levels)
        self._mark.stage(positions.mark)

    async def saved(self) -> None:
        """Save the present positions, after the log is on the disk. Raises OSError."""
        positions = self._positions()
        waiter = self._store.on_disk(positions.mark.position)
        if waiter is None or await waiter is Durability.DURABLE:
            self._keep(positions)
            await self.offsets.saved()
            await self._mark.saved()
            self._needed = positions.needed

    def save(self) -> None:
        """Bring the log and then the positions to the disk now; the log's disk failing, they stay as they were.

        Nothing is written by a broker that has not started to deliver. Raises OSError.
        """
        if not self._started:
            return
        try:
            self._store.flush()
        except OSError as error:
            log.error("delay_offsets_not_saved", reason=f"the log cannot be flushed: {error.strerror}")
            return
        positions = self._positions()
        self._keep(positions)
        self.offsets.save()
        self._mark.save()
        self._needed = positions.needed
