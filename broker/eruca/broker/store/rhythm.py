"""The store's rhythm on an event loop: when to dispatch, flush, write out and clean.

The only module of the store that knows time on a loop. Owns timers and threads, decides nothing
about bytes. Invariant: after ``stop`` no timer, task or thread of it is left.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
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
_LOOKED_AT_TOGETHER = 64
_REST = 50
"""Writing out takes one part in so many of the loop's time at most: with very many queues it comes more rarely."""
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
        self._upkeep_thread: ThreadPoolExecutor | None = None
        self._cleaning = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self._thorough_at = 0.0

    def start(self) -> None:
        """Begin, on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._upkeep_thread = ThreadPoolExecutor(1, thread_name_prefix="store-upkeep")
        self._flush.start(self._loop)
        self._appending.wake = self._woken
        self._tasks = [
            self._loop.create_task(self._every(self._config.flush_interval_commit_log, self._flush_log)),
            self._loop.create_task(self._keep_written()),
            self._loop.create_task(self._keep_clean()),
        ]
        self._woken()

    async def stop(self) -> None:
        """End all of it."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._appending.wake = bool
        await self._flush.stop()
        thread, self._upkeep_thread = self._upkeep_thread, None
        if thread is not None:
            await asyncio.get_running_loop().run_in_executor(None, thread.shutdown)
            await asyncio.sleep(0)
        self._loop = None

    @staticmethod
    def in_thread(thread: ThreadPoolExecutor | None, work: Callable[[], T]) -> Awaitable[T]:
        """Run ``work`` in a thread; in one of the event loop's where None is given."""
        return asyncio.get_running_loop().run_in_executor(thread, work)

    def _woken(self) -> None:
        """A first append waits for its dispatch: after this round of the loop."""
        assert self._loop is not None
        self._loop.call_soon(self._flush.ask if self._config.sync_flush else self._drain)

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

    async def _keep_clean(self) -> None:
        while True:
            await asyncio.sleep(self._config.clean_resource_interval / 1000)
            try:
                await self.clean()
            except OSError as fault:
                self._failed(fault)

    async def clean(self, *, by_hand: bool = False) -> int:
        """One round of retention: delete what is due; how many files of the log are gone. The disk is waited for in a
        thread.

        Raises:
            OSError: a file cannot be deleted; it and the later ones are tried again with the next round.
        """
        async with self._cleaning:
            count, fault = 0, None
            try:
                for segment in self._upkeep.due(by_hand=by_hand):
                    await self.in_thread(self._upkeep_thread, segment.unlink)
                    count += 1
            except OSError as error:
                fault = error
            finally:
                self._upkeep.let_go(count)
            if count:
                await self._move_min_offsets()
            if fault is not None:
                raise fault
            return count

    async def _move_min_offsets(self) -> None:
        queues = list(self._queues.queues.values())
        for first in range(0, len(queues), _LOOKED_AT_TOGETHER):
            some = queues[first : first + _LOOKED_AT_TOGETHER]
            later = await self.in_thread(self._upkeep_thread, partial(self._upkeep.later_beginnings, some))
            for queue, beginning in later:
                self._upkeep.begin_at(queue, beginning)

    async def _keep_written(self) -> None:
        thorough = time.monotonic()
        took = 0.0
        while True:
            await asyncio.sleep(max(self._config.flush_interval_consume_queue / 1000, took * _REST))
            sync = time.monotonic() - thorough >= self._config.flush_consume_queue_thorough_interval / 1000
            try:
                took = await self._write_out(sync=sync)
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

    async def _write_out(self, *, sync: bool) -> float:
        """Write out and mark; the seconds that the loop was busy with it."""
        if self._upkeep.is_marked and not sync:
            return 0.0
        begin = time.perf_counter()
        position, moment = self._upkeep.begin()
        took = time.perf_counter() - begin
        done, checkpoint = False, None
        while not done:
            begin = time.perf_counter()
            done = self._queues.write_some(_QUEUES_AT_ONCE)
            took += time.perf_counter() - begin
            await asyncio.sleep(0)
        if sync:
            self._flush.request()
            files = self._upkeep.unflushed()
            durable = self._flush.durable(position)
            try:
                await self.in_thread(self._upkeep_thread, partial(_flush_all, files))
            except BaseException:
                self._upkeep.give_back(files)
                raise
            if durable is not None:
                await durable
            checkpoint = self._upkeep.next_checkpoint(moment)
            if checkpoint is not None:
                await self.in_thread(self._upkeep_thread, partial(self._upkeep.write_checkpoint, checkpoint))
        self._upkeep.note(checkpoint)
        return took


def _flush_all(files: list[Unflushed]) -> None:
    for one in files:
        flush_files(one)
