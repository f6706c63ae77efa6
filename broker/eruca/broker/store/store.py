"""The store: messages in RocketMQ's files, written, read, recovered and deleted.

The facade of the package (DefaultMessageStore in RocketMQ): builds the parts and keeps their order in time (append,
flush, dispatch, write-out, mark). Knows records and queues, not requests. All methods belong to one
thread; ``start`` runs the scheduler on the event loop; without it ``drain``, ``flush`` and
``persist`` are called by the owner. Invariant: readers see only what is dispatched, and under
SYNC_FLUSH only what is durable is dispatched.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog

from eruca.broker.store.appender import Appender
from eruca.broker.store.commit_log import CommitLog
from eruca.broker.store.config import StoreConfig, parse_delay_levels
from eruca.broker.store.consume_queue import UNIT_FORM
from eruca.broker.store.cut import cut_files, intended_cut, settle_cut
from eruca.broker.store.damage_mark import forget_damage, mark_damage
from eruca.broker.store.dispatch import Arrival, Dispatch
from eruca.broker.store.file_system import FileSystem, NotInMemory
from eruca.broker.store.flush import Flush
from eruca.broker.store.housekeeping import Housekeeping
from eruca.broker.store.index import Index
from eruca.broker.store.lookup import Lookup
from eruca.broker.store.marks import (
    Lock,
    check_format,
    clear_abort,
    read_checkpoint,
    read_mark,
    set_abort,
    was_aborted,
    write_mark,
)
from eruca.broker.store.progress import Progress
from eruca.broker.store.queue_table import QueueTable
from eruca.broker.store.reader import Reader, ReadLimits
from eruca.broker.store.recover import Recovery
from eruca.broker.store.replicator import Replicator
from eruca.broker.store.results import Damage, Durability, Figures, Found, Got, Matcher, RecoveryReport
from eruca.broker.store.scan import Scan
from eruca.broker.store.scheduler import Scheduler
from eruca.broker.store.store_id import StoreId, forget_store_id, power_failed
from eruca.protocol.record import Record
from eruca.remoting.clock import monotonic_ms, now_ms
from eruca.remoting.files import check_writable
from eruca.remoting.histogram import Histogram
from eruca.remoting.operating_system import machine_memory
from eruca.remoting.tasks import Tasks

log = structlog.get_logger("eruca.broker.store")
T = TypeVar("T")
_COPY = "this store is the copy of a master's: send to the master"


class Store:
    """A broker's messages on disk (DefaultMessageStore in RocketMQ).

    ``appender`` writes messages, ``replicator`` reads and appends the raw log; a store that ``follows`` another one
    accepts no message. ``boot`` (of the machine) gives the store an id: its broker is in a group that elects.
    """

    def __init__(
        self,
        config: StoreConfig,
        clock: Callable[[], int] = now_ms,
        *,
        monotonic: Callable[[], int] = monotonic_ms,
        follows: bool = False,
        file_system: FileSystem | None = None,
        tasks: Tasks | None = None,
        boot: str | None = None,
    ) -> None:
        self.config = config
        self._sync_flush = config.sync_flush
        self._file_system = file_system = file_system or FileSystem()
        self._clock = clock
        self._id: StoreId | None = None
        if boot is not None:
            self._id = StoreId(config.store_path_root_dir, boot, file_system, sync_flush=config.sync_flush)
        self.commit_log = CommitLog(
            config.commit_log_path,
            config.mapped_file_size_commit_log,
            file_system,
            populate=not config.sync_flush,
            hot_bytes=config.hot_bytes,
        )
        self._queues = QueueTable(config.consume_queue_path, config.consume_queue_file_size, file_system)
        self._index: Index | None = None
        if config.message_index_enable:
            self._index = Index(config.index_path, config.max_hash_slot_num, config.max_index_num, clock, file_system)
        self._dispatch = Dispatch(self._queues, self._index, parse_delay_levels(config.message_delay_level))
        self._flush = Flush(self.commit_log, config.sync_flush_timeout, eager=config.sync_flush)
        self._flush.on_flushed = self._flushed
        self.appender = Appender(
            self.commit_log,
            self._queues,
            self._dispatch.pending,
            clock,
            config.max_message_size,
            config.retry_after_full,
        )
        if follows:
            self.appender.standing = _COPY
        self.replicator = Replicator(
            self.commit_log, self._queues, self._dispatch, self.appender, self._flush, sync=config.sync_flush
        )
        self._memory = machine_memory()
        self.reader = Reader(self.commit_log, self._queues, ReadLimits(config, self._memory))
        self.reader.on_damage = _log_damage
        self.housekeeping = Housekeeping(
            config,
            self.commit_log,
            self._queues,
            self._index,
            self._dispatch,
            self._flush,
            self.appender,
            clock,
            monotonic,
            file_system,
        )
        self._scheduler = Scheduler(
            config, self.housekeeping, self._queues, self._flush, self.appender, self.drain, tasks or Tasks()
        )
        self._lock: Lock | None = None
        self._cold: ThreadPoolExecutor | None = None
        self.visible_limit: int | None = None
        """When set, only records that end at or before it are dispatched (a slave's confirmed offset)."""
        self.on_written: Callable[[], None] | None = None
        """Called before each dispatch: after rounds of the loop in which something was written, under
        SYNC_FLUSH after flushes."""
        self.progress = Progress()
        """How far ``open`` has come; it can be stopped there."""
        self.recovery = RecoveryReport(end_offset=0)
        """What the last ``open`` found."""
        self.disk_lookup = Lookup(config, self.commit_log, self._queues, self._index, wait=True)
        """Lookups that wait for the disk."""
        self._cached_lookup = Lookup(config, self.commit_log, self._queues, self._index, wait=False)

    def reconfigured(self) -> None:
        """Take over changes of ``config``, while the store is open: the limits of reads."""
        self.reader.limits = ReadLimits(self.config, self._memory)

    # ---- opening and closing

    @property
    def store_id(self) -> str:
        """By what the group knows this store; empty without a group, and after a loss until the next opening."""
        return self._id.value if self._id is not None else ""

    def _lost(self, reason: str | None, damages: list[Damage]) -> None:
        if damages:
            mark_damage(self.config.store_path_root_dir, damages[0].start, damages[-1].end)
        if self._id is not None and reason is not None:
            self._id.lose(reason)

    def open(self) -> RecoveryReport:
        """Open the store, made when it is not there, and recover it; in any thread, if nobody else uses the store.

        Raises:
            RecoveryStopped: ``progress.stop`` was called; the next opening recovers the store.
            StoreLocked: it is in use.
            StoreTooNew: a newer version wrote it.
            StoreDamaged: its files do not fit the configuration, or its epochs are to be cut and cannot be read.
            NoAccess: nothing can be written in one of its folders, or in the checkpoint.
            OSError: a file cannot be read or written.
        """
        begin = time.perf_counter()
        root = self.config.store_path_root_dir
        root.mkdir(parents=True, exist_ok=True)
        (root / "config").mkdir(exist_ok=True)
        self._check_access(root)
        self._lock = Lock(root)
        try:
            self._recover(root)
        except BaseException:
            self._release()
            raise
        self.recovery.seconds = time.perf_counter() - begin
        return self.recovery

    def finish_cut(self) -> None:
        """End a cut of the log that was interrupted, if there is one: before the tables beside the log are read, which
        it sets back. The store is closed before and after. Errors as ``open``."""
        if intended_cut(self.config.store_path_root_dir) is not None:
            boot = self._id.boot if self._id is not None else None
            once = Store(self.config, self._clock, file_system=self._file_system, boot=boot)
            once.open()
            if (fault := once.close()) is not None:
                raise fault

    def _check_access(self, root: Path) -> None:
        paths = self.config.commit_log_path, self.config.consume_queue_path, self.config.index_path
        for path in (root, root / "config", root / "checkpoint", root / "eruca.mark", *paths):
            if path.exists():
                check_writable(path)

    def _recover(self, root: Path) -> None:
        check_format(root)
        if (end := intended_cut(root)) is not None:
            cut_files(self.config, end, self._file_system)
        checkpoint = self.housekeeping.checkpoint = read_checkpoint(root)
        mark = read_mark(root, checkpoint)
        clean = not was_aborted(root)
        copies = self.appender.standing is not None
        if self._id is None:
            forget_store_id(root, self._file_system)  # what is stored meanwhile, the group does not know
        remember = self._id.judge(clean=clean) if self._id is not None else None
        self.commit_log.load()
        self._queues.load(self.progress.check)
        notes = self._index.load() if self._index is not None else []
        set_abort(root, self._file_system)  # a recovery that ends early leaves no store that was stopped in order

        recovery = Recovery(
            self.config,
            self.commit_log,
            self._queues,
            self._index,
            self._dispatch,
            self._clock,
            self.progress,
            lambda begun: write_mark(root, begun, checkpoint, self._file_system, durably=True),
            self._lost,
            check_crc=self.config.check_crc_on_recover or copies or self._id is not None,
            power_failed=power_failed(self._id, clean=clean, copies=copies),
            remember=remember,
            cut_at=end,
        )
        self.recovery = recovery.run(clean=clean, mark=mark, checkpoint=checkpoint)
        self.recovery.notes += notes
        self.appender.last_time = max(self.recovery.last_store_timestamp, checkpoint.physic)
        self._dispatch.newest = self.appender.last_time
        self.housekeeping.move_min_offsets()
        self.replicator.begin()
        self._flush.flush()
        try:
            self.persist()
        except OSError as fault:  # a full disk must not keep anybody from reading
            self.recovery.notes.append(f"consume queues could not be written out: {fault}")
        if end is not None:
            self._flush.flush()
            self.persist()
            forget_damage(root, end, self._file_system)
            settle_cut(root, self.max_offset, self._file_system)
            log.warning("log_cut", end=end)
        if self._id is not None:
            self._id.settle()
        self.appender.refusal = None
        self.check_disk()

    def start(self) -> None:
        """Flush, dispatch, write out and clean by the running event loop from now on."""
        self._cold = ThreadPoolExecutor(4, thread_name_prefix="store-read")
        self._scheduler.start()

    async def stop(self) -> None:
        """End what ``start`` began (work in threads is waited for); the store stays open."""
        await self._scheduler.stop()
        if self._cold is not None:
            self._cold.shutdown(wait=True)
            self._cold = None

    def close(self) -> OSError | None:
        """Flush, persist and close; after it the store counts as stopped in order.

        When the disk fails or is full, or messages are still to be dispatched, ``abort`` stays and the next start
        recovers; then the error is returned.
        """
        if self._lock is None:
            return None
        self.appender.refusal = "the store is closed"
        root = self.config.store_path_root_dir
        try:
            self._flush.flush()
            self.visible_limit = None  # nobody reads any more, and the next start finds all in its queues
            self.drain()
            self.persist()
            if waiting := self._dispatch.waiting:
                raise OSError(f"{waiting} messages are not in their queues or in the index yet")
            clear_abort(root, self._file_system)
        except OSError as fault:
            log.error("store_not_closed_in_order", fault=str(fault), consequence="the next start recovers it")
            return fault
        finally:
            self._release()
        return None

    def _release(self) -> None:
        self._queues.close()
        self.commit_log.close()
        if self._index is not None:
            self._index.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    # ---- leading and following

    def follow(self) -> None:
        """Accept no message any more: what comes from now on is the log of another store, from the end of this one."""
        self.appender.standing = _COPY
        self.appender.refusal = self.appender.refusal or _COPY
        self.replicator.begin()

    def lead(self) -> int:
        """Accept messages from now on, behind the last whole record that was copied; how many bytes of a part of a
        record are cut off. Raises OSError: the disk fails."""
        cut = self.replicator.cut_part()
        self.flush()
        self.drain()
        self._dispatch.count_on()
        self.appender.standing = None
        if self.appender.refusal == _COPY:
            self.appender.refusal = None
        return cut

    # ---- writing

    @property
    def refusal(self) -> str | None:
        """Why nothing can be stored at present, None when it can."""
        return self.appender.refusal or self.appender.no_room

    @property
    def exhausted(self) -> bool:
        """Whether nothing can be stored because no file descriptor is left, rather than for the disk."""
        return self.appender.exhausted and self.appender.refusal is None

    @property
    def held_back(self) -> int:
        """Commit log offset below which retention would delete files, did ``hold`` not keep them; 0 without any."""
        return self.housekeeping.held_back

    def hold(self, needed: Callable[[bool], int]) -> None:
        """Let retention ask from which commit log offset on to keep all; with True when the disk is too full."""
        self.housekeeping.needed = needed

    @property
    def on_arrival(self) -> Arrival | None:
        """Called once per queue and dispatch round with topic, queue id, the new max offset and the
        tag codes of the messages that came."""
        return self._dispatch.on_arrival

    @on_arrival.setter
    def on_arrival(self, arrival: Arrival | None) -> None:
        self._dispatch.on_arrival = arrival

    def durable(self, end_offset: int) -> asyncio.Future[Durability] | None:
        """None when nobody need wait: ASYNC_FLUSH, or the log is on the disk up to ``end_offset``.

        Else an awaitable: DURABLE once it is, FLUSH_DISK_TIMEOUT after ``syncFlushTimeout`` or a failed flush.

        Raises OSError: without a started loop, when the flush fails.
        """
        return self._flush.durable(end_offset) if self._sync_flush else None

    def on_disk(self, end_offset: int) -> asyncio.Future[Durability] | None:
        """As ``durable``, whether sends wait for the disk or not."""
        return self._flush.durable(end_offset)

    def flush(self) -> None:
        """Bring the log to the disk now, and dispatch what waited for it. Raises OSError: the disk fails, and nothing
        is accepted any more."""
        try:
            self._flush.flush()
        finally:
            self._flushed()

    async def flushed(self) -> None:
        """As ``flush``, without keeping the event loop from its work. Raises OSError: the disk fails, or hangs."""
        try:
            await self._flush.catch_up()
        finally:
            self._flushed()

    def _flushed(self) -> None:
        if self._flush.fault is not None and not (self.appender.refusal or "").startswith("the commit log could"):
            log.error("flush_failed", fault=str(self._flush.fault))
            self.appender.refusal = f"the commit log could not be flushed: {self._flush.fault.strerror}; restart"
            if self._id is not None and not self._sync_flush:
                with suppress(OSError):  # of the same disk
                    self._id.lose("a flush failed, and messages were acknowledged before")
        if self._sync_flush:
            self.drain()

    def show(self, limit: int) -> None:
        """Dispatch up to here: at once, or where something was written in this turn of the loop together with that."""
        self.visible_limit = limit
        if self._sync_flush or not self.appender.woken:
            self._dispatch.drain(min(limit, self._flush.flushed) if self._sync_flush else limit)

    def drain(self) -> int:
        """Dispatch what may be seen; returns the number of messages."""
        self.appender.woken = False
        if self.on_written is not None:
            self.on_written()
        limit = self._flush.flushed if self._sync_flush else None
        if self.visible_limit is not None:
            limit = self.visible_limit if limit is None else min(limit, self.visible_limit)
        return self._dispatch.drain(limit)

    # ---- reading

    def get(self, topic: str, queue_id: int, offset: int, max_messages: int, match: Matcher | None = None) -> Got:
        """Messages of a queue from ``offset`` on, by RocketMQ's rules.

        Raises:
            NotInMemory: the store is started, and data must be read from the disk: ask ``get_cold``.
            OSError: the disk fails.
        """
        return self.reader.get(topic, queue_id, offset, max_messages, match, wait=self._cold is None)

    async def get_cold(
        self, topic: str, queue_id: int, offset: int, max_messages: int, match: Matcher | None = None
    ) -> Got:
        """As ``get``, in a thread that waits for the disk."""
        work = partial(self.reader.get, topic, queue_id, offset, max_messages, match, wait=True)
        return await self._scheduler.in_thread(self._cold, work)

    def record(self, physical_offset: int) -> bytes | None:
        """The whole record that begins at a commit log offset; None when there is none, or it is damaged.

        This and the following lookups wait for the disk; ``lookup`` does it in a thread.
        """
        return self.disk_lookup.record(physical_offset)

    def query(self, topic: str, key: str, max_messages: int, begin: int, end: int) -> Found:
        """As ``Lookup.query``."""
        return self.disk_lookup.query(topic, key, max_messages, begin, end)

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """As ``Lookup.store_time``."""
        return self.disk_lookup.store_time(topic, queue_id, offset)

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """As ``Lookup.earliest_store_time``."""
        return self.disk_lookup.earliest_store_time(topic, queue_id)

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        """As ``Lookup.offset_by_time``."""
        return self.disk_lookup.offset_by_time(topic, queue_id, timestamp)

    async def lookup(self, work: Callable[[Lookup], T]) -> T:
        """What ``work`` finds out with the questions of a ``Lookup``; in a thread when the disk must be waited for.

        It may be begun twice, and in a thread while the store changes: it only asks.
        """
        if self._cold is None:
            return work(self.disk_lookup)
        try:
            return work(self._cached_lookup)
        except NotInMemory:
            return await self._scheduler.in_thread(self._cold, lambda: work(self.disk_lookup))

    def hot(self, physical_offset: int, size: int) -> memoryview | None:
        """Bytes of the log where they need no reading from the disk, else None."""
        return self.commit_log.view(physical_offset, size) if physical_offset >= self.commit_log.hot_from else None

    async def shown(self, physical_offset: int, *, in_queue: bool = False) -> bytes | None:
        """As ``record``, for a peer that names the place: None also for what readers may not see yet.

        ``in_queue``: only what a queue has there, for a peer who might have made the place himself, in a body of his.
        """
        if physical_offset >= self._dispatch.position:
            return None
        if in_queue:
            return await self.lookup(lambda there: there.message(physical_offset))
        return await self.lookup(lambda there: there.record(physical_offset))

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Offset of a queue's oldest message; 0 for a queue that is not there."""
        queue = self._queues.queues.get((topic, queue_id))
        return queue.min_offset if queue is not None else 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        """One after a queue's newest readable message; 0 for a queue that is not there."""
        queue = self._queues.queues.get((topic, queue_id))
        return queue.max_offset if queue is not None else 0

    def unit(self, topic: str, queue_id: int, offset: int) -> tuple[int, int, int] | None:
        """Commit log offset, size and tag code of a unit of a queue; None without one."""
        queue = self._queues.queues.get((topic, queue_id))
        return self._queues.unit(queue, offset) if queue is not None else None

    def units(self, topic: str, queue_id: int, offset: int, count: int) -> list[tuple[int, int, int]]:
        """As ``unit``, of several units from ``offset`` on; fewer where the queue or one of its files ends."""
        queue = self._queues.queues.get((topic, queue_id))
        if queue is None or not 0 <= offset < queue.max_offset:
            return []
        return list(UNIT_FORM.iter_unpack(self._queues.units(queue, offset, count)))

    def records_since(self, position: int) -> Iterator[Record]:
        """The sound records of the log from ``position``, where a record begins or the log ends; bodies unchecked."""
        scan = Scan(self.commit_log, check_crc=False, reached=lambda _: self.progress.check())
        return scan.records(max(position, self.commit_log.min_offset))

    def queue_ids(self, topic: str) -> list[int]:
        """The queues of a topic that exist in the store."""
        return sorted(queue_id for name, queue_id in self._queues.queues if name == topic)

    def topics(self) -> set[str]:
        """The topics that have a queue in the store."""
        return {topic for topic, _ in self._queues.queues}

    # ---- writing out and deleting

    def persist(self, *, sync: bool = True) -> None:
        """As ``Housekeeping.persist``."""
        self.housekeeping.persist(sync=sync)

    def check_disk(self) -> None:
        """As ``Housekeeping.check_disk``."""
        self.housekeeping.check_disk()

    @property
    def distrust(self) -> str | None:
        """As ``Housekeeping.distrust``."""
        return self.housekeeping.distrust

    async def clean(self, *, by_hand: bool = False) -> int:
        """As ``Scheduler.clean``."""
        return await self._scheduler.clean(by_hand=by_hand)

    def drop_topic(self, topic: str, most: int | None = None, *, before: int | None = None) -> int:
        """As ``Housekeeping.drop_topic``."""
        self.drain()
        return self.housekeeping.drop_topic(topic, most, before=before)

    def reaching_before(self, topic: str, physical_offset: int) -> int:
        """As ``Housekeeping.reaching_before``."""
        return self.housekeeping.reaching_before(topic, physical_offset)

    def drop_unused(self, used: set[str], most: int | None = None) -> list[str]:
        """Delete the queues of topics that are not in ``used``, at most ``most``; returns those topics."""
        self.drain()
        return self.housekeeping.drop_unused(used, most)

    def queue_keys(self) -> list[tuple[str, int]]:
        """Topic and id of each queue."""
        return list(self._queues.queues)

    def drop_expired_queues(self, keys: Iterable[tuple[str, int]]) -> int:
        """Delete those of the queues whose newest message is older than the log; returns how many."""
        self.drain()
        return self.housekeeping.drop_expired_queues(keys)

    # ---- figures

    @property
    def flush_fault(self) -> OSError | None:
        """The error of a failed flush, after which nothing is accepted any more; None without one."""
        return self._flush.fault

    @property
    def flush_hangs(self) -> bool:
        """Whether a flush of the log has not returned for long: the disk hangs."""
        return self._flush.hangs

    @property
    def fsyncs(self) -> Histogram:
        """The seconds that bringing the log to the disk took."""
        return self._flush.took

    def figures(self) -> Figures:
        """The store's state in numbers."""
        log, flush, reader = self.commit_log, self._flush, self.reader
        return Figures(
            min_offset=log.min_offset,
            max_offset=log.position,
            flushed_offset=flush.flushed,
            dispatch_behind_bytes=log.position - self._dispatch.position if self._dispatch.pending else 0,
            flush_behind_bytes=max(log.position - flush.flushed, 0),
            disk_ratio=self.housekeeping.disk.ratio if self.housekeeping.disk is not None else -1.0,
            puts=self.appender.puts,
            put_bytes=self.appender.put_bytes,
            put_failed=self.appender.failed,
            gets_found=reader.found,
            gets_missed=reader.missed,
            gets_messages=reader.messages,
            damaged_records=reader.damaged + len(self.recovery.damages) + len(self.replicator.damages),
            skipped_bytes=self.recovery.skipped_bytes,
            flushes=flush.count,
            refusal=self.refusal,
        )


def _log_damage(topic: str, queue_id: int, queue_offset: int, offset: int) -> None:
    log.error("message_damaged", topic=topic, queue_id=queue_id, queue_offset=queue_offset, offset=offset)
