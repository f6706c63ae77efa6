"""The two clocks of every layer that does I/O. Pure layers take the time as an argument.

Stamps, in records, in files and on the wire, are of the wall clock: others read them. Durations are measured by the
monotonic clock, since the wall clock jumps (an operator, NTP, a virtual machine that resumes). Times of the monotonic
clock mean nothing to another process, nor to this one after a restart: they are neither stored nor sent.
``tests/house/test_clock.py`` lists all uses of the wall clock.
"""

from __future__ import annotations

import time


def now_ms() -> int:
    """The present in milliseconds since 1970: a stamp."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """Milliseconds since some moment, for durations; never goes back, and stands still while the machine sleeps."""
    return time.monotonic_ns() // 1_000_000
