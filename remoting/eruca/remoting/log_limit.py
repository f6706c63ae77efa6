"""The limit of a log: of each event a few lines a second, and then how many more there were.

Owns the count of each event in its present second. Knows names of events, not lines. Thread-safe, also for a finalizer
that interrupts another call. Invariant: every event was either admitted or is counted in a ``LeftOut``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

LINES = 10
"""Lines of one event a second."""
EVENTS = 1000
"""Events that are counted apart; in a second with more of them the others share one count."""
OTHERS = "other_events"


class LeftOut(NamedTuple):
    """The events of one name that got no line in their second."""

    event: str
    level: str
    more: int


class _Second:
    """An event's present second."""

    __slots__ = ("count", "level", "until")

    def __init__(self, until: float, level: str) -> None:
        self.until = until
        self.level = level
        self.count = 0


class LogLimit:
    """Admits ``lines`` events of each name a second."""

    def __init__(self, lines: int = LINES, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._lines = lines
        self._monotonic = monotonic
        self._lock = threading.RLock()
        self._seconds: dict[str, _Second] = {}

    def admit(self, event: str, level: str) -> tuple[bool, LeftOut | None]:
        """Whether this event gets a line; and what was left out in the event's last second, if that is not said yet."""
        now = self._monotonic()
        with self._lock:
            if event not in self._seconds and len(self._seconds) >= EVENTS:
                event = OTHERS
            second = self._seconds.get(event)
            former = None
            if second is None or now >= second.until:
                former = self._left_out(event, second) if second is not None else None
                second = self._seconds[event] = _Second(now + 1.0, level)
            second.count += 1
            return second.count <= self._lines, former

    def ended(self, *, closing: bool = False) -> list[LeftOut]:
        """Forget the seconds that are over, with ``closing`` all of them; returns what was left out in them."""
        now = self._monotonic()
        with self._lock:
            over = [event for event, second in self._seconds.items() if closing or now >= second.until]
            found = [self._left_out(event, self._seconds.pop(event)) for event in over]
        return [each for each in found if each is not None]

    def _left_out(self, event: str, second: _Second) -> LeftOut | None:
        more = second.count - self._lines
        return LeftOut(event, second.level, more) if more > 0 else None
