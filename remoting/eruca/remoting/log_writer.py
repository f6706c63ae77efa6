"""The writing thread of a daemon's log: nobody waits for the file that it goes to, and nobody hears of its errors.

Owns the queue, the thread, and the count of lost lines. Knows lines and a target, not events. A line is lost, and
counted, if it finds the queue full or cannot be written; as soon as lines can be written again, one says how many were
lost. Any thread may put lines, also a finalizer that interrupts another put. A forked child has its own queue and
thread. Invariant: the lines that wait, and those that are being written, have at most ``capacity`` bytes.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import accumulate
from queue import Empty, SimpleQueue
from typing import Protocol
from weakref import WeakSet

from eruca.remoting.loop import fork_count

CAPACITY = 4 << 20
"""Bytes of the lines that wait."""
AT_ONCE = 64 << 10
"""Bytes from which on a write takes no further line."""
TICK = 1.0
"""Seconds after which the thread looks for what else is to be said: lost lines, and what ``late`` returns."""
GRACE = 1.0
"""Seconds that ``close`` waits for the file."""

Queue = SimpleQueue[bytes | threading.Event]
"""Lines, and marks that are set when what came before them is written."""


class Target(Protocol):
    """Where lines are written."""

    def begin(self, size: int) -> bool:
        """Get ready for ``size`` bytes, which begin with a line; returns whether they go to another file."""

    def write(self, data: memoryview) -> int:
        """Write what fits, and wait until something does; returns how much that was. Raises OSError."""


class Descriptor:
    """A descriptor as a target; it stays open."""

    def __init__(self, number: int) -> None:
        self._number = number

    def begin(self, size: int) -> bool:
        """It is always ready."""
        return False

    def write(self, data: memoryview) -> int:
        """Write what fits."""
        try:
            return os.write(self._number, data)
        except BlockingIOError:  # whoever shares the file has made it so
            if hasattr(select, "poll"):
                poll = select.poll()
                poll.register(self._number, select.POLLOUT)
                poll.poll()
            return 0


_writers: WeakSet[LogWriter] = WeakSet()


def lines_lost() -> int:
    """The lines that all writers of this process have lost."""
    return sum(writer.lost for writer in tuple(_writers))


def _none_late(closing: bool) -> Sequence[str]:
    return ()


class LogWriter:
    """Writes lines to a target, in a thread.

    ``notice`` is the line that says how many lines were lost. ``late`` returns lines that nobody puts, and is called
    about each second; with true for the last time. What is put here comes after what was put into ``former`` before,
    unless that has to wait for longer than ``GRACE``.
    """

    def __init__(
        self,
        target: Target,
        notice: Callable[[int], str],
        late: Callable[[bool], Sequence[str]] = _none_late,
        *,
        former: LogWriter | None = None,
        capacity: int = CAPACITY,
    ) -> None:
        self.lost = 0
        """The lines that were lost so far (``log_lines_lost``)."""
        self._target = target
        self._notice = notice
        self._late = late
        self._former = former
        self._capacity = capacity
        _writers.add(self)
        self._begin()

    def _begin(self) -> None:
        self._forks = fork_count()
        self._lock = threading.RLock()
        self._queue: Queue = SimpleQueue()
        self._size = 0
        self._said = self.lost
        self._torn = False
        """Whether the last thing that was written is the beginning of a line."""
        self._closed = False
        self._thread: threading.Thread | None = None

    def put(self, line: str) -> None:
        """Have a line written, which ends with a newline. Never waits and never raises."""
        if self._forks != fork_count():
            self._begin()
        data = line.encode("utf-8", "backslashreplace")
        with self._lock:
            if self._closed or self._size + len(data) > self._capacity:
                self.lost += 1
                return
            self._size += len(data)
            self._queue.put(data)
            if self._thread is None:
                self._start()

    def _start(self) -> None:
        thread = self._thread = threading.Thread(target=self._work, args=(self._queue,), name="log-writer", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads: the next line tries again
            self._thread = None

    def flush(self, grace: float = GRACE) -> None:
        """Wait until what was put is written or lost, for ``grace`` seconds at most. Not for the event loop."""
        written = threading.Event()
        if self._thread is not None and self._forks == fork_count():
            self._queue.put(written)
            written.wait(grace)

    def close(self, grace: float = GRACE) -> None:
        """Write what waits, for ``grace`` seconds at most; later lines are lost. Calling it twice does no harm."""
        with self._lock:
            self._closed = True
            thread, self._thread = self._thread, None
            self._queue.put(threading.Event())
        if thread is not None and self._forks == fork_count():
            thread.join(grace)

    # ------------------------------------------------------------------ in the thread

    def _work(self, queue: Queue) -> None:
        closing = False
        while not closing:
            lines, mark = _batch(queue)
            if self._former is not None and lines:
                self._former.flush()
            written = self._write(lines)
            with self._lock:
                self._size -= sum(map(len, lines))
                self.lost += len(lines) - written
            closing = self._closed and queue.empty()
            if queue.empty():
                self._say_more(closing)
            if mark is not None:
                mark.set()

    def _say_more(self, closing: bool) -> None:
        lost = self.lost
        if lost != self._said and self._write([self._notice(lost - self._said).encode()]):
            self._said = lost
        lines = [line.encode("utf-8", "backslashreplace") for line in self._late(closing)]
        written = self._write(lines)
        with self._lock:
            self.lost += len(lines) - written

    def _write(self, lines: list[bytes]) -> int:
        """Write lines until one cannot be written; returns how many were."""
        if self._target.begin(sum(map(len, lines))):
            self._torn = False
        if not lines:
            return 0
        start = 1 if self._torn else 0
        data = memoryview(b"\n" * start + b"".join(lines))
        ends = [start + end for end in accumulate(map(len, lines))]
        at = 0
        try:
            while at < len(data):
                at += self._target.write(data[at:])
        except OSError:
            pass
        if at:
            self._torn = at not in (start, *ends)
        return sum(end <= at for end in ends)


def _batch(queue: Queue) -> tuple[list[bytes], threading.Event | None]:
    """The lines that wait, up to a mark if one comes, and that mark; waits for one, for a tick at most."""
    lines: list[bytes] = []
    size = 0
    with suppress(Empty):
        line = queue.get(timeout=TICK)
        while not isinstance(line, threading.Event):
            lines.append(line)
            size += len(line)
            if size >= AT_ONCE:
                return lines, None
            line = queue.get_nowait()
        return lines, line
    return lines, None
