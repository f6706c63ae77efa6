"""Messages that come later: which wait, and the loop that delivers them when they are due.

Owns the loop, and when the positions are saved. What waits where is in ``postponing``, what is delivered in ``levels``.
Runs on masters only. Invariant: positions reach the disk only after the log up to where they were taken, so that no
power failure can make a message look delivered that is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from eruca.broker.services.intake import Destination
from eruca.broker.services.levels import Levels
from eruca.broker.services.postponing import at_level
from eruca.broker.services.redelivery import Redelivery
from eruca.broker.state.delay_offsets import DelayOffsets
from eruca.broker.state.statistics import Statistics
from eruca.broker.store import Store

LOOK_EVERY = 20
"""Milliseconds between two looks for messages, at most."""
FLUSH_LOOK = 0.1
"""Seconds between two looks whether the log is on disk as far as positions that shall be saved."""
AFTER_A_FAULT = 1.0
"""Seconds until delivery goes on after an error that nobody expected."""

log = structlog.get_logger("eruca.broker")


class Delays:
    """All waiting messages; ``delays`` are those of the levels in ms, ``clock`` gives ms."""

    def __init__(
        self,
        store: Store,
        statistics: Statistics,
        offsets: DelayOffsets,
        delays: tuple[int, ...],
        clock: Callable[[], int],
    ) -> None:
        self.offsets = offsets
        self.levels = Levels(store, offsets, Redelivery(store, statistics), delays)
        self._store = store
        self._clock = clock

    def postponed(self, values: dict[str, str], to: Destination, level: int, now: int) -> Destination | None:
        """Where a message with these properties waits, None for one that does not; ``values`` gets what is stored."""
        if level > 0 and self.levels.delays:
            return at_level(values, to, level, len(self.levels.delays))
        return None

    # ------------------------------------------------------------------ in time

    def start(self) -> None:
        """To be called when the store was opened."""
        self.levels.settle()

    def deliver(self, now: int) -> int:
        """Deliver what is due at ``now``, in one turn; returns when to go on (ms)."""
        return self.levels.deliver(now)

    async def run(self) -> None:
        """Deliver, for ever."""
        while True:
            now = self._clock()
            try:
                again = self.deliver(now)
            except Exception:
                log.exception("delays_failed")
                await asyncio.sleep(AFTER_A_FAULT)
            else:
                await asyncio.sleep(min(max(again - now, 0), LOOK_EVERY) / 1000)

    # ------------------------------------------------------------------ keeping

    async def saved(self) -> None:
        """Bring the positions of this moment to the disk, after the log. Raises OSError."""
        table = dict(self.offsets.table)
        waiter = self._store.on_disk(self._store.figures().max_offset)
        if waiter is None or await waiter:
            self.offsets.keep(table)
            await self.offsets.saved()

    def save(self) -> None:
        """Bring the log and then the positions to the disk now; the log's disk failing, they stay as they were.

        Raises OSError.
        """
        try:
            self._store.flush()
        except OSError as error:
            log.error("delay_offsets_not_saved", reason=f"the log cannot be flushed: {error.strerror}")
            return
        self.offsets.keep(self.offsets.table)
        self.offsets.save()
