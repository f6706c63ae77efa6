"""The latency of the event loop: the time that requests wait before they are handled (BrokerFastFailure in 4.9.7).

Owns one timer and the time of its last tick. A request that was read in one iteration of the loop waits for those that
are handled before it, as requests of Java wait in the queue of a thread pool. One long iteration is a hiccup of the
machine, and refusing the requests that it delayed would not help; two in succession are overload.
"""

from __future__ import annotations

import asyncio
from time import monotonic

from eruca.remoting.histogram import Histogram
from eruca.remoting.log import log

EVERY = 0.05
"""Seconds between two ticks."""
SLOW = 1.0
"""Seconds of delay from which on a tick is a line of the log."""
LATE_BY = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Bounds of the delays of ticks, in seconds."""


class LoopMonitor:
    """Ticks while the loop runs."""

    def __init__(self) -> None:
        self.last = monotonic()
        self.overdue = self.last + 2 * EVERY
        """The ``monotonic`` time after which the next tick is late."""
        self.former = 0.0
        """Seconds by which the previous tick was late."""
        self.late = Histogram(LATE_BY)
        """Seconds by which all ticks were late."""
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start the timer; the time before, in which the store was opened, is no iteration of the loop."""
        self.last = monotonic() - EVERY
        if self._timer is None:
            self._tick()

    def stop(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        now = monotonic()
        self.former = now - self.last - EVERY
        self.last = now
        self.overdue = now + 2 * EVERY
        self.late.add(max(self.former, 0.0))
        if self.former > SLOW:
            log.warning("slow_loop", seconds=round(self.former, 3))
        self._timer = asyncio.get_running_loop().call_later(EVERY, self._tick)

    @property
    def silent(self) -> float:
        """Seconds since the last tick."""
        return monotonic() - self.last

    @property
    def waited(self) -> int:
        """The present wait of requests in ms: the delay of this tick or of the previous one, whichever is less."""
        return max(0, int(min(monotonic() - self.last - EVERY, self.former) * 1000))
