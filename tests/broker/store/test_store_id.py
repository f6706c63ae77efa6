"""The id of a store: it stays as long as the log has what it had, and is another one in every other case."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import pytest

from eruca.broker.failover.epochs import Epoch
from eruca.broker.store import FileSystem, RecoveryStopped, Store
from eruca.broker.store.backup import back_up, restore
from eruca.broker.store.backup_files import BackupFault
from eruca.broker.store.cut import intend_cut
from eruca.broker.store.damage_mark import read_damage
from eruca.broker.store.epoch_file import read_epochs, write_epochs
from eruca.broker.store.store_id import Kept, read_store_id
from eruca.remoting.operating_system import boot_id
from tests.support.stores import Clock, put, queue_units, small_config, spoil

BOOT, NEXT_BOOT = "0b1d0000-0001", "0b1d0000-0002"
COUNT = 60
"""Messages; the log has several files."""


def opened(
    root: Path, boot: str | None = BOOT, file_system: FileSystem | None = None, flush: str = "ASYNC_FLUSH"
) -> Store:
    store = Store(small_config(root, flush_disk_type=flush), boot=boot, file_system=file_system)
    store.open()
    return store


def id_of(root: Path, boot: str | None = BOOT, flush: str = "ASYNC_FLUSH") -> str:
    """The id that an opening finds or gives; the store is closed in order then."""
    store = opened(root, boot, flush=flush)
    found = store.store_id
    assert store.close() is None
    return found


def written(root: Path, flush: str = "ASYNC_FLUSH") -> tuple[str, list[int]]:
    """A store of messages, closed; its id, where each message begins, and where the log ends."""
    store = opened(root, flush=flush)
    starts = [put(store, "T", 0, b"%d" % number * 20) for number in range(COUNT)]
    found, end = store.store_id, store.figures().max_offset
    assert store.close() is None
    return found, [*starts, end]


def killed(root: Path) -> None:
    """As if the store had not been closed."""
    (root / "abort").touch()


def test_an_id_is_as_long_as_no_other_can_be_the_same_and_stays(tmp_path: Path) -> None:
    one, other = id_of(tmp_path / "one"), id_of(tmp_path / "other")
    assert len(one) == 32 and one != other
    assert id_of(tmp_path / "one") == id_of(tmp_path / "one", NEXT_BOOT) == one
    assert read_store_id(tmp_path / "one") == Kept(one, NEXT_BOOT, "ASYNC_FLUSH")


def test_this_machine_says_which_boot_it_is() -> None:
    assert boot_id() == boot_id()
    assert boot_id() or not Path("/proc").exists()


@pytest.mark.parametrize(
    ("flush", "boot", "stays"),
    [
        ("ASYNC_FLUSH", BOOT, True),
        ("ASYNC_FLUSH", NEXT_BOOT, False),
        ("ASYNC_FLUSH", "", False),
        ("SYNC_FLUSH", BOOT, True),
        ("SYNC_FLUSH", NEXT_BOOT, True),
    ],
)
def test_a_kill_leaves_the_id_and_a_power_failure_where_the_disk_has_what_was_acknowledged(
    tmp_path: Path, flush: str, boot: str, stays: bool
) -> None:
    before, _ = written(tmp_path, flush=flush)
    killed(tmp_path)
    after = id_of(tmp_path, boot, flush=flush)
    assert (after == before) is stays
    assert id_of(tmp_path, boot, flush=flush) == after


def test_a_machine_that_does_not_name_its_boots_is_another_one_each_time(tmp_path: Path) -> None:
    before = id_of(tmp_path, "")
    assert id_of(tmp_path, "") == before
    killed(tmp_path)
    assert id_of(tmp_path, "") != before


@pytest.mark.parametrize("content", [b"", b"x", b"0" * 32 + b" 0\n00000000\n"])
def test_a_damaged_or_missing_file_is_no_id(tmp_path: Path, content: bytes) -> None:
    before, _ = written(tmp_path)
    (tmp_path / "eruca.store").write_bytes(content)
    assert read_store_id(tmp_path) is None
    after = id_of(tmp_path)
    assert after != before
    (tmp_path / "eruca.store").unlink()
    assert id_of(tmp_path) not in (before, after)


@pytest.mark.parametrize("how", ["in order", "killed"])
def test_damage_in_the_log_takes_the_id(tmp_path: Path, how: str) -> None:
    before, starts = written(tmp_path)
    spoil(tmp_path, starts[-10])
    if how == "killed":
        killed(tmp_path)
    assert id_of(tmp_path) != before


# ---------------------------------------------------------------------- what a power failure leaves under SYNC_FLUSH


class Torn:
    """A store that was open with SYNC_FLUSH when the power failed: its last messages were not flushed, and one of
    them has not come to the disk, but some behind it have."""

    def __init__(self, folder: Path, flushed: Callable[[Store], object], flush: str = "SYNC_FLUSH") -> None:
        clock = Clock()
        store = Store(small_config(folder / "open", flush_disk_type=flush), clock, boot=BOOT)
        store.open()
        self.id = store.store_id
        for _ in range(10):
            put(store, "T", 0, b"flushed")
        store.flush()
        store.persist()
        clock.now += 1000
        starts = [put(store, "T", 0, b"not flushed") for _ in range(10)]
        flushed(store)
        self.root, self.first, self.damage = folder / "torn", starts[0], starts[4]
        shutil.copytree(folder / "open", self.root)
        assert store.close() is None
        spoil(self.root, self.damage, 100)


def nothing(store: Store) -> None:
    """Nothing was flushed since the mark."""


def flushed_with(store: Store, *names: str) -> None:
    """All was flushed and written out, but of that only these files came to the disk."""
    root = store.config.store_path_root_dir
    kept = [path for path in root.rglob("*") if path.is_file() and path.relative_to(root).parts[0] not in names]
    before = {path: path.read_bytes() for path in kept}
    store.flush()
    store.persist()
    for path, content in before.items():
        path.write_bytes(content)


def marked(store: Store) -> None:
    """There is a mark."""
    flushed_with(store, "commitlog", "eruca.mark", "checkpoint")


def in_queues(store: Store) -> None:
    """The units are in their queues."""
    flushed_with(store, "commitlog", "consumequeue")


def checked(store: Store) -> None:
    """There is a checkpoint without its mark."""
    flushed_with(store, "commitlog", "checkpoint")


def unmarked(store: Store) -> None:
    """Nothing was flushed since the checkpoint, whose mark is not there."""
    (store.config.store_path_root_dir / "eruca.mark").unlink()


@pytest.mark.parametrize("flushed", [nothing, unmarked])
def test_a_log_torn_behind_all_that_was_flushed_keeps_its_id_and_says_where(
    tmp_path: Path, flushed: Callable[[Store], object]
) -> None:
    """Nobody was answered for what lies there."""
    torn = Torn(tmp_path, flushed)
    assert id_of(torn.root, NEXT_BOOT, flush="SYNC_FLUSH") == torn.id
    assert read_damage(torn.root) == torn.damage
    assert id_of(torn.root, NEXT_BOOT, flush="SYNC_FLUSH") == torn.id


@pytest.mark.parametrize("flushed", [marked, in_queues, checked])
def test_damage_of_what_was_flushed_takes_the_id_though_the_power_failed(
    tmp_path: Path, flushed: Callable[[Store], object]
) -> None:
    torn = Torn(tmp_path, flushed)
    assert id_of(torn.root, NEXT_BOOT, flush="SYNC_FLUSH") != torn.id
    assert read_damage(torn.root) == torn.damage


@pytest.mark.parametrize(
    ("flushed", "stays"), [(nothing, True), (unmarked, True), (marked, False), (in_queues, False), (checked, False)]
)
def test_an_end_that_the_disk_has_lost_takes_the_id_where_it_was_flushed(
    tmp_path: Path, flushed: Callable[[Store], object], stays: bool
) -> None:
    torn = Torn(tmp_path, flushed)
    os.truncate(torn.root / "commitlog" / f"{0:020d}", torn.first)
    os.truncate(torn.root / "commitlog" / f"{0:020d}", 8192)
    assert (id_of(torn.root, NEXT_BOOT, flush="SYNC_FLUSH") == torn.id) is stays
    assert read_damage(torn.root) is None


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("flushed", [marked, in_queues, checked])
def test_recoveries_that_end_early_take_nothing_that_says_what_was_flushed(
    tmp_path: Path, flushed: Callable[[Store], object], times: int
) -> None:
    """Units that are cut off are no more there for the next one, nor is a mark that it has replaced."""
    torn = Torn(tmp_path, flushed)
    units = len(queue_units(torn.root)["T/0"])
    (torn.root / "consumequeue" / "New").mkdir()  # of a message more than the mark counts: the queues are built again

    class Dies(FileSystem):
        def read(self, fd: int, position: int, size: int, *, wait: bool) -> bytes:
            if len(queue_units(torn.root).get("T/0", b"")) < units:
                raise OSError("dies when the units are cut off")
            return super().read(fd, position, size, wait=wait)

    for _ in range(times):
        with pytest.raises(OSError, match="dies when"):
            opened(torn.root, NEXT_BOOT, Dies(), flush="SYNC_FLUSH")
    assert id_of(torn.root, NEXT_BOOT, flush="SYNC_FLUSH") != torn.id
    assert read_damage(torn.root) == torn.damage


def test_where_nothing_can_be_kept_of_what_was_flushed_the_id_goes(tmp_path: Path) -> None:
    torn = Torn(tmp_path, in_queues)
    (torn.root / "eruca.store.tmp").mkdir()  # nothing can be written in its place
    with pytest.raises(OSError, match=r"eruca\.store"):
        opened(torn.root, NEXT_BOOT, flush="SYNC_FLUSH")
    assert read_store_id(torn.root) is None


class Lacking:
    """A store of a group whose power failed; of its last messages some bytes did not come to the disk."""

    def __init__(
        self, folder: Path, properties: bytes, lacks: Callable[[int, int], tuple[int, int]], flush: str = "SYNC_FLUSH"
    ) -> None:
        """``lacks``: which bytes, of a message that begins there and ends there."""
        store = opened(folder / "open", flush=flush)
        put(store, "T", 0, b"flushed")
        store.flush()
        store.persist()
        self.id, self.start = store.store_id, put(store, "T", 0, b"body", properties)
        end = put(store, "T", 0, b"next" * 300)
        put(store, "T", 0, b"behind it")
        self.root = folder / "torn"
        shutil.copytree(folder / "open", self.root)
        assert store.close() is None
        first, stop = lacks(self.start, end)
        file = self.root / "commitlog" / f"{0:020d}"
        content = bytearray(file.read_bytes())
        assert first < stop and any(content[first:stop])
        content[first:stop] = bytes(stop - first)
        file.write_bytes(content)


@pytest.mark.parametrize("length", [400, 1400])
@pytest.mark.parametrize("lacks", ["a sector", "the end of a sector", "the last sector", "the end of the last sector"])
def test_properties_that_came_to_the_disk_in_part_are_damage(tmp_path: Path, length: int, lacks: str) -> None:
    """No CRC covers them. Who takes them for the master's may be elected, and show others than were acknowledged."""

    def where(_: int, end: int) -> tuple[int, int]:
        last = end - end % 512
        match lacks:
            case "a sector":
                return (last - 512, last) if length > 1000 else (end - length, last)
            case "the end of a sector":
                return last - 20, last
            case "the last sector":
                return last, last + 512
            case _:
                return end - 1, last + 512

    torn = Lacking(tmp_path, b"TAGS\x01" + b"t" * length, where)
    assert id_of(torn.root, NEXT_BOOT, flush="SYNC_FLUSH") == torn.id
    assert read_damage(torn.root) == torn.start


@pytest.mark.parametrize(("boot", "sound"), [(BOOT, True), (NEXT_BOOT, False)])
def test_a_kill_makes_no_damage_of_properties_with_empty_bytes(tmp_path: Path, boot: str, sound: bool) -> None:
    torn = Lacking(tmp_path, b"TAGS\x01" + b"t" * 1400, lambda start, _: (start + 600, start + 1200))
    assert id_of(torn.root, boot, flush="SYNC_FLUSH") == torn.id
    assert (read_damage(torn.root) is None) is sound


def test_bodies_are_checked_in_a_group_whatever_the_configuration_says(tmp_path: Path) -> None:
    torn = Lacking(tmp_path, b"", lambda start, _: (start + 88, start + 92))
    config = small_config(torn.root, flush_disk_type="SYNC_FLUSH", check_crc_on_recover=False)
    store = Store(config, boot=NEXT_BOOT)
    store.open()
    assert read_damage(torn.root) == torn.start
    store.close()


def test_damage_before_the_mark_is_found_where_the_mark_says_nothing_of_flushes(tmp_path: Path) -> None:
    """Under ASYNC_FLUSH it counts what was given to the system. A log with gaps would be taken for the master's."""
    config = small_config(tmp_path / "open", recover_check_bytes=300)
    store = Store(config, boot=BOOT)
    store.open()
    put(store, "T", 0, b"flushed")
    store.drain()
    store.flush()
    store.persist()
    starts = [put(store, "T", 0, b"not flushed" * 9) for _ in range(20)]
    store.drain()
    store.persist(sync=False)
    shutil.copytree(tmp_path / "open", tmp_path / "torn")
    assert store.close() is None
    spoil(tmp_path / "torn", starts[3], 60)
    Store(small_config(tmp_path / "torn", recover_check_bytes=300), boot=NEXT_BOOT).open()
    assert read_damage(tmp_path / "torn") == starts[3]


@pytest.mark.parametrize("boot", [BOOT, ""])
def test_damage_takes_the_id_where_nothing_says_that_the_power_failed(tmp_path: Path, boot: str) -> None:
    """A kill tears nothing."""
    torn = Torn(tmp_path, nothing)
    assert id_of(torn.root, boot, flush="SYNC_FLUSH") != torn.id


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_what_counts_is_how_the_store_was_open_when_the_power_failed(tmp_path: Path, flush: str) -> None:
    """Sends were answered before the flush then, whatever the configuration says now."""
    torn = Torn(tmp_path, nothing, "ASYNC_FLUSH")
    assert id_of(torn.root, NEXT_BOOT, flush=flush) != torn.id

    before, _ = written(tmp_path / "whole", flush="SYNC_FLUSH")
    killed(tmp_path / "whole")
    assert id_of(tmp_path / "whole", NEXT_BOOT, flush=flush) == before


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_an_id_of_an_earlier_version_does_not_say_how_the_store_was_open(tmp_path: Path, flush: str) -> None:
    """Nor does the configuration, which may be another one by now: after a power failure the id goes."""
    before, _ = written(tmp_path / "store", flush=flush)
    line = f"{before} {BOOT}\n".encode()
    (tmp_path / "store" / "eruca.store").write_bytes(line + b"%08x\n" % crc32(line))
    assert read_store_id(tmp_path / "store") == Kept(before, BOOT, "")
    shutil.copytree(tmp_path / "store", tmp_path / "other")
    killed(tmp_path / "other")
    assert id_of(tmp_path / "other", flush="SYNC_FLUSH") == before
    killed(tmp_path / "store")
    assert id_of(tmp_path / "store", NEXT_BOOT, flush="SYNC_FLUSH") != before


def test_a_damaged_end_takes_the_id_unless_a_kill_left_it(tmp_path: Path) -> None:
    before, starts = written(tmp_path)
    for name in ("in order", "killed"):
        shutil.copytree(tmp_path, tmp_path.with_name(name))
    spoil(tmp_path.with_name("in order"), starts[-2])
    assert id_of(tmp_path.with_name("in order")) != before

    spoil(tmp_path.with_name("killed"), starts[-1], 40)  # of a record that was being written
    killed(tmp_path.with_name("killed"))
    assert id_of(tmp_path.with_name("killed")) == before


@pytest.mark.parametrize("kept", ["none", "some"])
def test_missing_files_of_the_log_take_the_id(tmp_path: Path, kept: str) -> None:
    before, _ = written(tmp_path)
    files = sorted((tmp_path / "commitlog").iterdir())
    for file in files[-1:] if kept == "some" else files:
        file.unlink()
    assert id_of(tmp_path) != before


def test_an_end_that_became_zeros_takes_the_id(tmp_path: Path) -> None:
    before, starts = written(tmp_path)
    file = max((tmp_path / "commitlog").iterdir())
    os.truncate(file, starts[-3] % 8192)
    os.truncate(file, 8192)
    assert id_of(tmp_path) != before


def test_the_id_is_gone_before_damage_is_covered(tmp_path: Path) -> None:
    """Else an opening that ends in between leaves a log that looks sound, with the id of the one that had all."""
    before, starts = written(tmp_path)
    spoil(tmp_path, starts[30])

    class Dies(FileSystem):
        def allocate(self, fd: int, position: int, size: int) -> None:
            assert read_store_id(tmp_path) is None
            raise OSError("dies while it covers the damage")

    with pytest.raises(OSError, match="dies while"):
        opened(tmp_path, file_system=Dies())
    assert id_of(tmp_path) != before


def test_an_opening_that_ends_early_takes_nothing(tmp_path: Path) -> None:
    before, _ = written(tmp_path)
    killed(tmp_path)
    (tmp_path / "eruca.mark").unlink()
    store = Store(small_config(tmp_path), boot=BOOT)
    store.progress.stop()
    with pytest.raises(RecoveryStopped):
        store.open()
    assert id_of(tmp_path) == before


@pytest.mark.parametrize(("flush", "stays"), [("ASYNC_FLUSH", False), ("SYNC_FLUSH", True)])
def test_a_failed_flush_takes_the_id_where_sends_did_not_wait_for_it(tmp_path: Path, flush: str, stays: bool) -> None:
    class Fails(FileSystem):
        failing = False

        def flush(self, fd: int) -> None:
            if self.failing:
                raise OSError("the disk fails")
            super().flush(fd)

    disk = Fails()
    store = opened(tmp_path, file_system=disk, flush=flush)
    before = store.store_id
    put(store, "T", 0, b"x")
    disk.failing = True
    with pytest.raises(OSError, match="the disk fails"):
        store.flush()
    assert store.store_id == (before if stays else "")
    assert store.close() is not None
    assert (id_of(tmp_path, flush=flush) == before) is stays


def test_a_power_failure_after_a_stop_in_order_takes_nothing(tmp_path: Path) -> None:
    """The sign that the store is open does not come back: it is gone from the disk when the store is closed."""

    class Watched(FileSystem):
        flushed_open = True

        def flush_folder(self, path: Path | str) -> None:
            super().flush_folder(path)
            if Path(path) == tmp_path:
                self.flushed_open = (tmp_path / "abort").exists()

    disk = Watched()
    store = opened(tmp_path, file_system=disk)
    assert disk.flushed_open
    assert store.close() is None
    assert not disk.flushed_open


# ---------------------------------------------------------------------- who else works on a store


def test_who_is_in_no_group_takes_the_id_away(tmp_path: Path) -> None:
    """What is stored then, the group knows nothing of."""
    before = id_of(tmp_path)
    assert id_of(tmp_path, None) == ""
    assert read_store_id(tmp_path) is None
    assert id_of(tmp_path) != before


@pytest.mark.parametrize("stays", [False, True])
def test_a_cut_by_hand_takes_the_id_and_one_that_the_master_asks_for_does_not(tmp_path: Path, stays: bool) -> None:
    before, starts = written(tmp_path)
    assert intend_cut(small_config(tmp_path), starts[20], FileSystem(), as_master=stays) is not None
    assert (read_store_id(tmp_path) is not None) is stays
    Store(small_config(tmp_path), boot=BOOT).finish_cut()
    assert (id_of(tmp_path) == before) is stays


def test_a_backup_says_of_which_store_it_is_and_a_restored_one_is_another(tmp_path: Path) -> None:
    before, starts = written(tmp_path / "store")
    epochs = (Epoch(1, 0), Epoch(4, starts[20]), Epoch(5, starts[-1]))
    write_epochs(tmp_path / "store", epochs)
    _, manifest = back_up(small_config(tmp_path / "store"), tmp_path / "backups", 4_000_000_000_000)
    assert manifest.store_id == before

    restore(tmp_path / "backups", small_config(tmp_path / "restored"))
    assert read_store_id(tmp_path / "restored") is None
    assert id_of(tmp_path / "restored") != before
    assert read_epochs(tmp_path / "restored") == epochs[:-1]  # as far as the backup has a byte

    (tmp_path / "store" / "epochFileCheckpoint").write_bytes(b"1\n")
    with pytest.raises(BackupFault, match="epochFileCheckpoint is damaged"):
        back_up(small_config(tmp_path / "store"), tmp_path / "backups", 4_000_000_000_001)
