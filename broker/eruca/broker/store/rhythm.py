"""The store's rhythm on an event loop: when to dispatch, flush, write out and clean.

The only module of the store that knows time on a loop. Owns timers and threads, decides nothing
about bytes. Invariant: after ``stop`` no timer, task or thread of it is left.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from eruca.broker.store.segment import Unflushed, flush_files

if TYPE_CHECKING:
    from eruca.broker.store.store import Store

T = TypeVar("T")
_QUEUES_AT_ONCE = 256
_PAGE = 4096


class Rhythm:
    """Calls the store at its times."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._thorough_at = 0.0
        self.fault: OSError | None = None
        """Why queues or index could not be written out last time; it is tried again."""

    def start(self) -> None:
        """Begin, on the running loop."""
        store = self._store
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store-flush")
        store._flush.start(self._loop, self._thread)
        store._appending.wake = self._woken
        config = store.config
        self._tasks = [
            self._loop.create_task(self._every(config.flush_interval_commit_log, self._flush_log)),
            self._loop.create_task(self._keep_written()),
            self._loop.create_task(self._every(config.clean_resource_interval, store.clean)),
        ]
        if store._dispatch.pending:
            self._woken()

    async def stop(self) -> None:
        """End all of it."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._store._appending.wake = bool
        thread, self._thread = self._thread, None
        if thread is not None and self._loop is not None:
            await self._loop.run_in_executor(None, thread.shutdown)
            await asyncio.sleep(0)
        self._store._flush.stop()
        self._loop = None

    def in_thread(self, thread: ThreadPoolExecutor, work: Callable[[], T]) -> Awaitable[T]:
        """Run ``work`` in a thread."""
        assert self._loop is not None
        return self._loop.run_in_executor(thread, work)

    def _woken(self) -> None:
        """A first append waits for its dispatch: after this round of the loop."""
        assert self._loop is not None
        if self._store.config.sync_flush:
            self._store._flush.request()
            self._loop.call_soon(self._store._flush.request)
        else:
            self._loop.call_soon(self._store.drain)

    async def _every(self, interval: int, work: Callable[[], object]) -> None:
        while True:
            await asyncio.sleep(interval / 1000)
            work()

    def _flush_log(self) -> None:
        store = self._store
        behind = store._log.position - store._flush.flushed
        now = time.monotonic()
        if behind == 0:
            self._thorough_at = now
        elif (
            behind >= store.config.flush_commit_log_least_pages * _PAGE
            or now - self._thorough_at >= store.config.flush_commit_log_thorough_interval / 1000
        ):
            self._thorough_at = now
            store._flush.request()

    async def _keep_written(self) -> None:
        config = self._store.config
        thorough = time.monotonic()
        while True:
            await asyncio.sleep(config.flush_interval_consume_queue / 1000)
            sync = time.monotonic() - thorough >= config.flush_consume_queue_thorough_interval / 1000
            try:
                await self._write_out(sync=sync)
                self.fault = None
            except OSError as fault:
                self.fault = fault
                continue
            if sync:
                thorough = time.monotonic()

    async def _write_out(self, *, sync: bool) -> None:
        store = self._store
        covered = store.begin_persist()
        moment = store._appending.last_time
        if covered[0] == store._mark.written and not sync:
            return
        done = False
        while not done:
            done = store.write_out(_QUEUES_AT_ONCE)
            await asyncio.sleep(0)
        if sync:
            assert self._loop is not None
            store._flush.request()
            files = store.unflushed()
            try:
                await self._loop.run_in_executor(self._thread, _flush_all, files)
            except BaseException:
                store.give_back(files)
                raise
        durable = store._flush.flushed >= covered[0]
        store.note_written(covered, synced=sync and durable, flushed_time=moment)


def _flush_all(files: list[Unflushed]) -> None:
    for one in files:
        flush_files(one)
