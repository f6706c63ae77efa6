"""A store that takes in the bytes of another one's log, in any pieces, damaged ones too."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from typing import Any

import pytest

from eruca.broker.store import CopyRefused, FileSystem, PutStatus, Store, verify
from eruca.protocol.record import MAGIC_BLANK, MAGIC_V1
from tests.support.file_systems import Switched
from tests.support.stores import HOST, bodies, index_contents, open_store, put, queue_units, small_config

FILE = 8192


@pytest.fixture
def master(tmp_path: Path) -> Store:
    """Messages in two topics over several files, halves and a rollback among them."""
    store = open_store(tmp_path / "master")
    for number in range(120):
        properties = b"KEYS\x01k%d\x02TAGS\x01t" % number
        sys_flag = {7: 4, 11: 12}.get(number % 20, 0)
        put(
            store,
            "T" if number % 3 else "U",
            number % 2,
            b"%d;" % number * (1 + number % 60),
            properties,
            sys_flag=sys_flag,
        )
    store.drain()
    store.flush()
    return store


def copy_of(tmp_path: Path, name: str = "slave", disk: FileSystem | None = None, **changes: Any) -> Store:
    return open_store(tmp_path / name, follows=True, file_system=disk, **changes)


def whole_log(store: Store) -> bytes:
    replicator = store.replicator
    found = b""
    while data := replicator.take(replicator.begin_offset + len(found), FILE):
        found += data
    return found


@pytest.mark.parametrize("seed", range(8))
def test_any_pieces_make_the_same_store(tmp_path: Path, master: Store, seed: int) -> None:
    chance = random.Random(seed)
    log = whole_log(master)
    assert len(log) == master.replicator.end_offset > 3 * FILE
    slave = copy_of(tmp_path)
    at = 0
    while at < len(log):
        size = chance.choice([1, 3, 50, 700, 3000, 3 * FILE])
        slave.replicator.append(at, log[at : at + size])
        at = slave.replicator.end_offset
        if chance.random() < 0.1:
            slave.close()
            if chance.random() < 0.5:
                (tmp_path / "slave" / "abort").touch()
            slave = copy_of(tmp_path)
            assert slave.recovery.lost_units == [] and slave.replicator.end_offset <= at
            at = slave.replicator.end_offset
    slave.drain()
    assert whole_log(slave) == log
    for topic, queue in (("T", 0), ("T", 1), ("U", 0), ("U", 1)):
        assert bodies(slave, topic, queue) == bodies(master, topic, queue)
        assert slave.max_offset(topic, queue) == master.max_offset(topic, queue)
    slave.close()
    master.close()
    assert queue_units(tmp_path / "slave") == queue_units(tmp_path / "master")
    assert index_contents(tmp_path / "slave") == index_contents(tmp_path / "master")
    assert verify(tmp_path / "slave", small_config(tmp_path / "slave")).findings == []


def test_a_copy_accepts_no_message(tmp_path: Path) -> None:
    slave = copy_of(tmp_path)
    refused = slave.appender.put("T", 0, b"no", b"", born_timestamp=1, born_host=HOST, store_host=HOST)
    batch = slave.appender.put_batch("T", 0, b"", born_timestamp=1, born_host=HOST, store_host=HOST)
    assert (refused.status, batch.status) == (PutStatus.SERVICE_NOT_AVAILABLE,) * 2
    slave.check_disk()
    assert slave.refusal is not None and "send to the master" in slave.refusal
    slave.close()


def test_damage_that_comes_is_copied_passed_over_and_counted(tmp_path: Path, master: Store) -> None:
    log = bytearray(whole_log(master))
    unit = master.unit("T", 1, 3)
    assert unit is not None
    log[unit[0] + 90 : unit[0] + unit[1]] = b"\xa5" * (unit[1] - 90)
    slave = copy_of(tmp_path)
    for at in range(0, len(log), 500):
        slave.replicator.append(at, bytes(log[at : at + 500]))
    slave.drain()
    assert whole_log(slave) == log
    assert slave.figures().damaged_records == 1
    kept = bodies(master, "T", 1)
    assert bodies(slave, "T", 1) == kept[:3] + kept[4:]
    slave.close()
    master.close()


def test_bytes_that_do_not_continue_the_log_are_refused(tmp_path: Path, master: Store) -> None:
    log = whole_log(master)
    slave = copy_of(tmp_path)
    with pytest.raises(CopyRefused, match="no multiple of mappedFileSizeCommitLog"):
        slave.replicator.append(100, log[100:200])
    slave.replicator.append(0, log[:100])
    for offset in (0, 99, 101):
        with pytest.raises(CopyRefused, match="the log ends at 100"):
            slave.replicator.append(offset, log[offset : offset + 50])
    slave.replicator.append(100, log[100:])
    assert whole_log(slave) == log
    slave.close()
    master.close()


def test_a_full_disk_is_an_error_and_copying_goes_on_when_there_is_room(tmp_path: Path, master: Store) -> None:
    log, disk = whole_log(master), Switched()
    slave = copy_of(tmp_path, disk=disk)
    slave.replicator.append(0, log[:FILE])
    with disk.without_room(), pytest.raises(OSError, match="No space"):
        slave.replicator.append(FILE, log[FILE : FILE + 100])
    slave.replicator.append(slave.replicator.end_offset, log[slave.replicator.end_offset :])
    slave.drain()
    assert whole_log(slave) == log and bodies(slave, "U", 0) == bodies(master, "U", 0)
    slave.close()
    master.close()


def test_only_flushed_bytes_are_safe_under_sync_flush(tmp_path: Path, master: Store) -> None:
    log = whole_log(master)
    slave = copy_of(tmp_path, flush_disk_type="SYNC_FLUSH")
    slave.replicator.append(0, log)
    assert (slave.replicator.safe_offset, slave.drain(), slave.max_offset("T", 0)) == (0, 0, 0)
    slave.flush()
    assert slave.replicator.safe_offset == len(log) and slave.max_offset("T", 0) == master.max_offset("T", 0)
    slave.close()
    master.close()


# ---------------------------------------------------------------------- the end that a master must have


def starts_of(log: bytes) -> list[tuple[int, int]]:
    """Where the records of a log begin and end, its files one after the other."""
    found = []
    at = 0
    while at < len(log):
        size = int.from_bytes(log[at : at + 4], "big")
        if log[at + 4 : at + 8] != MAGIC_BLANK.to_bytes(4, "big"):
            found.append((at, at + size))
        at += size
    return found


def test_the_tail_begins_with_the_last_whole_record_wherever_the_log_ends(tmp_path: Path, master: Store) -> None:
    """Within a record, behind a blank one, at the end of a file; some bodies look like the beginning of a record."""
    for number in range(20):
        put(master, "T", 0, (MAGIC_V1.to_bytes(4, "big") + bytes(3)) * number, b"")
    master.drain()
    log, replicator = whole_log(master), master.replicator
    records = starts_of(log)
    assert replicator.end_offset == len(log) and records[-1][1] == len(log)
    ends = {*range(records[0][1], records[2][1]), *(end for _, end in records), *range(FILE - 300, FILE + 300)}
    for end in sorted(ends):
        start = max([start for start, stop in records if stop <= end])
        tail = replicator.tail(end)
        assert tail == (max(start, 1), log[max(start, 1) : end], end)
    master.close()


def test_the_tail_of_a_log_without_a_whole_record_is_what_there_is(tmp_path: Path, master: Store) -> None:
    slave = copy_of(tmp_path)
    slave.replicator.append(0, whole_log(master)[:50])
    assert slave.replicator.tail(50) == (1, whole_log(master)[1:50], 50)
    slave.close()
    master.close()


def test_the_tail_leaves_out_what_covers_damage_here(tmp_path: Path, master: Store) -> None:
    """Such a record is no master's, whose log is sound there."""
    log = whole_log(master)
    records = [record for record in starts_of(log) if record[1] < FILE]
    end = records[-1][1]
    slave = copy_of(tmp_path)
    slave.replicator.append(0, log[:end])
    slave.close()
    with (tmp_path / "slave" / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(records[-2][0])
        file.write(bytes(records[-2][1] - records[-2][0]))
    (tmp_path / "slave" / "abort").touch()
    slave = copy_of(tmp_path)
    assert len(slave.recovery.damages) == 1 and slave.replicator.end_offset == end
    assert slave.replicator.tail(end) == (records[-1][0], log[records[-1][0] : end], end)
    start = records[-3][0]
    assert slave.replicator.tail(end - 1) == (start, log[start : records[-2][0]], end - 1)
    slave.close()
    master.close()


# ---------------------------------------------------------------------- what was taken back


class Remembers(FileSystem):
    """A disk that shows what a power failure would leave: what files held when they were flushed last."""

    def __init__(self) -> None:
        self.durable: dict[int, bytes] = {}

    def flush(self, fd: int) -> None:
        super().flush(fd)
        self.durable[os.fstat(fd).st_ino] = os.pread(fd, FILE, 0)

    def has(self, path: Path, at: int) -> bytes:
        """What is durable of a file, from a place on, without the zeros at its end."""
        return self.durable[path.stat().st_ino][at:].rstrip(b"\0")


@pytest.fixture(params=["in a file", "at the begin of a file"])
def part(request: pytest.FixtureRequest, tmp_path: Path, master: Store) -> tuple[Store, Remembers, int, Path]:
    """A copy whose log ends with a part of a record, which is on the disk: with it its disk, where the part begins, and
    the file that holds it."""
    log, disk = whole_log(master), Remembers()
    at = FILE if request.param != "in a file" else next(start for start, _ in starts_of(log) if start > FILE + 1000)
    slave = copy_of(tmp_path, disk=disk, flush_disk_type="SYNC_FLUSH")
    slave.replicator.append(0, log[: at + 60])
    slave.flush()
    file = tmp_path / "slave" / "commitlog" / f"{FILE:020d}"
    assert slave.replicator.whole_offset == at and disk.has(file, at - FILE)
    return slave, disk, at, file


@pytest.mark.parametrize("how", ["another master", "leads", "names its end"])
def test_what_was_taken_back_goes_from_the_disk_before_anything_is_written_there(
    part: tuple[Store, Remembers, int, Path], master: Store, how: str
) -> None:
    """Else a power failure may mix both into a record that looks sound, as no CRC covers properties."""
    slave, disk, at, file = part
    if how == "leads":
        assert slave.lead() == 60
    else:
        assert slave.replicator.cut_part() == 60
        if how == "names its end":
            asyncio.run(slave.flushed())
        else:
            slave.replicator.append(at, whole_log(master)[at : at + 700])
    assert disk.has(file, at - FILE) == b""
    assert slave.close() is None
    master.close()
