"""The latency of the event loop, and when requests are refused for it (BrokerFastFailure in 4.9.7).

Owns one timer, the time of its last tick, and the rule of refusal. A request that was read in one round of the loop
waits for those that are handled before it, as requests of Java wait in the queue of a thread pool. A long round is a
hiccup of the machine or a burst, which is over as soon as it is handled: refusing would not help. As with CoDel, what
is refused is a wait that stands: every round of an interval was late. One round has a bound, too, in work of this
thread: a process that the machine stops does not work. What reaches that bound is more than a burst: then the wait
stands as well, for what the next round reads has waited in the sockets for all of this one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic, thread_time

from eruca.remoting.histogram import Histogram
from eruca.remoting.log import log

EVERY = 0.05
"""Seconds between two ticks."""
SLOW = 1.0
"""Seconds of delay from which on a tick is a line of the log."""
LATE_BY = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Bounds of the delays of ticks, in seconds."""
INTERVAL = 1.0
"""Seconds for which every tick must be late until requests are refused, or in time until they no longer are."""
MOST_WORK = 2.0
"""The work of one round, as a multiple of the wait that is allowed, above which its further requests are refused."""
WORK_WHILE_LATE = 0.5
"""The same while the wait stands: what is taken then came in the round before, which was about as long."""


class LoopMonitor:
    """Ticks while the loop runs. ``now`` gives the time, ``worked`` what the loop's thread worked; in seconds."""

    def __init__(self, now: Callable[[], float] = monotonic, worked: Callable[[], float] = thread_time) -> None:
        self.now = now
        self._thread = worked
        self.last = now()
        self.overdue = self.last + 2 * EVERY
        """The ``monotonic`` time after which the next tick is late."""
        self.late = Histogram(LATE_BY)
        """Seconds by which all ticks were late."""
        self.watchers: list[Callable[[float, float], None]] = []
        """Called at each tick with its ``monotonic`` time and the seconds by which it was late."""
        self._worked = self._thread()
        """What the thread had worked, in seconds, when this round began."""
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start the timer; the time before, in which the store was opened, is no round of the loop."""
        self.last = self.now() - EVERY
        if self._timer is None:
            self._tick()

    def stop(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        now = self.now()
        self.ticked(now, max(now - self.last - EVERY, 0.0))
        self._timer = asyncio.get_running_loop().call_later(EVERY, self._tick)

    def ticked(self, now: float, late: float) -> None:
        """A round begins at ``now``; the one before was late by ``late`` seconds."""
        self.last = now
        self.overdue = now + 2 * EVERY
        self._worked = self._thread()
        self.late.add(late)
        if late > SLOW:
            log.warning("slow_loop", seconds=round(late, 3))
        for watcher in self.watchers:
            watcher(now, late)

    @property
    def silent(self) -> float:
        """Seconds since the last tick."""
        return self.now() - self.last

    @property
    def waited(self) -> float:
        """Seconds that requests of this round have waited, about."""
        return max(self.silent - EVERY, 0.0)

    def work(self) -> float:
        """Seconds for which this thread has worked in this round."""
        return self._thread() - self._worked


class Overload:
    """Whether requests of one kind are refused since they wait too long; ``limit`` returns the seconds allowed."""

    def __init__(self, monitor: LoopMonitor, limit: Callable[[], float]) -> None:
        self.stands = False
        """Every round of an interval was late, or one above its bound, and in every interval since then requests were
        refused."""
        self._monitor = monitor
        self._limit = limit
        self._late_since: float | None = None
        """When the first tick was late, unless one in time came after it."""
        self._refused_at = 0.0
        self._former = 0.0
        """Seconds by which the round before was late: what came then waited in its socket."""
        monitor.watchers.append(self._ticked)

    def _ticked(self, now: float, late: float) -> None:
        self._former = late
        if late <= self._limit():
            self._late_since = None
        elif self._late_since is None:
            self._late_since = now
        if self._late_since is not None and now - self._late_since >= INTERVAL:
            self.stands = True
            self._refused_at = now
        elif now - self._refused_at >= INTERVAL:
            self.stands = False

    def waited(self) -> float:
        """Seconds that a request of this round has waited, at least, if it is to be refused for that, else 0.

        Call it only in a round that is ``overdue``: in others nothing is refused.
        """
        monitor, limit, work = self._monitor, self._limit(), self._monitor.work()
        if self.stands:
            refused = work > limit * WORK_WHILE_LATE or self._former + monitor.silent > 2 * limit
        else:
            refused = self.stands = work > limit * MOST_WORK
        if not refused:
            return 0.0
        self._refused_at = self._monitor.now()
        return max(monitor.waited, limit)
