"""Flushes the log: one fdatasync in a thread serves everybody who waits (GroupCommitService and FlushRealTimeService
in RocketMQ).

Owns ``flushed`` and the waiting senders. Knows the log's files and the event loop it was given. While the disk is
fast, the loop waits for the thread, since a switch back through the loop takes longer than the flush. A slow flush
blocks the loop for at most ``PATIENCE``, and then the loop does not wait again for a while.
A disk may hang without an error: then a flush does not return, and ``hangs`` says so.
Invariant: nothing is reported durable that was not flushed; after a failed flush nothing is
reported durable any more. What a failed flush was to bring there is written again, so that the next process does not
take what only memory has for durable.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from errno import ETIMEDOUT
from functools import partial

import structlog

from eruca.broker.store.commit_log import CommitLog
from eruca.broker.store.flush_thread import FlushThread
from eruca.broker.store.results import Durability
from eruca.broker.store.segment import Segment
from eruca.broker.store.waiters import OffsetWaiters
from eruca.remoting.histogram import Histogram

PATIENCE = 0.0005
"""The loop waits at most this many seconds for a flush."""
_MUCH = 1 << 20
"""The loop does not wait for a flush of more bytes than this."""
TOOK = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Bounds of the times of flushes, in seconds."""
SLOW = 1.0
"""Seconds from which on a flush is a line of the log."""
HANGS = 10.0
"""Seconds without a return after which a flush counts as hanging. Disks that work take less: one that reads a sector
again and again gives up after 7 s in an array, and volumes of a network stand still for some seconds."""
RESTS = 8 * PATIENCE, 256 * PATIENCE
"""Seconds without such a wait after a flush that was too slow: the first time, and at most (doubled each time)."""

log = structlog.get_logger("eruca.broker.store")


class Flush:
    """The flusher of one commit log."""

    def __init__(self, log: CommitLog, timeout: int, *, eager: bool = False) -> None:
        """``timeout`` (ms): how long a sender waits. ``eager``: after a flush the next one follows at
        once while there is something to flush."""
        self.flushed = 0
        """Commit log offset up to which everything is on the disk."""
        self.fault: OSError | None = None
        """The error of a failed flush; after it nothing is durable any more."""
        self.on_flushed: Callable[[], None] | None = None
        """Called after each flush, a failed one too."""
        self.count = 0
        self.took = Histogram(TOOK)
        """The seconds of all flushes."""
        self._log = log
        self._timeout = timeout / 1000
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: FlushThread | None = None
        self._patient_from = 0.0
        self._rest = RESTS[0]
        self._eager = eager
        self._running = False
        self._begun = 0.0
        """When the flush under way began."""
        self._told = False
        """Whether the log says of it that it hangs."""
        self._target = 0
        self._file: Segment | None = None
        """The file that the flush has come to."""
        self._asked = False
        self._untidy = False
        """Whether the disk may still have what was taken back."""
        self._tidies = False
        """Whether the flush under way began after that."""
        self._waiters = OffsetWaiters(Durability.FLUSH_DISK_TIMEOUT)

    @property
    def behind(self) -> int:
        """Bytes that are written and not yet on the disk."""
        return max(self._log.position - self.flushed, 0)

    @property
    def hangs(self) -> bool:
        """Whether the flush under way has not returned for ``HANGS`` seconds."""
        return self._running and time.monotonic() - self._begun >= HANGS

    def look(self) -> None:
        """Say once that a flush hangs."""
        if not self._told and self.hangs:
            self._told = True
            log.error("flush_hangs", seconds=HANGS, consequence="nothing comes to the disk until it returns")

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Flush in a thread from now on."""
        self._loop = loop
        self._thread = FlushThread(loop, self._done)

    async def stop(self) -> None:
        """Flush in the caller's thread again; waiters that the running flush does not release end with a timeout."""
        if self._loop is not None and self._thread is not None:
            await self._loop.run_in_executor(None, self._thread.stop)
            await asyncio.sleep(0)
        self._loop = self._thread = None
        self._waiters.release_all(Durability.FLUSH_DISK_TIMEOUT)

    def durable(self, end: int) -> asyncio.Future[Durability] | None:
        """None when everything before ``end`` is on the disk, else a future that says whether it
        came there in time. Without a started loop it flushes at once.

        Raises:
            OSError: there is no loop, and the flush failed.
        """
        if end <= self.flushed and not self._untidy:
            return None
        if self._loop is None:
            self.flush()
            return None
        if self.fault is not None:
            failed: asyncio.Future[Durability] = self._loop.create_future()
            failed.set_result(Durability.FLUSH_DISK_TIMEOUT)
            return failed
        waiter = self._waiters.add(end, self._timeout)
        self.ask()
        return waiter

    def ask(self) -> None:
        """Flush after this iteration of the loop, so that all its messages share one flush."""
        if not self._asked and not self._running and self._loop is not None:
            self._asked = True
            self._loop.call_soon(self.request)

    def request(self) -> None:
        """Start a flush unless one is under way."""
        self._asked = False
        if self._running or self._thread is None or self.fault is not None:
            return
        if self._log.position <= self.flushed and not self._untidy:
            return
        self._running = True
        self._begun = time.monotonic()
        target, segments, new_files = self._plan()
        self._target = target
        patient = self._waiters and target - self.flushed <= _MUCH and time.monotonic() >= self._patient_from
        if self._thread.begin(partial(self._work, segments, new_files), PATIENCE if patient else 0.0):
            self._rest = RESTS[0]
        elif patient:
            self._patient_from = time.monotonic() + self._rest
            self._rest = min(self._rest * 2, RESTS[1])

    def flush(self) -> None:
        """Flush everything written so far, here and now.

        Raises:
            OSError: the disk fails.
        """
        if self.fault is not None:
            raise self.fault
        target, segments, new_files = self._plan()
        try:
            self._work(segments, new_files)
        except OSError as fault:
            self._failed(fault)
            raise
        self._flushed_to(target)

    async def catch_up(self) -> None:
        """Wait until everything that is written now is on the disk. Raises OSError: it fails, or hangs."""
        end = self._log.position
        while not self.hangs and (waiter := self.durable(end)) is not None:
            await waiter
            if self.fault is not None:
                raise self.fault
        self._check_returns()

    def forget_after(self, end: int) -> None:
        """The log was taken back to ``end``: what is written there again is not on the disk yet, and what was there may
        be; ``tidy`` has to come before."""
        self.flushed = min(self.flushed, end)
        self._target = min(self._target, end)
        self._untidy, self._tidies = True, False

    def tidy(self) -> None:
        """What was taken back is gone from the disk when this returns: a power failure would mix it with what comes
        there next. Raises OSError: the disk fails, or hangs."""
        if self._untidy:
            self._check_returns()
            self.flush()

    def _check_returns(self) -> None:
        if self.hangs:
            raise OSError(ETIMEDOUT, "a flush of the log does not return")

    def _plan(self) -> tuple[int, list[Segment], bool]:
        target = self._log.position
        new_files, self._log.new_files = self._log.new_files, False
        segments = [one for one in self._log.segments if one.end > self.flushed and one.start <= target]
        self._tidies = self._untidy
        return target, segments, new_files

    def _work(self, segments: list[Segment], new_files: bool) -> None:
        begun = time.monotonic()
        for segment in segments:
            self._file = segment
            segment.flush()
        self._file = None
        if new_files:
            self._log.file_system.flush_folder(self._log.path)
        took = time.monotonic() - begun
        self.took.add(took)
        if took > SLOW:
            log.warning("slow_flush", seconds=round(took, 3), files=len(segments))

    def _done(self, fault: Exception | None) -> None:
        self._running = False
        self._told = False
        if fault is None:
            self._flushed_to(self._target)
        elif isinstance(fault, OSError):
            self._failed(fault)
            self._waiters.release_all(Durability.FLUSH_DISK_TIMEOUT)
        else:
            raise fault
        if self.on_flushed is not None:
            self.on_flushed()
        if self._log.position > self.flushed and (self._waiters or self._eager):
            self.ask()

    def _failed(self, fault: OSError) -> None:
        self.fault = fault
        if self._file is not None:
            self._file.write_again(max(self.flushed - self._file.start, 0))
            self._file = None

    def _flushed_to(self, target: int) -> None:
        self.flushed = max(self.flushed, target)
        if self._tidies:
            self._untidy = self._tidies = False
        self.count += 1
        self._waiters.release(self.flushed, Durability.DURABLE)
