"""How long something takes, without the time that the machine gave to others.

Owns a thread that sleeps again and again: what a sleep lasts too long, and what this process did not work meanwhile,
the machine has taken away. Machines of tests stall for seconds; what the product waits for, or works, counts all the
same.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

_TICK = 0.01
_USUAL = 0.005
"""Seconds that a sleep may last too long: the system's timers are no more exact than that."""


class Stopwatch:
    """Runs within its ``with`` block; ``seconds`` may be asked there and afterwards."""

    def __init__(self) -> None:
        self._begun = self._ended = 0.0
        self._lost = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @property
    def seconds(self) -> float:
        """What it took so far."""
        return (self._ended or time.monotonic()) - self._begun - self._lost

    def _watch(self) -> None:
        at, worked = time.monotonic(), time.process_time()
        over = False
        while not over:
            over = self._over.wait(_TICK)
            now, works = time.monotonic(), time.process_time()
            taken = now - at - _TICK - (works - worked)
            if taken > _USUAL:
                self._lost += taken
            at, worked = now, works

    def __enter__(self) -> Self:
        self._begun = time.monotonic()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self._ended = time.monotonic()
