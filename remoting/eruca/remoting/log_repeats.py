"""What fails again and again: a line when it begins, one a minute while it lasts, and one when it is over.

Owns the count and the beginning of each failure that lasts. Must not know what fails, nor the line about it. Durations
are those of the monotonic clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

EVERY = 60.0
"""Seconds between two lines about the same thing."""
MOST = 10_000
"""Failures that are remembered; with more of them all are forgotten, and begin again."""


class _Failure:
    __slots__ = ("count", "said", "since")

    def __init__(self, now: float) -> None:
        self.since = self.said = now
        self.count = 1


class Repeats:
    """The failures of one part, by what fails."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._failures: dict[Hashable, _Failure] = {}

    def failed(self, what: Hashable) -> dict[str, object] | None:
        """Count a failure; returns the further values of the line about it, None if it is to have no line."""
        now = self._monotonic()
        failure = self._failures.get(what)
        if failure is None:
            if len(self._failures) >= MOST:
                self._failures.clear()
            self._failures[what] = _Failure(now)
            return {}
        failure.count += 1
        if now - failure.said < EVERY:
            return None
        failure.said = now
        return {"failures": failure.count, "seconds": round(now - failure.since)}

    def forget(self) -> None:
        """All of it works."""
        self._failures.clear()

    def over(self, what: Hashable) -> dict[str, object] | None:
        """It works; returns how often and for how long it did not, None if it worked before."""
        failure = self._failures.pop(what, None)
        if failure is None:
            return None
        return {"failures": failure.count, "seconds": round(self._monotonic() - failure.since)}
