"""The limit of a log: of each event a few lines a second, and then how many more there were.

While an event goes beyond its limit, its interval doubles, up to a minute: a flood that lasts for hours is a few lines
a minute. Owns the count of each event in its present interval. Knows names of events, not lines. Thread-safe, also for
a finalizer that interrupts another call. Invariant: every event was either admitted or is counted in a ``LeftOut``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

LINES = 10
"""Lines of one event in its interval."""
SHORTEST, LONGEST = 1.0, 60.0
"""Seconds of an interval: at first, and at most."""
EVENTS = 1000
"""Events that are counted apart; if there are more of them, the others share one count."""
OTHERS = "other_events"


class LeftOut(NamedTuple):
    """The events of one name that got no line in their interval."""

    event: str
    level: str
    more: int


class _Interval:
    """An event's present interval."""

    __slots__ = ("count", "length", "level", "until")

    def __init__(self, now: float, length: float, level: str) -> None:
        self.until = now + length
        self.length = length
        self.level = level
        self.count = 0


class LogLimit:
    """Admits ``lines`` events of each name in its interval."""

    def __init__(self, lines: int = LINES, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._lines = lines
        self._monotonic = monotonic
        self._lock = threading.RLock()
        self._intervals: dict[str, _Interval] = {}

    def admit(self, event: str, level: str) -> tuple[bool, LeftOut | None]:
        """Whether this event gets a line; and what was left out in its last interval, if that is not said yet."""
        now = self._monotonic()
        with self._lock:
            if event not in self._intervals and len(self._intervals) >= EVENTS:
                event = OTHERS
            interval = self._intervals.get(event)
            former = None
            if interval is None or now >= interval.until:
                former = self._left_out(event, interval) if interval is not None else None
                length = self._next(interval) if former is not None and interval is not None else SHORTEST
                interval = self._intervals[event] = _Interval(now, length, level)
            interval.count += 1
            return interval.count <= self._lines, former

    def ended(self, *, closing: bool = False) -> list[LeftOut]:
        """Forget the intervals that are over, with ``closing`` all of them; returns what was left out in them.

        One that had more events than lines is followed by a longer one.
        """
        now = self._monotonic()
        found = []
        with self._lock:
            over = [event for event, interval in self._intervals.items() if closing or now >= interval.until]
            for event in over:
                interval = self._intervals.pop(event)
                left_out = self._left_out(event, interval)
                if left_out is not None:
                    found.append(left_out)
                    self._intervals[event] = _Interval(now, self._next(interval), interval.level)
        return found

    def _left_out(self, event: str, interval: _Interval) -> LeftOut | None:
        more = interval.count - self._lines
        return LeftOut(event, interval.level, more) if more > 0 else None

    @staticmethod
    def _next(interval: _Interval) -> float:
        return min(2 * interval.length, LONGEST)
