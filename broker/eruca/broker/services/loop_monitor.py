"""How long the event loop does not come round: the time that requests wait.

Owns one timer and the time it last ran. In a process with one event loop this is the queue that Apache's
BrokerFastFailure watches: what was read in a round waits for what is handled before it. One long round is a hiccup of
the machine, and refusing what it delayed would only make it worse; several in succession are more work than can be
done.
"""

from __future__ import annotations

import asyncio
from time import monotonic

EVERY = 0.05
"""Seconds between two beats."""


class LoopMonitor:
    """Beats while the loop runs."""

    def __init__(self) -> None:
        self.last = monotonic()
        self.overdue = self.last + 2 * EVERY
        """The ``monotonic`` time from which the next beat is late."""
        self.former = 0.0
        """Seconds that the round before this one took beyond its time."""
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
        now = monotonic()
        self.former = now - self.last - EVERY
        self.last = now
        self.overdue = now + 2 * EVERY
        self._timer = asyncio.get_running_loop().call_later(EVERY, self._beat)

    @property
    def waited(self) -> int:
        """How long in ms requests wait at present: in this round and in the one before, the lesser of both."""
        return max(0, int(min(monotonic() - self.last - EVERY, self.former) * 1000))
