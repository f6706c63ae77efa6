"""The files of a log: their names, rotation by size, opening again as logrotate needs it, and faults."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from eruca.remoting.log_files import LogFile, LogFileTaken, part_of, paths_of
from eruca.remoting.log_settings import LogSettings
from eruca.remoting.log_writer import LogWriter

Faults = list[tuple[str, int | None]]


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def faults() -> Faults:
    return []


def opened(path: Path, faults: Faults, *, size: int = 0, count: int = 3) -> LogFile:
    return LogFile(path, size, count, lambda file, fault: faults.append((file.name, fault.errno)))


def put(writer: LogWriter, line: str) -> None:
    writer.put(f"{line}\n")
    writer.flush(20)


def test_the_files_of_a_folder_and_those_of_one_file(tmp_path: Path) -> None:
    def names(daemon: str, file: Path) -> dict[str, str]:
        return {part: path.name for part, path in paths_of(LogSettings(log_file=str(file)), daemon).items()}

    assert names("broker", tmp_path) == {
        "": "broker.log",
        "audit": "audit.log",
        "store": "store.log",
        "remoting": "remoting.log",
    }
    assert names("namesrv", tmp_path) == {"": "namesrv.log", "audit": "audit.log", "remoting": "remoting.log"}
    assert names("broker", tmp_path / "b1.log") == {"": "b1.log", "audit": "b1-audit.log"}
    assert paths_of(LogSettings(), "broker") == {}
    places = {
        "eruca.broker": "",
        "eruca.broker.replication": "",
        "eruca.broker.store": "store",
        "eruca.broker.store.retention": "store",
        "eruca.remoting": "remoting",
        "asyncio": "remoting",
        "eruca.audit": "audit",
        "eruca.auditor": "",
        "py.warnings": "",
    }
    assert {logger: part_of(logger, "broker") for logger in places} == places


def test_a_full_file_is_put_aside_and_the_oldest_is_deleted(tmp_path: Path, faults: Faults) -> None:
    writer = LogWriter(opened(tmp_path / "broker.log", faults, size=25), lambda lost: f"lost {lost}\n")
    for number in range(12):
        put(writer, f"line {number:04}")  # two fit
    writer.close()
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {
        "broker.log": "line 0010\nline 0011\n",
        "broker.log.1": "line 0008\nline 0009\n",
        "broker.log.2": "line 0006\nline 0007\n",
        "broker.log.3": "line 0004\nline 0005\n",
    }
    assert (faults, writer.lost) == ([], 0)


def test_without_files_put_aside_a_full_one_is_begun_again(tmp_path: Path, faults: Faults) -> None:
    writer = LogWriter(opened(tmp_path / "broker.log", faults, size=15, count=0), lambda lost: f"lost {lost}\n")
    for number in range(3):
        put(writer, f"line {number:04}")
    writer.close()
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {"broker.log": "line 0002\n"}


def test_a_moved_file_is_written_until_it_is_opened_again(tmp_path: Path, faults: Faults) -> None:
    path = tmp_path / "broker.log"
    file = opened(path, faults)
    writer = LogWriter(file, lambda lost: f"lost {lost}\n")
    put(writer, "one")
    path.rename(tmp_path / "broker.log.1")
    put(writer, "two")
    assert not path.exists()
    file.reopen()
    eventually(path.exists)  # also while nobody logs
    put(writer, "three")
    writer.close()
    assert (tmp_path / "broker.log.1").read_text() == "one\ntwo\n"
    assert path.read_text() == "three\n"
    assert (path.stat().st_mode & 0o777, faults) == (0o640, [])


def test_a_file_that_was_not_moved_stays_open(tmp_path: Path, faults: Faults) -> None:
    file = opened(tmp_path / "broker.log", faults)
    writer = LogWriter(file, lambda lost: f"lost {lost}\n")
    put(writer, "one")
    file.reopen()
    put(writer, "two")
    writer.close()
    assert ((tmp_path / "broker.log").read_text(), faults) == ("one\ntwo\n", [])


def test_a_file_that_cannot_be_opened_again_stays_in_use(tmp_path: Path, faults: Faults) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    file = opened(folder / "broker.log", faults)
    writer = LogWriter(file, lambda lost: f"lost {lost}\n")
    put(writer, "one")
    folder.rename(tmp_path / "moved")
    file.reopen()
    put(writer, "two")
    put(writer, "three")
    assert [name for name, _ in faults] == ["broker.log"], "it is not tried with each line"
    folder.mkdir()
    file.reopen()
    put(writer, "four")
    writer.close()
    assert (tmp_path / "moved" / "broker.log").read_text() == "one\ntwo\nthree\n"
    assert (folder / "broker.log").read_text() == "four\n"


def test_two_processes_do_not_write_one_file(tmp_path: Path, faults: Faults) -> None:
    first = opened(tmp_path / "broker.log", faults)
    with pytest.raises(LogFileTaken, match="another process writes it"):
        opened(tmp_path / "broker.log", faults)
    first.close()
    opened(tmp_path / "broker.log", faults).close()


def test_a_device_is_for_any_number_of_processes(faults: Faults) -> None:
    one, other = opened(Path("/dev/null"), faults), opened(Path("/dev/null"), faults)
    one.close()
    other.close()
    assert faults == []


def test_lines_that_cannot_be_written_are_a_fault_and_counted(faults: Faults) -> None:
    writer = LogWriter(opened(Path("/dev/full"), faults), lambda lost: f"lost {lost}\n")
    put(writer, "one")
    writer.close()
    assert writer.lost == 1 and faults and {name for name, _ in faults} == {"full"}
    assert os.strerror(faults[0][1] or 0) == "No space left on device"
