"""Points of time that users give: a datetime, or ms since 1970.

Owns what a point of time may be, and the sentences about what is none: a number in another unit, such as seconds, is a
time long ago or far away, and would be taken without a word. Pure: no clock is asked.
"""

from __future__ import annotations

import operator
from datetime import datetime, timedelta
from typing import Final

LATEST: Final = 2**63 - 1
"""After every message."""
SECONDS: Final = range(10**9, 10**10)
"""Numbers that are the years 2001 to 2286 in seconds, and a few weeks of 1970 in ms."""
_FINER: Final = {"microseconds": (range(10**15, 10**16), 1_000), "nanoseconds": (range(10**18, LATEST), 1_000_000)}


def moment(value: object) -> int:
    """Ms since 1970 of them or a datetime; one without a time zone is local time.

    Raises ValueError with the half of a sentence that says what is expected.
    """
    if isinstance(value, datetime):
        return _of_datetime(value)
    if isinstance(value, timedelta):
        raise ValueError("a point of time is expected, such as datetime.now(UTC) + timedelta(hours=1)")
    try:
        ms = -1 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        ms = -1
    if ms < 0:
        raise ValueError("a datetime or ms since 1970, a whole number, is expected")
    if ms in SECONDS:
        raise ValueError(f"seconds? A datetime or ms since 1970, such as {ms}000, is expected")
    for unit, (numbers, parts) in _FINER.items():
        if ms in numbers:
            raise ValueError(f"{unit}? A datetime or ms since 1970, such as {ms // parts}, is expected")
    if ms > LATEST:
        raise ValueError(f"ms since 1970 of 64 bits, {LATEST} at most, are expected")
    return ms


def _of_datetime(value: datetime) -> int:
    try:
        ms = int(value.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):  # the years 1 and 9999 in local time
        ms = -1
    if ms < 0:
        raise ValueError("a time from 1970 on is expected")
    return ms
