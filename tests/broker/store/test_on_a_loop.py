"""The store on an event loop: dispatch after the request, group commit, cold reads, failed flushes."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from eruca.broker.store import NotInMemory, PutStatus, Store, flush, native
from eruca.broker.store.flush import PATIENCE
from eruca.broker.store.flush_thread import FlushThread, Job
from eruca.broker.store.results import Durability
from tests.support.file_systems import Switched
from tests.support.stores import HOST, bodies, open_store, put, small_config


async def started(path: Path, disk: Switched | None = None, **changes: Any) -> Store:
    store = open_store(path, file_system=disk, **changes)
    store.start()
    return store


async def ended(store: Store) -> None:
    await store.stop()
    store.close()


@pytest.fixture
def disk() -> Iterator[Switched]:
    """A sound disk; whatever a test held there goes on after it."""
    disk = Switched()
    yield disk
    disk.release()


async def test_a_message_is_dispatched_after_the_round_of_the_loop(tmp_path: Path) -> None:
    store = await started(tmp_path)
    arrived = asyncio.get_running_loop().create_future()
    store.on_arrival = lambda *arrival: arrived.set_result(arrival)
    put(store, "T", 0, b"one")
    put(store, "T", 0, b"two")
    assert store.max_offset("T", 0) == 0
    assert store.durable(store.figures().max_offset) is None
    assert await asyncio.wait_for(arrived, 5) == ("T", 0, 2, [0, 0])
    assert bodies(store, "T", 0) == [b"one", b"two"]
    await ended(store)


@pytest.mark.parametrize("flush_disk_type", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_what_comes_while_nothing_may_be_seen_is_told_too(tmp_path: Path, flush_disk_type: str) -> None:
    """Replicas are sent the next message while the one before it waits for them."""
    store = await started(tmp_path, flush_disk_type=flush_disk_type)
    store.visible_limit = 0
    told: asyncio.Queue[int] = asyncio.Queue()
    store.on_written = lambda: told.put_nowait(store.replicator.safe_offset)
    for number in range(3):
        put(store, "T", 0, b"%d" % number)
        async with asyncio.timeout(5):
            while await told.get() < store.figures().max_offset:
                pass
    assert store.max_offset("T", 0) == 0
    store.visible_limit = None
    assert store.drain() == 3
    await ended(store)


async def test_one_flush_releases_everybody_who_waits(tmp_path: Path, disk: Switched) -> None:
    store = await started(tmp_path, disk, flush_disk_type="SYNC_FLUSH", mapped_file_size_commit_log=1 << 20)
    disk.hold()
    flushes = store.figures().flushes
    waiting = []
    for number in range(100):
        put(store, "T", 0, b"%d" % number)
        durable = store.durable(store.figures().max_offset)
        assert durable is not None
        waiting.append(asyncio.ensure_future(durable))
    await asyncio.sleep(0)
    assert store.max_offset("T", 0) == 0, "nobody reads what is not durable"
    disk.release()
    assert await asyncio.wait_for(asyncio.gather(*waiting), 10) == [Durability.DURABLE] * 100
    assert store.figures().flushes - flushes <= 2
    assert len(bodies(store, "T", 0)) == 100
    assert store.durable(store.figures().max_offset) is None
    await ended(store)


async def test_without_a_waiter_the_log_is_flushed_all_the_same(tmp_path: Path) -> None:
    store = await started(tmp_path, flush_disk_type="SYNC_FLUSH")
    arrived = asyncio.get_running_loop().create_future()
    store.on_arrival = lambda *arrival: arrived.set_result(arrival)
    put(store, "T", 0, b"one")
    await asyncio.wait_for(arrived, 5)
    assert store.figures().flush_behind_bytes == 0
    await ended(store)


async def test_what_comes_during_a_flush_is_flushed_next_without_a_waiter(tmp_path: Path, disk: Switched) -> None:
    store = await started(tmp_path, disk, flush_disk_type="SYNC_FLUSH", flush_interval_commit_log=3_600_000)
    disk.hold()
    arrived: asyncio.Queue[int] = asyncio.Queue()
    store.on_arrival = lambda topic, queue, end, codes: arrived.put_nowait(end)
    put(store, "T", 0, b"one")
    assert await asyncio.to_thread(disk.flushing.wait, 20)
    put(store, "T", 0, b"two")
    disk.release()
    while await asyncio.wait_for(arrived.get(), 5) < 2:
        pass
    await ended(store)


async def test_a_flush_that_takes_too_long(tmp_path: Path, disk: Switched) -> None:
    store = await started(tmp_path, disk, flush_disk_type="SYNC_FLUSH", sync_flush_timeout=20)
    disk.hold()
    put(store, "T", 0, b"one")
    durable = store.durable(store.figures().max_offset)
    assert durable is not None
    assert await asyncio.wait_for(durable, 5) is Durability.FLUSH_DISK_TIMEOUT
    disk.release()
    await ended(store)


async def test_a_slow_disk_holds_the_loop_up_once_and_for_a_moment(
    tmp_path: Path, disk: Switched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop waits for a flush itself while the disk is quick; after one wait in vain it does not for a while."""
    patiences: list[float] = []
    begin = FlushThread.begin

    def noted(thread: FlushThread, job: Job, patience: float = 0.0) -> bool:
        patiences.append(patience)
        return begin(thread, job, patience)

    monkeypatch.setattr(FlushThread, "begin", noted)
    monkeypatch.setattr(flush, "RESTS", (3600.0, 3600.0))
    store = await started(tmp_path, disk, flush_disk_type="SYNC_FLUSH", flush_interval_commit_log=3_600_000)
    for number, expected in enumerate(([PATIENCE], [PATIENCE, 0.0])):
        disk.hold()
        put(store, "T", 0, b"%d" % number)
        durable = store.durable(store.figures().max_offset)
        assert durable is not None
        for _ in range(4):
            await asyncio.sleep(0)
        assert patiences == expected
        disk.release()
        assert await asyncio.wait_for(durable, 10) is Durability.DURABLE
    await ended(store)


async def test_after_a_failed_flush_nothing_is_acknowledged(tmp_path: Path, disk: Switched) -> None:
    store = await started(tmp_path, disk, flush_disk_type="SYNC_FLUSH")
    disk.broken = True
    put(store, "T", 0, b"one")
    durable = store.durable(store.figures().max_offset)
    assert durable is not None
    assert await asyncio.wait_for(durable, 5) is Durability.FLUSH_DISK_TIMEOUT
    disk.broken = False
    refused = store.appender.put("T", 0, b"two", b"", born_timestamp=1, born_host=HOST, store_host=HOST)
    assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert "could not be flushed: Input/output error" in (store.refusal or "")
    again = store.durable(store.figures().max_offset)
    assert again is not None and await again is Durability.FLUSH_DISK_TIMEOUT
    store.check_disk()
    assert store.refusal is not None
    assert store.max_offset("T", 0) == 0
    await ended(store)
    assert (tmp_path / "abort").exists(), "the next start recovers"


@pytest.mark.usefixtures("chosen")
async def test_cold_data_is_read_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await started(tmp_path, hot_bytes=0)
    for number in range(50):
        put(store, "T", 0, b"%d" % number)
    await asyncio.sleep(0)
    now = store.get("T", 0, 0, 32)
    assert now.message_count == 32, "what is in the page cache needs no thread"

    threads = []
    fetch = native.fetch

    def not_fetched(*asked: Any) -> object:
        if not asked[8]:
            raise BlockingIOError
        threads.append(threading.current_thread())
        return fetch(*asked)

    monkeypatch.setattr(native, "fetch", not_fetched)
    with pytest.raises(NotInMemory):
        store.get("T", 0, 0, 32)
    got = await store.get_cold("T", 0, 0, 32)
    assert [bytes(one) for one in got.buffers] == [bytes(one) for one in now.buffers]
    assert threads and threading.main_thread() not in threads
    await ended(store)


async def test_units_and_mark_are_written_in_time(tmp_path: Path) -> None:
    store = await started(tmp_path, flush_interval_consume_queue=5, flush_consume_queue_thorough_interval=20)
    before = (tmp_path / "checkpoint").read_bytes()
    put(store, "T", 0, b"x")
    for _ in range(2000):
        await asyncio.sleep(0.005)
        if (tmp_path / "checkpoint").read_bytes() != before:
            break
    else:
        pytest.fail("no checkpoint was written")
    assert (tmp_path / "consumequeue/T/0" / ("0" * 20)).stat().st_size == 400
    await ended(store)


async def test_senders_do_not_wait_while_many_queues_are_flushed(tmp_path: Path, disk: Switched) -> None:
    """The files of consume queues have a thread of their own."""
    store = await started(
        tmp_path,
        disk,
        flush_disk_type="SYNC_FLUSH",
        flush_interval_consume_queue=1,
        flush_consume_queue_thorough_interval=1,
    )
    disk.hold_queues()
    put(store, "T", 0, b"first")
    assert await asyncio.to_thread(disk.flushing.wait, 20)
    put(store, "T", 0, b"second")
    durable = store.durable(store.figures().max_offset)
    assert durable is not None and await durable is Durability.DURABLE
    disk.release()
    await ended(store)


async def test_what_was_flushed_is_let_go() -> None:
    """A job holds files of the log; deleted ones would keep their blocks, and a full disk would stay full."""
    ended = asyncio.Event()
    thread = FlushThread(asyncio.get_running_loop(), lambda fault: ended.set())
    files = Switched()
    alive = weakref.ref(files)
    thread.begin(partial(Switched.release, files))
    del files
    await asyncio.wait_for(ended.wait(), 10)
    assert alive() is None
    thread.stop()


async def test_stopping_leaves_no_thread(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    store = await started(tmp_path)
    put(store, "T", 0, b"x")
    await ended(store)
    names = {thread.name for thread in set(threading.enumerate()) - before}
    assert not {name for name in names if name.startswith("store")}
    store = Store(small_config(tmp_path))
    assert store.open().clean
    assert bodies(store, "T", 0) == [b"x"]
    store.close()


@pytest.mark.slow
async def test_a_flush_that_does_not_return_is_logged_and_keeps_nobody_from_work(
    tmp_path: Path, disk: Switched
) -> None:
    store = await started(
        tmp_path, disk, flush_disk_type="SYNC_FLUSH", flush_interval_commit_log=10, sync_flush_timeout=50
    )
    disk.hold()
    put(store, "T", 0, b"one")
    waits = store.durable(store.figures().max_offset)
    assert waits is not None and not store.flush_hangs
    with capture_logs() as said:
        with pytest.raises(OSError, match="does not return"):
            await store.flushed()
        assert store.flush_hangs and store.flush_fault is None and store.max_offset("T", 0) == 0
        async with asyncio.timeout(5):
            while not said:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert await waits is Durability.FLUSH_DISK_TIMEOUT
        disk.release()
        async with asyncio.timeout(5):
            while store.flush_hangs:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert [line["event"] for line in said] == ["flush_hangs", "slow_flush"]
    await store.flushed()
    assert not store.flush_hangs and bodies(store, "T", 0) == [b"one"]
    await ended(store)
