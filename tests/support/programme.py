"""How long tests of durability run: a short form with every change, the long one by ``make torture``.

Owns the knobs: ERUCA_TORTURE=1 asks for the long run, ERUCA_TIMES=5 gives it five times the time of the short form
(without it ten times), ERUCA_SEED makes it another one. Each test has a number of rounds and a time budget; it prints
the seed, so that a failure can be run again.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator

import pytest

LONG = bool(os.environ.get("ERUCA_TORTURE"))
WHY = "takes minutes: set ERUCA_TORTURE=1"
"""Of a test that is left out in the short form."""
ENOUGH = pytest.mark.timeout(3600 if LONG else 300)
"""The time-out of a test with rounds: the short form takes seconds, the long one up to an hour."""
TIMES = float(os.environ.get("ERUCA_TIMES", "10")) if LONG else 1.0
"""How many times the time of the short form."""
MEBIBYTE = 1 << 20
SEED = int(os.environ.get("ERUCA_SEED", "20261121"))


def chance(name: str) -> random.Random:
    """The randomness of one test; says its seed."""
    print(f"ERUCA_SEED={SEED}")
    return random.Random(f"{SEED}/{name}")


def rounds(short: int, long: int, *, seconds: float, least: int = 2) -> Iterator[int]:
    """So many rounds, fewer when ``seconds`` (times TIMES) are over, but ``least``."""
    end = time.monotonic() + seconds * TIMES
    for number in range(long if LONG else short):
        if number >= least and time.monotonic() > end:
            print(f"{number} rounds within the time budget")
            return
        yield number


def amount(short: int, long: int) -> int:
    """A size that differs between the two runs."""
    return long if LONG else short
