"""How often something may happen: a token bucket for each name, such as an address or an account.

Owns the buckets. Must not know what is counted. Invariant: over any time a name takes at most one second's tokens and
those of that time, and what it takes last, which may be more than is left; a bucket that is full again is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

_TIDY_EVERY = 10.0
"""Seconds between two searches for buckets that are full again."""


class Rate:
    """At most ``a_second`` tokens a second for each name; ``now`` returns seconds. With 0 nothing is limited.

    ``refused`` counts what was not granted.
    """

    def __init__(self, a_second: float, now: Callable[[], float] = monotonic) -> None:
        self.a_second = a_second
        self.refused = 0
        self._most = max(a_second, 1.0)
        self.now = now
        self._buckets: dict[str, tuple[float, float]] = {}
        """The tokens that a name had left, and when that was."""
        self._tidy_at = now() + _TIDY_EVERY

    def take(self, name: str, amount: float = 1.0, *, forced: bool = False) -> bool:
        """Take ``amount`` tokens of a name; False, and nothing is taken, if it has none. ``forced`` takes anyway."""
        if not self.a_second:
            return True
        now = self.now()
        left, at = self._buckets.get(name, (self._most, now))
        left = min(self._most, left + (now - at) * self.a_second)
        if left < min(amount, 1.0) and not forced:
            self.refused += 1
            return False
        self._buckets[name] = (left - amount, now)
        if now >= self._tidy_at:
            self._tidy(now)
        return True

    def _tidy(self, now: float) -> None:
        self._tidy_at = now + _TIDY_EVERY
        self._buckets = {
            name: (left, at)
            for name, (left, at) in self._buckets.items()
            if left + (now - at) * self.a_second < self._most
        }

    def __len__(self) -> int:
        return len(self._buckets)
