"""The disk whose power fails does fail: what was synced is there afterwards, and nothing else is sure."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.disks import LossyDisk, SmallDisk, needs_lossy_disk

pytestmark = needs_lossy_disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LossyDisk]:
    with LossyDisk(tmp_path / "disk") as disk:
        yield disk


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def test_only_what_was_synced_stays(disk: LossyDisk) -> None:
    for name in ("kept", "unsynced", "no entry"):
        (disk.folder / name).write_bytes(b"before")
    sync(disk.folder / "kept")
    (disk.folder / "kept").rename(disk.folder / "renamed")
    sync(disk.folder)
    (disk.folder / "late").write_bytes(b"late")
    sync(disk.folder / "late")
    disk.tell("off", 1, "drop")
    disk.come_back()
    assert sorted(path.name for path in disk.folder.iterdir()) == ["no entry", "renamed", "unsynced"]
    assert (disk.folder / "renamed").read_bytes() == b"before"
    assert (disk.folder / "unsynced").read_bytes() == b""


def test_a_folder_takes_what_it_holds_along(disk: LossyDisk) -> None:
    (disk.folder / "before").mkdir()
    (disk.folder / "before" / "file").write_bytes(b"kept")
    sync(disk.folder / "before" / "file")
    (disk.folder / "before").rename(disk.folder / "renamed")
    assert (disk.folder / "renamed" / "file").read_bytes() == b"kept"
    sync(disk.folder)
    disk.tell("off", 1, "drop")
    disk.come_back()
    assert [path.relative_to(disk.folder) for path in disk.folder.rglob("*")] == [Path("renamed"), Path("renamed/file")]


@pytest.mark.parametrize("how", ["drop", "torn"])
def test_a_mapped_file(disk: LossyDisk, how: str) -> None:
    path = disk.folder / "mapped"
    path.write_bytes(bytes(1 << 16))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 1 << 16) as mapped:
        mapped[:4096] = b"s" * 4096
        os.fdatasync(file.fileno())
        sync(disk.folder)
        mapped[4096:] = b"u" * (len(mapped) - 4096)
        disk.tell("off", 1, how)
    disk.come_back()
    data = path.read_bytes()
    assert data[:4096] == b"s" * 4096 and len(data) == 1 << 16
    sectors = {data[at : at + 512] for at in range(4096, 1 << 16, 512)}
    assert sectors == ({bytes(512)} if how == "drop" else {bytes(512), b"u" * 512})


def test_a_failed_sync_says_so_once_and_keeps_nothing(disk: LossyDisk) -> None:
    path = disk.folder / "file"
    path.write_bytes(b"one")
    disk.tell("fail", "fsync", 1, "file")
    with pytest.raises(OSError, match="Input/output"):
        sync(path)
    sync(path)
    sync(disk.folder)
    disk.tell("off", 1, "drop")
    disk.come_back()
    assert path.read_bytes() == b""


def test_a_journal_keeps_the_names_too(tmp_path: Path) -> None:
    with LossyDisk(tmp_path / "disk", journal=True) as disk:
        for name in ("unsynced", "synced", "late"):
            (disk.folder / name).write_bytes(b"bytes")
            if name == "synced":
                os.truncate(disk.folder / "unsynced", 9)
                sync(disk.folder / name)
        disk.tell("off", 1, "drop")
        disk.come_back()
        assert {path.name: path.read_bytes() for path in disk.folder.iterdir()} == {
            "unsynced": bytes(9),
            "synced": b"bytes",
        }


def test_a_disk_that_does_not_come_up_is_a_fault_and_no_test_that_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mfusepy.py").write_text("raise OSError('a library is missing')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"did not come up: (?s:.)*a library is missing"):
        LossyDisk(tmp_path / "disk")


def test_a_small_disk_that_does_not_come_up_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="a small disk did not come up"):
        SmallDisk(tmp_path / "disk", -1)
