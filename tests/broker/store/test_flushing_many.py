"""Thousands of files of queues are flushed with their file system, where that is as good as one by one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eruca.broker.store import file_system
from eruca.broker.store.segment import Unflushed, flush_files

MANY, FEW = 1000, 10


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was brought to the disk, one by one or whole."""
    done: list[str] = []
    monkeypatch.setattr(os, "fdatasync", lambda fd: done.append("file"))
    monkeypatch.setattr(os, "fsync", lambda fd: done.append("folder"))
    monkeypatch.setattr(file_system, "flush", lambda folder: done.append("all"))
    monkeypatch.setattr(file_system, "is_sure", lambda folder: True)
    return done


def files(folder: Path, count: int) -> Unflushed:
    (folder / "T").mkdir()
    for number in range(count):
        (folder / "T" / str(number)).touch()
    return Unflushed({str(folder / "T" / str(number)) for number in range(count)}, {str(folder / "T"), str(folder)})


def test_very_many_go_with_the_file_system(tmp_path: Path, flushed: list[str]) -> None:
    flush_files(files(tmp_path, MANY))
    assert flushed == ["all"]


def test_few_go_one_by_one(tmp_path: Path, flushed: list[str]) -> None:
    flush_files(files(tmp_path, FEW))
    assert sorted(flushed) == ["file"] * FEW + ["folder"] * 2


def test_on_a_file_system_that_is_not_sure_they_go_one_by_one(
    tmp_path: Path, flushed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_system, "is_sure", lambda folder: False)
    flush_files(files(tmp_path, MANY))
    assert sorted(flushed) == ["file"] * MANY + ["folder"] * 2


def test_what_was_dropped_meanwhile_is_no_fault(tmp_path: Path, flushed: list[str]) -> None:
    taken = files(tmp_path, FEW)
    gone = {str(tmp_path / "gone" / str(number)) for number in range(MANY)}
    flush_files(Unflushed(taken.files | gone, taken.folders))
    assert flushed == ["all"]


def test_a_disk_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(folder: str) -> None:
        raise OSError(5, "Input/output error", folder)

    monkeypatch.setattr(file_system, "is_sure", lambda folder: True)
    monkeypatch.setattr(file_system, "flush", fail)
    with pytest.raises(OSError, match="Input/output error"):
        flush_files(files(tmp_path, MANY))


def test_file_systems_that_do_nothing_are_not_trusted() -> None:
    assert not file_system.is_sure("/proc")


def test_the_call_itself(tmp_path: Path) -> None:
    file_system.flush(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        file_system.flush(str(tmp_path / "none"))
