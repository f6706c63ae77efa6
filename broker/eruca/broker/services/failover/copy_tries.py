"""When a broker of a group follows its master again, whose log it could not take in.

Owns the back-off and the line in the log. Must not know how the log is copied, nor who follows. Invariant: of a copy
that fails again and again there is one line a minute, and one try every ``LONGEST`` at last, even if each try takes
something in.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from eruca.remoting.descriptors import reason
from eruca.remoting.log_repeats import Repeats

FIRST = 500
"""Milliseconds until the first try; each further one comes after twice the time."""
LONGEST = 5000

log = structlog.get_logger("eruca.broker.failover")


class CopyTries:
    """The tries of one broker; ``monotonic`` is its clock in ms."""

    def __init__(self, monotonic: Callable[[], int]) -> None:
        self._monotonic = monotonic
        self._again_at: int | None = None
        self._tried_at = 0
        """When the last try began."""
        self._pause = FIRST
        self._repeats = Repeats()

    @property
    def waiting(self) -> bool:
        """Whether the master is not to be connected yet."""
        return self._again_at is not None

    def failed(self, fault: Exception) -> None:
        """What came was refused, or could not be written."""
        again = self._repeats.failed(isinstance(fault, OSError))
        if again is not None and isinstance(fault, OSError):
            log.error("copy_not_written", reason=reason(fault), **again)
        elif again is not None:
            log.error("copy_refused", reason=str(fault), **again)
        now = self._monotonic()
        if now - self._tried_at > LONGEST:
            self._pause = FIRST  # the copy went well, at least for a while
        self._again_at = now + self._pause
        self._pause = min(2 * self._pause, LONGEST)

    def is_due(self) -> bool:
        """Whether the wait is over; True once for each."""
        now = self._monotonic()
        due = self._again_at is not None and now >= self._again_at
        if due:
            self._again_at, self._tried_at = None, now
        return due
