"""Data that is not in memory: what is asked of it is answered in a thread; a failing disk is an error, no signal."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from eruca.broker.store import Store
from eruca.broker.store.lookup import Lookup
from tests.support.file_systems import Switched
from tests.support.stores import Clock, open_store, put

KEY = b"UNIQ_KEY\x01key"
QUESTIONS: dict[str, Callable[[Lookup], object]] = {
    "record": lambda there: there.record(0),
    "query": lambda there: there.query("T", "key", 1, 0, 2**62).records,
    "units": lambda there: there.units("T", 0, range(2)),
    "store_time": lambda there: there.store_time("T", 0, 3),
    "earliest_store_time": lambda there: there.earliest_store_time("T", 0),
    "offset_by_time": lambda there: there.offset_by_time("T", 0, 1_700_000_000_050),
}


async def opened_again(path: Path, disk: Switched | None = None) -> Store:
    """A store whose messages were all written by an earlier run."""
    clock = Clock()
    store = open_store(path, clock)
    for number in range(100):
        put(store, "T", 0, b"%d" % number, KEY if number == 0 else b"")
        clock.now += 1
    store.drain()
    store.close()
    store = open_store(path, clock, file_system=disk)
    store.start()
    return store


async def ended(store: Store) -> None:
    await store.stop()
    store.close()


@pytest.mark.parametrize("question", QUESTIONS)
async def test_the_loop_never_waits_for_the_disk(tmp_path: Path, question: str) -> None:
    disk = Switched()
    disk.cold = True
    store = await opened_again(tmp_path, disk)
    expected = QUESTIONS[question](store.disk_lookup)
    disk.readers.clear()
    for queue in store._queues.queues.values():
        queue.cache = (0, b"")
    assert await store.lookup(QUESTIONS[question]) == expected
    assert expected not in (None, [], -1, 0)
    assert disk.readers and threading.main_thread() not in disk.readers
    await ended(store)


@pytest.mark.parametrize("question", QUESTIONS)
async def test_what_is_in_memory_is_answered_at_once(tmp_path: Path, question: str) -> None:
    store = await opened_again(tmp_path)
    expected = QUESTIONS[question](store.disk_lookup)  # now it is in the page cache
    try:
        store.lookup(QUESTIONS[question]).send(None)
    except StopIteration as answer:
        assert answer.value == expected
    else:
        pytest.fail("it was waited for")
    await ended(store)


async def test_what_an_earlier_run_wrote_is_not_read_through_the_mapping(tmp_path: Path) -> None:
    """A page that the disk cannot give would end the process by SIGBUS; a read is an error that can be answered."""
    store = await opened_again(tmp_path)
    log = store.commit_log
    assert log.hot_from == log.position
    assert isinstance(log.bytes_at(0, 100, wait=True), bytes)
    offset = put(store, "T", 0, b"of this run")
    assert isinstance(log.bytes_at(offset, 100, wait=False), memoryview)
    await ended(store)


async def test_a_disk_that_fails_is_said(tmp_path: Path) -> None:
    disk = Switched()
    store = await opened_again(tmp_path, disk)
    disk.broken = True
    with pytest.raises(OSError, match="Input/output error"):
        await store.lookup(lambda there: there.record(0))
    disk.broken = False
    assert await store.lookup(lambda there: there.record(0)) is not None
    await ended(store)
