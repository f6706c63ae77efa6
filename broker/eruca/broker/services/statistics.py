"""Keeps the statistics going: a sample every second, with what the store has counted.

Owns the timer. What is counted, and over which windows, is ``state.statistics``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from eruca.broker.state.statistics import SECOND, Moment, Statistics


async def keep(statistics: Statistics, totals: Callable[[int], Moment], clock: Callable[[], int]) -> None:
    """Take a sample every second, until cancelled. ``totals`` gives the store's totals at a time in ms."""
    due = clock()
    while True:
        now = clock()
        statistics.sample(totals(now))
        due = max(due + SECOND, now + 1)
        await asyncio.sleep((due - now) / SECOND)
