"""The thread that flushes, with a cheap handover of jobs and results, since senders wait for them.

Owns one thread, the job under way and how it ended. The loop may wait for the end itself, for a bounded time: that
costs two switches of threads; a call through the loop costs several times as much. Invariant: the end of each job is
reported once, in the loop's thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue

Job = Callable[[], None]


class FlushThread:
    """A thread that runs one job at a time; ``ended`` is called with the exception of each, None without one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ended: Callable[[Exception | None], None]) -> None:
        self._loop = loop
        self._report = ended
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._end = threading.Lock()  # free while the end of a job is not reported yet
        self._end.acquire()
        self._awaited = False
        self._fault: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="store-flush", daemon=True)
        self._thread.start()

    def begin(self, job: Job, patience: float = 0.0) -> bool:
        """Run a job, while none is running; returns whether it ended, and was reported, within ``patience`` seconds."""
        self._awaited = patience > 0
        self._jobs.put(job)
        if not self._awaited:
            return False
        if self._end.acquire(timeout=patience):
            self._report(self._fault)
            return True
        self._awaited = False
        return self._collect()  # it may have ended just before that

    def stop(self) -> None:
        """Wait for the running job, and end the thread; the report comes with the loop's next iteration."""
        self._jobs.put(None)
        self._thread.join()

    def _collect(self) -> bool:
        ended = self._end.acquire(blocking=False)
        if ended:
            self._report(self._fault)
        return ended

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
                self._fault = None
            except Exception as fault:
                self._fault = fault
            del job  # which holds files: a deleted one keeps its blocks as long
            self._end.release()
            if not self._awaited:
                self._loop.call_soon_threadsafe(self._collect)
