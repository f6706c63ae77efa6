"""The store's rhythm on an event loop: when to dispatch, flush, write out and clean.

The only module of the store that knows time on a loop. Owns timers and threads, decides nothing
about bytes. Invariant: after ``stop`` no timer, task or thread of it is left.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import structlog

from eruca.broker.store.appending import Appending
from eruca.broker.store.config import StoreConfig
from eruca.broker.store.flush import Flush
from eruca.broker.store.queue_table import QueueTable
from eruca.broker.store.segment import Unflushed, flush_files
from eruca.broker.store.upkeep import Upkeep

log = structlog.get_logger("eruca.broker")
T = TypeVar("T")
_QUEUES_AT_ONCE = 256
_PAGE = 4096


class Rhythm:
    """Calls the store's parts at their times."""

    def __init__(
        self,
        config: StoreConfig,
        upkeep: Upkeep,
        queues: QueueTable,
        flush: Flush,
        appending: Appending,
        drain: Callable[[], int],
    ) -> None:
        self.fault: OSError | None = None
        """Why files could not be written out or deleted last time; it is tried again."""
        self._config = config
        self._upkeep = upkeep
        self._queues = queues
        self._flush = flush
        self._appending = appending
        self._drain = drain
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._thorough_at = 0.0

    def start(self) -> None:
        """Begin, on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store-flush")
        self._flush.start(self._loop, self._thread)
        self._appending.wake = self._woken
        self._tasks = [
            self._loop.create_task(self._every(self._config.flush_interval_commit_log, self._flush_log)),
            self._loop.create_task(self._keep_written()),
            self._loop.create_task(self._every(self._config.clean_resource_interval, self._upkeep.clean)),
        ]
        self._woken()

    async def stop(self) -> None:
        """End all of it."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._appending.wake = bool
        thread, self._thread = self._thread, None
        if thread is not None and self._loop is not None:
            await self._loop.run_in_executor(None, thread.shutdown)
            await asyncio.sleep(0)
        self._flush.stop()
        self._loop = None

    def in_thread(self, thread: ThreadPoolExecutor, work: Callable[[], T]) -> Awaitable[T]:
        """Run ``work`` in a thread."""
        assert self._loop is not None
        return self._loop.run_in_executor(thread, work)

    def _woken(self) -> None:
        """A first append waits for its dispatch: after this round of the loop."""
        assert self._loop is not None
        self._loop.call_soon(self._flush.request if self._config.sync_flush else self._drain)

    async def _every(self, interval: int, work: Callable[[], object]) -> None:
        while True:
            await asyncio.sleep(interval / 1000)
            try:
                work()
            except OSError as fault:
                self._failed(fault)

    def _flush_log(self) -> None:
        behind = self._flush.behind
        now = time.monotonic()
        late = now - self._thorough_at >= self._config.flush_commit_log_thorough_interval / 1000
        if behind >= self._config.flush_commit_log_least_pages * _PAGE or (behind and late):
            self._flush.request()
        elif behind:
            return
        self._thorough_at = now

    async def _keep_written(self) -> None:
        thorough = time.monotonic()
        while True:
            await asyncio.sleep(self._config.flush_interval_consume_queue / 1000)
            sync = time.monotonic() - thorough >= self._config.flush_consume_queue_thorough_interval / 1000
            try:
                await self._write_out(sync=sync)
                self.fault = None
            except OSError as fault:
                self._failed(fault)
                continue
            if sync:
                thorough = time.monotonic()

    def _failed(self, fault: OSError) -> None:
        if self.fault is None:
            log.error("store_upkeep_failed", fault=str(fault))
        self.fault = fault

    async def _write_out(self, *, sync: bool) -> None:
        covered, moment = self._upkeep.begin()
        if covered[0] == self._upkeep.mark.written and not sync:
            return
        done = False
        while not done:
            done = self._queues.write_some(_QUEUES_AT_ONCE)
            await asyncio.sleep(0)
        if sync:
            assert self._loop is not None
            self._flush.request()
            files = self._upkeep.unflushed()
            try:
                await self._loop.run_in_executor(self._thread, _flush_all, files)
            except BaseException:
                self._upkeep.give_back(files)
                raise
        self._upkeep.note(covered, moment, flushed=sync)


def _flush_all(files: list[Unflushed]) -> None:
    for one in files:
        flush_files(one)
