"""The mark of damage: from where on a log is not what it was, until that part is cut off or is the truth."""

from __future__ import annotations

from pathlib import Path

import pytest

from eruca.broker.store import FileSystem, Store
from eruca.broker.store.backup import back_up, restore
from eruca.broker.store.cut import intend_cut
from eruca.broker.store.damage_mark import forget_damage, mark_damage, read_damage
from eruca.broker.store.store_id import read_store_id
from tests.support.stores import put, small_config, spoil


def written(root: Path) -> list[int]:
    """A store of messages, closed; where each begins."""
    store = Store(small_config(root), boot="b001")
    store.open()
    starts = [put(store, "T", 0, b"%d" % number * 20) for number in range(30)]
    assert store.close() is None
    return starts


def reopened(root: Path, boot: str | None = "b001") -> int | None:
    """What an opening finds or leaves; the store is closed in order then."""
    store = Store(small_config(root), boot=boot)
    store.open()
    assert store.close() is None
    return read_damage(root)


@pytest.mark.parametrize("boot", ["b001", None], ids=["in a group", "alone"])
def test_damage_is_marked_as_long_as_it_is_there(tmp_path: Path, boot: str | None) -> None:
    starts = written(tmp_path)
    assert reopened(tmp_path, boot) is None
    spoil(tmp_path, starts[20])
    assert [reopened(tmp_path, boot) for _ in range(3)] == [starts[20]] * 3
    spoil(tmp_path, starts[25])
    assert reopened(tmp_path, boot) == starts[20], "the first one counts"
    spoil(tmp_path, starts[10])
    assert reopened(tmp_path, boot) == starts[10]


def test_what_a_kill_has_left_of_a_record_is_no_damage(tmp_path: Path) -> None:
    starts = written(tmp_path)
    spoil(tmp_path, starts[-1])
    (tmp_path / "abort").touch()
    assert reopened(tmp_path) is None


@pytest.mark.parametrize(("cut_at", "left"), [(19, None), (20, None), (25, 20)])
def test_a_cut_takes_the_mark_with_the_damage(tmp_path: Path, cut_at: int, left: int | None) -> None:
    starts = written(tmp_path)
    spoil(tmp_path, starts[20])
    reopened(tmp_path)
    assert intend_cut(small_config(tmp_path), starts[cut_at], FileSystem(), as_master=True) is not None
    assert reopened(tmp_path) == (None if left is None else starts[left])


@pytest.mark.parametrize(("truth", "left"), [(19, None), (20, None), (25, 20)])
def test_a_log_that_is_the_truth_has_no_mark(tmp_path: Path, truth: int, left: int | None) -> None:
    starts = written(tmp_path)
    spoil(tmp_path, starts[20])
    reopened(tmp_path)
    forget_damage(tmp_path, starts[truth], FileSystem())
    assert reopened(tmp_path) == (None if left is None else starts[left])


def test_the_mark_is_there_before_the_damage_is_covered_and_before_the_id_is_gone(tmp_path: Path) -> None:
    starts = written(tmp_path)
    spoil(tmp_path, starts[20])

    class Dies(FileSystem):
        def flush_folder(self, path: Path | str) -> None:
            if path == tmp_path and read_store_id(tmp_path) is None:
                assert read_damage(tmp_path) == starts[20]
                raise OSError("dies while it takes the id away")
            super().flush_folder(path)

    with pytest.raises(OSError, match="dies while"):
        Store(small_config(tmp_path), boot="b001", file_system=Dies()).open()
    assert reopened(tmp_path) == starts[20]


def test_damage_in_files_that_were_deleted_counts_no_more(tmp_path: Path) -> None:
    mark_damage(tmp_path, 50, 60)
    mark_damage(tmp_path, 30, 40)
    assert [read_damage(tmp_path, begin) for begin in (0, 30, 35, 45, 59, 60, 70)] == [30, 30, 35, 45, 59, None, None]
    forget_damage(tmp_path, 55, FileSystem())
    assert [read_damage(tmp_path, begin) for begin in (0, 54, 55)] == [30, 54, None]


def test_a_mark_that_cannot_be_read_marks_all(tmp_path: Path) -> None:
    assert read_damage(tmp_path) is None
    mark_damage(tmp_path, 7, 9)
    assert (tmp_path / "eruca.damage").read_bytes() == b"7 9\n"
    for content in (b"", b"\0\0", b"7\n", b"7 9"):
        (tmp_path / "eruca.damage").write_bytes(content)
        assert [read_damage(tmp_path, begin) for begin in (0, 1 << 40)] == [0, 1 << 40]
    forget_damage(tmp_path, 1, FileSystem())
    assert [read_damage(tmp_path, begin) for begin in (0, 1)] == [0, None]
    forget_damage(tmp_path, 0, FileSystem())
    assert read_damage(tmp_path) is None


def test_a_backup_has_the_mark(tmp_path: Path) -> None:
    root = tmp_path / "store"
    starts = written(root)
    spoil(root, starts[20])
    reopened(root)
    back_up(small_config(root), tmp_path / "backups", 4_000_000_000_000)
    restore(tmp_path / "backups", small_config(tmp_path / "restored"))
    assert reopened(tmp_path / "restored") == starts[20]
