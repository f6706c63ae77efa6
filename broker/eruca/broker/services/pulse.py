"""How long the event loop has not come round: the time that requests of the present round have waited.

Owns one timer and the time it last ran. In a process with one event loop this is the queue that Apache's
BrokerFastFailure watches: what was read in this round waits for what is handled before it.
"""

from __future__ import annotations

import asyncio
from time import monotonic

EVERY = 0.05
"""Seconds between two beats."""


class Pulse:
    """Beats while the loop runs."""

    def __init__(self) -> None:
        self.last = monotonic()
        self.overdue = self.last + 2 * EVERY
        """The ``monotonic`` time from which the next beat is late."""
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to beat."""
        self._beat()

    def stop(self) -> None:
        """Beat no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _beat(self) -> None:
        self.last = monotonic()
        self.overdue = self.last + 2 * EVERY
        self._timer = asyncio.get_running_loop().call_later(EVERY, self._beat)

    @property
    def waited(self) -> int:
        """How long in ms a request that is handled now may have waited, the time between two beats not counted."""
        return max(0, int((monotonic() - self.last - EVERY) * 1000))
