"""SIGINT (Ctrl-C) and SIGTERM while a pipeline command runs.

Owns both signals. The first signal ends the work in order: Spark's queries and jobs are cancelled, and the command's
current call fails or returns. The second one ends the program at once, after its last words. A command that runs until
it is stopped waits for the first signal as an event (``gently``).

Invariant: nothing is raised while this thread waits for a reply of Spark's Java side, as the next request would get
that reply. There another thread cancels Spark's jobs; elsewhere ``Stopped`` is raised at once.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any, Final, Self

from eruca.standalone.pipeline import early

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
CANCEL_EVERY: Final = 0.2
"""Seconds between two cancellations: the work may start more jobs meanwhile."""


class Stopped(KeyboardInterrupt):
    """Raised where the signal arrives."""


class StopSignals:
    """Handles both signals within a ``with`` block; ``number`` is the signal that arrived, or None.

    ``last_words`` makes of the second signal what the error output gets.
    """

    def __init__(self, last_words: Callable[[int], str]) -> None:
        self._last_words = last_words
        self.number: int | None = None
        self._event: threading.Event | None = None
        self._begun = False
        self._arrived = threading.Event()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._before = {number: early.handler_before(number) for number in SIGNALS}
        self.listen()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        logging.getLogger().removeFilter(_nothing)
        logging.getLogger("py4j").setLevel(logging.NOTSET)

    def listen(self) -> None:
        """Install the handlers; also after Spark, which installs its own for SIGINT when a session starts."""
        for number in SIGNALS:
            signal.signal(number, self._end if self.number is not None else self._take)

    @property
    def at_once(self) -> bool:
        """Whether a signal ended the work early."""
        return self.number is not None and not self.awaited

    @property
    def awaited(self) -> bool:
        """Whether the work waits for a signal as its end."""
        return self._event is not None

    def check(self) -> None:
        """Raise Stopped if a signal arrived where it could not be raised."""
        if self.number is not None:
            raise Stopped

    def _take(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        self.listen()
        hush_py4j()
        if self._event is not None:
            self._event.set()
            if self._begun:
                return
        self._arrived.set()
        if not _is_in(frame, "py4j." if self._begun else "pyspark.java_gateway"):
            raise Stopped

    def _end(self, number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        os.write(2, self._last_words(number).encode())  # the work may be writing to sys.stderr just now
        os.kill(os.getpid(), number)

    @contextmanager
    def gently(self) -> Iterator[threading.Event]:
        """An event that the first signal sets instead of ending the work. Before Spark's start it ends the work."""
        self._event = threading.Event()
        yield self._event

    @contextmanager
    def cancelling(self, spark: Any) -> Iterator[None]:
        """While the block runs, a signal cancels the jobs of this session."""
        done = threading.Event()

        def cancel() -> None:
            self._arrived.wait()
            while not done.wait(CANCEL_EVERY):
                with suppress(Exception):
                    for query in spark.streams.active:
                        query.stop()
                    spark.sparkContext.cancelAllJobs()

        self.listen()
        self.check()
        self._begun = True
        watching = threading.Thread(target=cancel, daemon=True)
        watching.start()
        try:
            yield
        finally:
            done.set()
            self._arrived.set()
            watching.join()


def _nothing(record: logging.LogRecord) -> bool:
    return False


def hush_py4j() -> None:
    """Silence py4j until ``StopSignals`` ends: it logs a traceback for each call that is interrupted or fails."""
    logging.getLogger().addFilter(_nothing)
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)


def _is_in(frame: FrameType | None, modules: str) -> bool:
    """Whether the stack runs through a module whose name begins with ``modules``."""
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith(modules):
            return True
        frame = frame.f_back
    return False
