"""A limit on how many rows a second a task hands on.

Runs in Spark's tasks. A task that was slow for a while does not make up for it by a burst.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

SLICE = 0.2
"""Seconds that one piece of the rows stands for."""


def paced(
    batches: Iterable[pa.RecordBatch],
    rate: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[pa.RecordBatch]:
    """The same rows in smaller pieces, ``rate`` a second at most."""
    piece = max(1, int(rate * SLICE))
    due = clock()
    for batch in batches:
        for start in range(0, batch.num_rows, piece):
            part = batch.slice(start, piece)
            wait = due - clock()
            if wait > 0:
                sleep(wait)
            yield part
            due = max(due, clock() - SLICE) + part.num_rows / rate
