"""The clocks of every layer that does I/O. Pure layers take the time as an argument.

Stamps, in records, in files and on the wire, are of the wall clock: others read them. Durations are measured by the
monotonic clock, since the wall clock jumps (an operator, NTP, a virtual machine that resumes). Times of the monotonic
clock mean nothing to another process, nor to this one after a restart: they are neither stored nor sent.
``tests/house/test_clock.py`` lists all uses of the wall clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial


def now_ms() -> int:
    """The present in milliseconds since 1970: a stamp."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """Milliseconds since some moment, for durations; never goes back, and stands still while the machine sleeps."""
    return time.monotonic_ns() // 1_000_000


def boottime_ms() -> int:
    """As ``monotonic_ms``, and goes on while the machine sleeps, where the system has such a clock."""
    return _boottime_ns() // 1_000_000


_boottime_ns = (
    partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic_ns
)


class ClockShift:
    """How far the wall clock has moved against the monotonic clock since this was made.

    A clock that is corrected slowly moves it by less than 2 s an hour; a step, or a machine that slept, at once.
    """

    def __init__(self, wall: Callable[[], int] = now_ms, monotonic: Callable[[], int] = monotonic_ms) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._begun = wall() - monotonic()

    @property
    def seconds(self) -> float:
        """Seconds; negative for a clock that was set back."""
        return (self._wall() - self._monotonic() - self._begun) / 1000
