"""The store's scheduler: runs dispatch, flush, write-out and cleaning on an event loop.

Does the work of RocketMQ's FlushRealTimeService, FlushConsumeQueueService and CleanCommitLogService threads. The only
module of the store that knows the event loop. Owns timers and threads; makes no decision about bytes. Invariant: after
``stop`` none of its timers, tasks or threads is left.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import structlog

from eruca.broker.store.appender import Appender
from eruca.broker.store.config import StoreConfig
from eruca.broker.store.flush import Flush
from eruca.broker.store.housekeeping import Housekeeping
from eruca.broker.store.queue_table import QueueTable
from eruca.remoting.tasks import Tasks, end

log = structlog.get_logger("eruca.broker.store")
T = TypeVar("T")
_QUEUES_AT_ONCE = 256
_LOOKED_AT_TOGETHER = 64
_REST = 50
"""Write-outs take at most 1/``_REST`` of the loop's time: with very many queues they run less often."""
_PAGE = 4096


class Scheduler:
    """Runs the parts of the store at their intervals."""

    def __init__(
        self,
        config: StoreConfig,
        housekeeping: Housekeeping,
        queues: QueueTable,
        flush: Flush,
        appender: Appender,
        drain: Callable[[], int],
        tasks: Tasks,
    ) -> None:
        self.fault: OSError | None = None
        """Why files could not be written out or deleted last time; it is tried again."""
        self._config = config
        self._sync_flush = config.sync_flush
        self._housekeeping = housekeeping
        self._queues = queues
        self._flush = flush
        self._appender = appender
        self._drain = drain
        self._start = tasks.start
        self._loop: asyncio.AbstractEventLoop | None = None
        self._housekeeping_thread: ThreadPoolExecutor | None = None
        self._cleaning = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self._thorough_at = 0.0

    def start(self) -> None:
        """Begin, on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._housekeeping_thread = ThreadPoolExecutor(1, thread_name_prefix="store-housekeeping")
        self._flush.start(self._loop)
        self._appender.wake = self._woken
        self._tasks = [
            self._start("flush", self._every(self._config.flush_interval_commit_log, self._flush_log)),
            self._start("write-out", self._keep_written()),
            self._start("retention", self._keep_clean()),
        ]
        self._woken()

    async def stop(self) -> None:
        """End all of it."""
        tasks, self._tasks = self._tasks, []
        await end(tasks)
        self._appender.wake = bool
        await self._flush.stop()
        thread, self._housekeeping_thread = self._housekeeping_thread, None
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
        self._loop.call_soon(self._flush.ask if self._sync_flush else self._drain)

    async def _every(self, interval: int, work: Callable[[], object]) -> None:
        while True:
            await asyncio.sleep(interval / 1000)
            try:
                work()
            except OSError as fault:
                self._failed(fault)

    def _flush_log(self) -> None:
        self._flush.look()
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
                for file in self._housekeeping.due(by_hand=by_hand):
                    await self.in_thread(self._housekeeping_thread, file.segment.unlink)
                    count += 1
                    self._housekeeping.deleted(file)
            except OSError as error:
                fault = error
            finally:
                self._housekeeping.forget_files(count)
            if count:
                await self._move_min_offsets()
            if fault is not None:
                raise fault
            return count

    async def _move_min_offsets(self) -> None:
        queues = list(self._queues.queues.values())
        for first in range(0, len(queues), _LOOKED_AT_TOGETHER):
            some = queues[first : first + _LOOKED_AT_TOGETHER]
            later = await self.in_thread(self._housekeeping_thread, partial(self._housekeeping.later_beginnings, some))
            for queue, beginning in later:
                self._housekeeping.begin_at(queue, beginning)

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
            log.error("store_housekeeping_failed", fault=str(fault))
        self.fault = fault

    async def _write_out(self, *, sync: bool) -> float:
        """Write out and mark; the seconds that the loop was busy with it."""
        if self._housekeeping.is_marked and not sync:
            return 0.0
        begin = time.perf_counter()
        position, moment = self._housekeeping.begin()
        took = time.perf_counter() - begin
        done, checkpoint = False, None
        while not done:
            begin = time.perf_counter()
            done = self._queues.write_some(_QUEUES_AT_ONCE)
            took += time.perf_counter() - begin
            await asyncio.sleep(0)
        if sync:
            self._flush.request()
            files = self._housekeeping.unflushed()
            durable = self._flush.durable(position)
            try:
                await self.in_thread(self._housekeeping_thread, partial(self._housekeeping.flush, files))
            except BaseException as fault:
                self._housekeeping.give_back(files, failed=isinstance(fault, OSError))
                raise
            if durable is not None:
                await durable
            checkpoint = self._housekeeping.next_checkpoint(moment)
            if checkpoint is not None:
                await self.in_thread(
                    self._housekeeping_thread, partial(self._housekeeping.write_checkpoint, checkpoint)
                )
        self._housekeeping.note(checkpoint)
        return took
