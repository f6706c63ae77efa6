"""How a command ends that is told to stop, by Ctrl-C (SIGINT) or by SIGTERM, at any moment.

Owns both signals while a command runs. The first one ends the work in order: Spark's queries and jobs are cancelled,
and what the command is in fails or returns; the second one ends the program at once. A command that goes on until it
is stopped takes the first one as the event that it waits for (``gently``).

Invariant: nothing is raised while this thread waits for an answer of Spark's Java side: the next question would get
that answer. There a thread of its own cancels what Spark does; elsewhere ``Stopped`` is raised at once.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any, Final, Self

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
CANCEL_EVERY: Final = 0.2
"""Seconds after which is cancelled what the work has begun meanwhile."""


class Stopped(KeyboardInterrupt):
    """Raised where the signal came."""


class Stopping:
    """The two signals, from entering to leaving; ``number`` is the one that came, if one did."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._gentle: threading.Event | None = None
        self._begun = False
        self._told = threading.Event()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.getsignal(number) for number in SIGNALS}
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
        """Take the signals, also back from Spark, which takes SIGINT when a session begins."""
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL if self.number is not None else self._take)

    @property
    def at_once(self) -> bool:
        """Whether the work was to end before it was done."""
        return self.number is not None and not self.awaited

    @property
    def awaited(self) -> bool:
        """Whether a signal is the end that the work waits for."""
        return self._gentle is not None

    def check(self) -> None:
        """Raise what could not be raised where the signal came."""
        if self.number is not None:
            raise Stopped

    def _take(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        self.listen()
        _hush_py4j()
        if self._gentle is not None:
            self._gentle.set()
            if self._begun:
                return
        self._told.set()
        if not _is_in(frame, "py4j." if self._begun else "pyspark.java_gateway"):
            raise Stopped

    @contextmanager
    def gently(self) -> Iterator[threading.Event]:
        """An event that the first signal sets, instead of ending the work at once; before Spark is there it does."""
        self._gentle = threading.Event()
        yield self._gentle

    @contextmanager
    def cancelling(self, spark: Any) -> Iterator[None]:
        """While the block runs, a signal cancels what this session does."""
        done = threading.Event()

        def cancel() -> None:
            self._told.wait()
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
            self._told.set()
            watching.join()


def _nothing(record: logging.LogRecord) -> bool:
    return False


def _hush_py4j() -> None:
    """It logs a traceback of each question that Spark's Java side does not answer any more, some of them as nobody."""
    logging.getLogger().addFilter(_nothing)
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)


def _is_in(frame: FrameType | None, modules: str) -> bool:
    """Whether one of these modules, by the beginning of their names, is what runs."""
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith(modules):
            return True
        frame = frame.f_back
    return False
