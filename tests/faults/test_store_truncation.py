"""A store's files cut at every byte of their last three records."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from eruca.broker.store import Store
from eruca.broker.store.queue_table import QueueTable
from eruca.protocol.errors import ProtocolError
from tests.support.file_systems import Unsynced
from tests.support.programme import amount
from tests.support.stores import Clock, bodies, index_contents, open_store, put, queue_units, small_config

COUNT = 14
QUEUES = 2


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store of a few messages."""
    root = tmp_path_factory.mktemp("model")
    store = open_store(root, Clock(), file_system=Unsynced())
    for number in range(COUNT):
        put(store, "T", number % QUEUES, b"body %d" % number, b"UNIQ_KEY\x01K%d\x02TAGS\x01t%d" % (number, number))
    store.close()
    return root


@pytest.fixture(scope="module")
def ends(model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[int]:
    """Where each record ends."""
    root = tmp_path_factory.mktemp("ends")
    shutil.copytree(model, root, dirs_exist_ok=True)
    store = open_store(root, Clock(), file_system=Unsynced())
    found = sorted(
        unit[0] + unit[1]
        for queue in range(QUEUES)
        for number in range(COUNT // QUEUES)
        if (unit := store.unit("T", queue, number)) is not None
    )
    store.close()
    return found


def rebuilt(root: Path, target: Path) -> tuple[dict[str, bytes], list[bytes]]:
    """Consume queues and index as they are when made from the log alone."""
    shutil.copytree(root, target)
    for name in ("consumequeue", "index"):
        shutil.rmtree(target / name, ignore_errors=True)
    (target / "abort").touch()
    store = open_store(target, Clock(), file_system=Unsynced())
    store.close()
    result = queue_units(target), index_contents(target)
    shutil.rmtree(target)
    return result


def check(root: Path, left: int, full: tuple[dict[str, bytes], list[bytes]]) -> None:
    store = Store(small_config(root), Clock(), file_system=Unsynced())
    report = store.open()
    assert report.lost_units == []
    for queue in range(QUEUES):
        assert bodies(store, "T", queue) == [b"body %d" % number for number in range(queue, left, QUEUES)]
    put(store, "U", 0, b"next")
    store.drain()
    assert bodies(store, "U", 0) == [b"next"]
    store.drop_topic("U")
    store.close()
    assert queue_units(root) == full[0]
    assert index_contents(root) == full[1]
    shutil.rmtree(root)


def copies(model: Path, target: Path) -> Iterator[tuple[str, Path]]:
    """The store as stopped in order, and as killed."""
    for stopped in ("in order", "killed"):
        shutil.copytree(model, target)
        if stopped == "killed":
            (target / "abort").touch()
        yield stopped, target
        shutil.rmtree(target, ignore_errors=True)


@pytest.mark.parametrize("how", ["zeros", "short"])
def test_the_commit_log(model: Path, ends: list[int], tmp_path: Path, how: str) -> None:
    full: dict[int, tuple[dict[str, bytes], list[bytes]]] = {}
    for size in range(ends[-4], ends[-1], amount(3, 1)):
        left = sum(end <= size for end in ends)
        for _, root in copies(model, tmp_path / "store"):
            log = root / "commitlog" / ("0" * 20)
            with log.open("r+b") as file:
                file.truncate(size)
                if how == "zeros":
                    file.truncate(8192)
            if left not in full:
                full[left] = rebuilt(root, tmp_path / "full")
            check(root, left, full[left])
    assert sorted(full) == [COUNT - 3, COUNT - 2, COUNT - 1]


def test_a_consume_queue(model: Path, tmp_path: Path) -> None:
    full = rebuilt(model, tmp_path / "full")
    used = COUNT // QUEUES * 20
    for size in range(used - 60, used):
        for _, root in copies(model, tmp_path / "store"):
            with (root / "consumequeue" / "T" / "1" / ("0" * 20)).open("r+b") as file:
                file.truncate(size)
            check(root, COUNT, full)


def test_the_index(model: Path, tmp_path: Path) -> None:
    full = rebuilt(model, tmp_path / "full")
    used = 40 + 50 * 4 + (COUNT + 1) * 20
    for size in (*range(0, 60, 3), *range(used - 60, used + 1)):
        for _, root in copies(model, tmp_path / "store"):
            (path,) = (root / "index").iterdir()
            with path.open("r+b") as file:
                file.truncate(size)
            check(root, COUNT, full)


@pytest.mark.parametrize("name", ["checkpoint", "eruca.mark", "lock"])
def test_the_small_files(model: Path, tmp_path: Path, name: str) -> None:
    full = rebuilt(model, tmp_path / "full")
    for size in range(min((model / name).stat().st_size, 80)):
        for _, root in copies(model, tmp_path / "store"):
            with (root / name).open("r+b") as file:
                file.truncate(size)
            check(root, COUNT, full)


@pytest.mark.parametrize("name", ["checkpoint", "eruca.mark", "lock", "consumequeue", "index"])
def test_without_one_of_them(model: Path, tmp_path: Path, name: str) -> None:
    full = rebuilt(model, tmp_path / "full")
    for _, root in copies(model, tmp_path / "store"):
        path = root / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        check(root, COUNT, full)


def test_queues_that_are_not_cut_are_found_out(
    model: Path, ends: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault: recovery leaves in the queues what the log has no longer."""
    root = tmp_path / "store"
    shutil.copytree(model, root)
    with (root / "commitlog" / ("0" * 20)).open("r+b") as file:
        file.truncate(ends[-2])
    full = rebuilt(root, tmp_path / "full")
    monkeypatch.setattr(QueueTable, "cut", lambda self, queue, index: None)
    with pytest.raises((AssertionError, ProtocolError)):
        check(root, COUNT - 1, full)
