"""The clock of every layer that does I/O. Pure layers take the time as an argument."""

from __future__ import annotations

import time


def now_ms() -> int:
    """The present in milliseconds since 1970."""
    return time.time_ns() // 1_000_000
