"""Thousands of files of queues are flushed with their file system, where that is as good as one by one."""

from __future__ import annotations

from pathlib import Path

import pytest

from eruca.broker.store import FileSystem
from eruca.broker.store.file_system import Unflushed

VERY_MANY, MANY, FEW = 1000, 200, 10


class Noted(FileSystem):
    """Notes what is brought to the disk, one by one or whole."""

    def __init__(self, *, sure: bool = True, broken: bool = False) -> None:
        self.flushed: list[str] = []
        self.sure = sure
        self.broken = broken

    def _note(self, what: str) -> None:
        if self.broken:
            raise OSError(5, "Input/output error")
        self.flushed.append(what)

    def flush(self, fd: int) -> None:
        self._note("file")

    def flush_folder(self, path: Path | str) -> None:
        self._note("folder")

    def flush_whole(self, folder: str) -> None:
        self._note("all")

    def flushes_whole(self, folder: str) -> bool:
        return self.sure


def files(folder: Path, count: int, gone: int = 0) -> Unflushed:
    (folder / "T").mkdir()
    for number in range(count):
        (folder / "T" / str(number)).touch()
    paths = {str(folder / "T" / str(number)) for number in range(count)}
    dropped = {str(folder / "gone" / str(number)) for number in range(gone)}
    return Unflushed(paths | dropped, {str(folder / "T"), str(folder)})


@pytest.mark.parametrize(
    ("count", "gone", "sure", "expected"),
    [
        (VERY_MANY, 0, True, ["all"]),
        (VERY_MANY, 0, False, ["file"] * VERY_MANY + ["folder"] * 2),
        (MANY, 1, True, ["file"] * MANY + ["folder"] * 2),
        (FEW, 0, True, ["file"] * FEW + ["folder"] * 2),
        (FEW, VERY_MANY, True, ["all"]),
    ],
    ids=["very many", "not sure", "many, side by side", "few", "dropped meanwhile"],
)
def test_what_is_flushed(tmp_path: Path, count: int, gone: int, sure: bool, expected: list[str]) -> None:
    noted = Noted(sure=sure)
    noted.flush_files(files(tmp_path, count, gone))
    assert sorted(noted.flushed) == expected


@pytest.mark.parametrize("count", [VERY_MANY, MANY, FEW])
def test_a_disk_that_fails_is_told(tmp_path: Path, count: int) -> None:
    with pytest.raises(OSError, match="Input/output error"):
        Noted(broken=True).flush_files(files(tmp_path, count))


def test_file_systems_that_do_nothing_are_not_trusted() -> None:
    assert not FileSystem().flushes_whole("/proc")


def test_the_call_itself(tmp_path: Path) -> None:
    FileSystem().flush_whole(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        FileSystem().flush_whole(str(tmp_path / "none"))
