"""After a power failure under SYNC_FLUSH a store keeps its id unless something is gone that was flushed, and this also
where the mark is not there: it is not flushed by itself."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from eruca.broker.store import FileSystem, Store
from eruca.broker.store.cut import cut_files, intend_cut
from eruca.broker.store.damage_mark import read_damage
from eruca.broker.store.marks import Checkpoint, read_checkpoint, write_checkpoint
from tests.support.stores import Clock, put, small_config, spoil

BOOT, NEXT_BOOT = "0b1d0000-0001", "0b1d0000-0002"


class Failed:
    """A store of one moment, whose power failed when ten messages were flushed and ten more were not; its mark is not
    on the disk."""

    def __init__(self, root: Path, flush: str = "SYNC_FLUSH") -> None:
        self.root, self.clock = root, Clock()
        store = self.opened(BOOT, flush)
        self.id = store.store_id
        self.flushed = [put(store, "T", 0, b"flushed") for _ in range(10)]
        store.flush()
        store.persist()
        self.not_flushed = [put(store, "T", 0, b"not flushed") for _ in range(10)]
        self.end = store.figures().max_offset
        shutil.copytree(root, root.with_name("power failed"))
        assert store.close() is None
        shutil.rmtree(root)
        os.rename(root.with_name("power failed"), root)
        (root / "eruca.mark").unlink()

    def opened(self, boot: str, flush: str = "SYNC_FLUSH") -> Store:
        store = Store(small_config(self.root, flush_disk_type=flush), self.clock, boot=boot)
        store.open()
        return store

    def end_at(self, offset: int) -> None:
        os.truncate(self.root / "commitlog" / f"{0:020d}", offset)
        os.truncate(self.root / "commitlog" / f"{0:020d}", 8192)

    def id_then(self, boot: str = NEXT_BOOT, flush: str = "SYNC_FLUSH") -> str:
        store = self.opened(boot, flush)
        found = store.store_id
        assert store.close() is None
        return found


@pytest.mark.parametrize("number", [0, 4])
def test_what_was_not_flushed_may_be_torn(tmp_path: Path, number: int) -> None:
    """Its time is that of the last message that was flushed: a time does not tell them apart."""
    store = Failed(tmp_path / "store")
    spoil(store.root, store.not_flushed[number], 100)
    assert store.id_then() == store.id
    assert read_damage(store.root) == store.not_flushed[number]


def test_what_was_not_flushed_may_be_gone(tmp_path: Path) -> None:
    store = Failed(tmp_path / "store")
    store.end_at(store.not_flushed[0])
    assert store.id_then() == store.id


@pytest.mark.parametrize("boot", [BOOT, NEXT_BOOT])
@pytest.mark.parametrize("how", ["torn", "its end gone", "all of it gone"])
def test_what_was_flushed_may_not(tmp_path: Path, how: str, boot: str) -> None:
    store = Failed(tmp_path / "store")
    if how == "torn":
        spoil(store.root, store.flushed[-1], 100)
    elif how == "its end gone":
        shutil.rmtree(store.root / "consumequeue")
        store.end_at(store.flushed[-1])
    else:
        shutil.rmtree(store.root / "consumequeue")
        shutil.rmtree(store.root / "commitlog")
    assert store.id_then(boot) != store.id


def test_nor_where_the_store_was_closed_in_order(tmp_path: Path) -> None:
    store = Failed(tmp_path / "store")
    assert store.id_then() == store.id
    (store.root / "eruca.mark").unlink()
    shutil.rmtree(store.root / "consumequeue")
    store.end_at(store.flushed[5])
    assert store.id_then() != store.id


def test_the_times_of_another_program_say_nothing_of_an_offset(tmp_path: Path) -> None:
    """RocketMQ writes its three times into the file, and leaves what is behind them."""
    store = Failed(tmp_path / "store")
    assert read_checkpoint(store.root).flushed == store.not_flushed[0]
    with (store.root / "checkpoint").open("r+b") as file:
        file.write((store.clock.now - 5).to_bytes(8, "big"))
    assert read_checkpoint(store.root) == Checkpoint(store.clock.now - 5, store.clock.now, 0, None)
    spoil(store.root, store.flushed[-1], 100)
    assert store.id_then() != store.id  # by the time


def test_one_byte_of_the_offset_is_noticed(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, Checkpoint(3, 2, 1, 700), FileSystem())
    content = (tmp_path / "checkpoint").read_bytes()
    assert read_checkpoint(tmp_path) == Checkpoint(3, 2, 1, 700)
    for at in range(512):
        changed = bytearray(content)
        changed[at] ^= 1
        (tmp_path / "checkpoint").write_bytes(changed)
        assert read_checkpoint(tmp_path).flushed in (None, 700)
    write_checkpoint(tmp_path, Checkpoint(3, 2, 1), FileSystem())
    assert read_checkpoint(tmp_path) == Checkpoint(3, 2, 1)


def nothing(store: Failed, end: int) -> None:
    """The power failed when the cut was written down."""


def files_cut(store: Failed, end: int) -> None:
    """The power failed when the files of the log were cut."""
    cut_files(small_config(store.root, flush_disk_type="SYNC_FLUSH"), end, FileSystem())


@pytest.mark.parametrize("boot", [BOOT, NEXT_BOOT])
@pytest.mark.parametrize("done", [nothing, files_cut])
def test_a_cut_that_the_master_asks_for_keeps_the_id_when_the_power_fails_in_it(
    tmp_path: Path, done: Callable[[Failed, int], None], boot: str
) -> None:
    """Checkpoint and units say that the log was flushed behind the cut. It was, and only the master's counts."""
    store = Failed(tmp_path / "store")
    assert store.id_then() == store.id
    end = store.flushed[5]
    config = small_config(store.root, flush_disk_type="SYNC_FLUSH")
    assert intend_cut(config, end, FileSystem(), as_master=True) is not None
    (store.root / "abort").touch()
    done(store, end)
    Store(config, store.clock, boot=boot).finish_cut()
    assert read_checkpoint(store.root).flushed == end
    assert store.id_then(boot) == store.id


def test_damage_before_a_cut_takes_the_id(tmp_path: Path) -> None:
    store = Failed(tmp_path / "store")
    assert store.id_then() == store.id
    config = small_config(store.root, flush_disk_type="SYNC_FLUSH")
    assert intend_cut(config, store.flushed[5], FileSystem(), as_master=True) is not None
    (store.root / "abort").touch()
    spoil(store.root, store.flushed[3], 100)
    Store(config, store.clock, boot=NEXT_BOOT).finish_cut()
    assert store.id_then() != store.id


def test_after_a_cut_the_time_of_what_is_gone_takes_nothing(tmp_path: Path) -> None:
    """Another master's clock may be behind."""
    store = Failed(tmp_path / "store")
    store.clock.now += 60_000
    opened = store.opened(NEXT_BOOT)
    start = put(opened, "T", 0, b"of the former master")
    assert opened.close() is None
    config = small_config(store.root, flush_disk_type="SYNC_FLUSH")
    assert intend_cut(config, start, FileSystem(), as_master=True) is not None
    Store(config, store.clock, boot=NEXT_BOOT).finish_cut()
    (store.root / "abort").touch()
    (store.root / "eruca.mark").unlink()
    assert store.id_then("0b1d0000-0003") == store.id
