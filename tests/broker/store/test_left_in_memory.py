"""What a killed process, or a failed flush, has left in memory only looks as if it were on the disk: it is brought
there before anything counts on it."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from eruca.broker.store import FileSystem, Store
from eruca.broker.store.cut import intend_cut
from tests.support.stores import open_store, put, small_config


class Noting(FileSystem):
    """Notes what is flushed and what is written; flushes of files with ``failing`` in their path fail."""

    def __init__(self, failing: str | None = None) -> None:
        self.failing = failing
        self.flushed: set[str] = set()
        self.written: dict[str, set[int]] = {}
        """The places of each file that were written."""

    def flush(self, fd: int) -> None:
        if self.failing is not None and self.failing in _path(fd):
            raise OSError(errno.EIO, "Input/output error")
        self.flushed.add(_path(fd))
        super().flush(fd)

    def flush_folder(self, path: Path | str) -> None:
        self.flushed.add(str(path))
        super().flush_folder(path)

    def write(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> int:
        self.written.setdefault(_path(fd), set()).update(range(position, position + len(data)))
        return super().write(fd, data, position)


def _path(fd: int) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")


def killed(folder: Path) -> Path:
    """A store whose process was killed: its first messages are on the disk, its last were given to the system."""
    store = open_store(folder / "open")
    for number in range(10):
        put(store, "Old", number % 2, b"x" * 50)
    store.drain()
    store.flush()
    store.persist()
    for number in range(200):
        put(store, "New", number % 2, b"x" * 50, b"KEYS\x01k%d" % number)
    store.drain()
    store.persist(sync=False)
    shutil.copytree(folder / "open", folder / "killed")
    assert store.close() is None
    return folder / "killed"


@pytest.mark.parametrize("marked", [True, False])
def test_an_opening_flushes_what_a_killed_process_has_left(tmp_path: Path, marked: bool) -> None:
    root, disk = killed(tmp_path), Noting()
    if not marked:
        (root / "eruca.mark").unlink()
    store = open_store(root, file_system=disk)
    mark = store.housekeeping.mark
    assert mark.synced == mark.written == store.figures().max_offset
    newer = [*(root / "commitlog").iterdir(), *(root / "consumequeue" / "New").glob("*/*"), *(root / "index").iterdir()]
    folders = ["commitlog", "config", "consumequeue", "consumequeue/New", "consumequeue/New/0", "index"]
    assert {str(path) for path in newer} | {str(root / name) for name in folders} <= disk.flushed
    store.close()


def test_an_opening_after_an_orderly_stop_flushes_no_queue(tmp_path: Path) -> None:
    store = Store(small_config(tmp_path))
    store.open()
    put(store, "T", 0, b"x")
    store.close()
    disk = Noting()
    open_store(tmp_path, file_system=disk).close()
    assert not [path for path in disk.flushed if "/consumequeue" in path]


@pytest.mark.parametrize("started", [False, True])
async def test_what_could_not_be_flushed_of_the_log_is_written_again(tmp_path: Path, started: bool) -> None:
    disk = Noting()
    store = open_store(tmp_path, file_system=disk, flush_disk_type="SYNC_FLUSH")
    put(store, "T", 0, b"x" * 100)
    store.flush()
    if started:
        store.start()
    first, disk.failing = store.figures().flushed_offset, "/commitlog/"
    for _ in range(5):
        put(store, "T", 0, b"x" * 1000)
    end = store.figures().max_offset
    if started:
        waiter = store.durable(end)
        assert waiter is not None
        await waiter
        await store.stop()
    else:
        with pytest.raises(OSError, match="Input/output error"):
            store.flush()
    assert set(range(first, end)) <= disk.written[str(tmp_path / "commitlog" / f"{0:020d}")]
    assert store.close() is not None


@pytest.mark.parametrize("part", ["/consumequeue/", "/index/"])
def test_what_could_not_be_flushed_of_queues_and_index_is_written_again(tmp_path: Path, part: str) -> None:
    disk = Noting()
    store = open_store(tmp_path, file_system=disk)
    for number in range(15):
        put(store, "T", 0, b"x", b"KEYS\x01k%d" % number)
    store.drain()
    store.flush()
    store.persist(sync=False)
    disk.failing = part
    disk.written.clear()
    with pytest.raises(OSError, match="Input/output error"):
        store.persist()
    [written] = [places for path, places in disk.written.items() if part in path]
    assert set(range(15 * 20)) <= written
    before, disk.failing = store.housekeeping.mark.synced, None
    store.persist()
    assert before < store.housekeeping.mark.synced == store.figures().max_offset
    store.close()


def test_what_was_cut_off_the_log_is_cut_off_again_after_a_failed_flush(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    starts = [put(store, "T", 0, b"x" * 100) for _ in range(20)]
    end = store.figures().max_offset
    store.close()
    intend_cut(small_config(tmp_path), starts[5], FileSystem())
    disk = Noting("/commitlog/")
    with pytest.raises(OSError, match="Input/output error"):
        Store(small_config(tmp_path), file_system=disk).finish_cut()
    assert set(range(starts[5], end)) <= disk.written[str(tmp_path / "commitlog" / f"{0:020d}")]
    Store(small_config(tmp_path)).finish_cut()
