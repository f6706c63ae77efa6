"""A log is cut off: what came later is gone from log, queues, index and tables, is kept aside, and never comes back."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from eruca.broker.failover.epochs import Epoch
from eruca.broker.store import FileSystem, Store, StoreLocked, verify
from eruca.broker.store.backup import back_up
from eruca.broker.store.backup_files import BackupFault
from eruca.broker.store.cut import CutRefused, Intended, intend_cut
from eruca.broker.store.epoch_file import read_epochs, write_epochs
from eruca.protocol.bodies import ConsumerOffsets
from tests.support.stores import bodies, open_store, put, small_config

COUNT = 120
"""Messages; the log has several files."""


def written(root: Path) -> list[int]:
    """A store of messages in two queues, closed; returns where each message begins, and where the log ends."""
    store = open_store(root)
    starts = [put(store, "T", number % 2, b"%d" % number * 20, b"KEYS\x01k%d" % number) for number in range(COUNT)]
    end = store.figures().max_offset
    assert store.close() is None
    return [*starts, end]


def cut(root: Path, end: int) -> Intended | None:
    """Cut and open the store once."""
    done = intend_cut(small_config(root), end, FileSystem())
    assert open_store(root).close() is None
    return done


def committed(root: Path) -> dict[str, dict[int, int]]:
    return ConsumerOffsets.decode((root / "config" / "consumerOffset.json").read_bytes()).offset_table


def expected(queue: int, first: int) -> list[bytes]:
    return [b"%d" % number * 20 for number in range(queue, first, 2)]


def kept_bytes(done: Intended) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(done.kept.iterdir()))


@pytest.mark.parametrize("closed", ["in order", "killed"])
@pytest.mark.parametrize("first", [0, 1, 37, 64, COUNT - 1])
def test_what_comes_later_is_gone(tmp_path: Path, first: int, closed: str) -> None:
    starts = written(tmp_path)
    log = b"".join(file.read_bytes() for file in sorted((tmp_path / "commitlog").iterdir()))
    if closed == "killed":
        (tmp_path / "abort").touch()
    end = starts[first]
    done = cut(tmp_path, end)
    assert done is not None and (done.end, done.former_end) == (end, starts[-1])
    assert kept_bytes(done) == log[end : starts[-1]]

    now = b"".join(file.read_bytes() for file in sorted((tmp_path / "commitlog").iterdir()))
    assert now[:end] == log[:end] and not any(now[end:])
    found = verify(tmp_path, small_config(tmp_path))
    assert (found.findings, found.records, found.units) == ([], first, first)

    store = open_store(tmp_path)
    assert store.figures().max_offset == end
    assert [bodies(store, "T", queue) for queue in range(2)] == [expected(queue, first) for queue in range(2)]
    assert store.query("T", f"k{COUNT - 1}", 32, 0, 2**62).records == []
    assert put(store, "T", first % 2, b"another") == end
    store.drain()
    assert bodies(store, "T", first % 2) == [*expected(first % 2, first), b"another"]
    store.close()


def test_the_end_of_a_file_is_a_place_to_cut(tmp_path: Path) -> None:
    starts = written(tmp_path)
    end = next(start for start in starts if start and not start % 8192)
    assert cut(tmp_path, end) is not None
    assert verify(tmp_path, small_config(tmp_path)).findings == []
    store = open_store(tmp_path)
    assert put(store, "T", 0, b"another") == end
    store.close()


def test_epochs_and_committed_offsets_go_back(tmp_path: Path) -> None:
    starts = written(tmp_path)
    epochs = (Epoch(1, 0), Epoch(2, starts[20]), Epoch(4, starts[90]))
    write_epochs(tmp_path, epochs)
    offsets = tmp_path / "config" / "consumerOffset.json"
    table = {"offsetTable": {"T@near": {"0": 10, "1": 20}, "T@far": {"0": 59, "1": 60}, "gone@far": {"3": 0}}}
    table["offsetTable"] |= {"RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS": {"0": 0}}
    offsets.write_text(json.dumps(table))
    (tmp_path / "config" / "delayOffset.json").write_text('{"offsetTable":{"3":99}}')
    (tmp_path / "eruca.delays").write_bytes(b"of the log as it was")

    cut(tmp_path, starts[40])
    assert read_epochs(tmp_path) == epochs[:2]
    assert committed(tmp_path) == {"T@near": {0: 10, 1: 20}, "T@far": {0: 20, 1: 20}, "gone@far": {3: 0}}
    assert not (tmp_path / "config" / "delayOffset.json").exists() and not (tmp_path / "eruca.delays").exists()


def test_a_backup_that_shares_the_file_keeps_what_was_cut(tmp_path: Path) -> None:
    starts = written(tmp_path / "store")
    file = next(iter(sorted((tmp_path / "store" / "commitlog").iterdir())))
    content = file.read_bytes()
    os.link(file, tmp_path / "linked")
    cut(tmp_path / "store", starts[3])
    assert (tmp_path / "linked").read_bytes() == content


def test_the_last_ten_parts_are_kept(tmp_path: Path) -> None:
    starts = written(tmp_path)
    for first in range(COUNT - 1, COUNT - 13, -1):
        cut(tmp_path, starts[first])
    names = {file.name for file in (tmp_path / "rolledback").iterdir()}
    assert names == {f"{starts[first]:020d}" for first in range(COUNT - 3, COUNT - 13, -1)}


def test_where_no_record_ends_nothing_is_cut(tmp_path: Path) -> None:
    starts = written(tmp_path)
    assert intend_cut(small_config(tmp_path), starts[-1], FileSystem()) is None
    with pytest.raises(CutRefused, match=rf"no record ends at {starts[7] + 1}: the last one .* ends at {starts[8]}"):
        intend_cut(small_config(tmp_path), starts[7] + 1, FileSystem())
    with pytest.raises(CutRefused, match="has nothing at 1000000: its files hold 0 to"):
        intend_cut(small_config(tmp_path), 1_000_000, FileSystem())
    (tmp_path / "empty").mkdir()
    with pytest.raises(CutRefused, match="the log is empty"):
        intend_cut(small_config(tmp_path / "empty"), 0, FileSystem())
    intend_cut(small_config(tmp_path), starts[7], FileSystem())
    assert verify(tmp_path, small_config(tmp_path)).notes == [
        f"the log is to be cut off at {starts[7]}; the next start does it"
    ]
    with pytest.raises(BackupFault, match="is being cut off"):
        back_up(small_config(tmp_path), tmp_path / "backups", 0)
    with pytest.raises(CutRefused, match=r"an earlier cut .* is not done"):
        intend_cut(small_config(tmp_path), starts[3], FileSystem())


def test_a_store_that_is_open_is_not_cut(tmp_path: Path) -> None:
    starts = written(tmp_path)
    store = open_store(tmp_path)
    with pytest.raises(StoreLocked):
        intend_cut(small_config(tmp_path), starts[7], FileSystem())
    store.close()


class Killed(BaseException):
    """The process is gone."""


class Dies(FileSystem):
    """A file system under which the process is killed at its step number ``most``."""

    def __init__(self, most: int) -> None:
        self._left = most

    def _step(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise Killed

    def write(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> int:
        self._step()
        return super().write(fd, data, position)

    def delete(self, path: Path) -> None:
        self._step()
        super().delete(path)

    def flush(self, fd: int) -> None:
        self._step()
        super().flush(fd)

    def flush_folder(self, path: Path | str) -> None:
        self._step()
        super().flush_folder(path)


@pytest.mark.slow
@pytest.mark.parametrize("first", [3, 64])
def test_a_kill_at_any_step_leaves_the_whole_log_or_the_cut_one(tmp_path: Path, first: int) -> None:
    outcomes = []
    for step in range(1000):
        root = tmp_path / str(step)
        starts = written(root)
        (root / "config" / "consumerOffset.json").write_text('{"offsetTable":{"T@G":{"0":60,"1":60}}}')
        config = small_config(root)
        disk = Dies(step)
        store = Store(config, file_system=disk)
        try:
            assert intend_cut(config, starts[first], disk) is not None
            store.open()
            assert store.close() is None
            break
        except Killed:
            store.commit_log.close()
        again = open_store(root)
        end = again.figures().max_offset
        assert end in (starts[first], starts[-1])
        count = first if end == starts[first] else COUNT
        outcomes.append(count)
        assert [bodies(again, "T", queue) for queue in range(2)] == [expected(queue, count) for queue in range(2)]
        assert committed(root) == {"T@G": {0: (count + 1) // 2, 1: count // 2}}
        assert again.close() is None
        assert verify(root, config).findings == []
    print(f"killed at {len(outcomes)} steps")
    assert outcomes == sorted(outcomes, reverse=True) and len(outcomes) > 10
    assert set(outcomes) == {first, COUNT}
