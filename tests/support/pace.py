"""How slow the core is at the moment, for bounds of CPU time: bounds are set for a core that is idle and usual.

Machines of tests share their cores with others, which takes a part of each second away and counts it as the thread's:
the same work has taken three times its CPU time there. A piece of known work, done beside what is judged, shows it.
"""

from __future__ import annotations

from statistics import median
from time import thread_time

_USUAL = 0.0032
"""CPU seconds of the known work: the median of 200 times in Python 3.11 on the idle machine where bounds were set."""
_TIMES = 5


def slowness() -> float:
    """How many times as long as usual the known work takes now; at least 1, so that no bound gets narrower."""
    return max(1.0, median(_known_work() for _ in range(_TIMES)) / _USUAL)


def _known_work() -> float:
    """Objects made, kept in tables, written as text and freed, as in handlers."""
    begin = thread_time()
    table = {(number, "queue"): [number] for number in range(4000)}
    text = ",".join(f"{key[0]}:{value[0]}" for key, value in table.items())
    assert len(text) == 37_779
    del table
    return thread_time() - begin
