"""What is deleted when, and what happens when the disk is full."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from eruca.broker.store import GetStatus, PutStatus, Store
from eruca.broker.store.retention import Disk, LogFile, disk_refusal, expendable, is_hour_to_delete
from tests.support.file_systems import Switched
from tests.support.stores import HOST, Clock, bodies, open_store, put, small_config

HOUR = 3_600_000
NOW = 1_700_000_000_000
EMPTY = Disk(10, 100)


def aged(*hours: int) -> list[LogFile]:
    return [LogFile(NOW - age * HOUR, 10) for age in hours]


def test_old_files_go_at_their_hour_only(tmp_path: Path) -> None:
    config = small_config(tmp_path, delete_when="04;16", file_reserved_time=72)
    files = aged(100, 80, 73, 71, 1)
    assert len(expendable(files, config, EMPTY, NOW, 4)) == 3
    assert len(expendable(files, config, EMPTY, NOW, 16)) == 3
    assert len(expendable(files, config, EMPTY, NOW, 5)) == 0
    assert len(expendable(files, config, EMPTY, NOW, 5, by_hand=True)) == 3


def test_the_last_file_stays_and_a_round_takes_ten(tmp_path: Path) -> None:
    config = small_config(tmp_path, delete_when="04")
    assert len(expendable(aged(100, 100), config, EMPTY, NOW, 4)) == 1
    assert len(expendable(aged(*[100] * 30), config, EMPTY, NOW, 4)) == 10
    assert len(expendable([], config, EMPTY, NOW, 4)) == 0


def test_a_fuller_disk_makes_old_files_go_at_any_hour(tmp_path: Path) -> None:
    config = small_config(tmp_path, disk_max_used_space_ratio=75, disk_space_clean_forcibly_ratio=0.85)
    assert len(expendable(aged(100, 100, 1), config, Disk(76, 100), NOW, 12)) == 2
    assert len(expendable(aged(1, 1, 1), config, Disk(76, 100), NOW, 12)) == 0


def test_past_the_forcible_mark_young_files_go_until_there_is_room(tmp_path: Path) -> None:
    config = small_config(tmp_path, disk_space_clean_forcibly_ratio=0.85)
    assert len(expendable(aged(1, 1, 1, 1, 1), config, Disk(100, 100), NOW, 12)) == 2
    config.clean_file_forcibly_enable = False
    assert len(expendable(aged(1, 1, 1, 1, 1), config, Disk(100, 100), NOW, 12)) == 0


@pytest.mark.parametrize(
    ("when", "hour", "due"), [("04", 4, True), ("4;22", 22, True), ("04", 5, False), ("", 0, False)]
)
def test_hours(when: str, hour: int, due: bool) -> None:
    assert is_hour_to_delete(when, hour) is due


def test_the_refusal_says_what_to_do(tmp_path: Path) -> None:
    config = small_config(tmp_path, disk_space_warning_level_ratio=0.9)
    assert disk_refusal(Disk(90, 100), config) is None
    assert "free space" in (disk_refusal(Disk(91, 100), config) or "")


async def test_deleting_moves_the_beginning_of_everything(tmp_path: Path) -> None:
    clock = Clock()
    store = open_store(tmp_path, clock, mapped_file_size_consume_queue=200, max_index_num=20)
    for number in range(300):
        put(store, "T", 0, b"%d" % number, b"KEYS\x01k%d" % number)
        clock.now += 1
    put(store, "Old", 0, b"x")
    store.drain()
    store.persist()
    files = sorted((tmp_path / "commitlog").iterdir())
    index = len(list((tmp_path / "index").iterdir()))
    for path in files[:3]:
        os.utime(path, (clock.now / 1000 - 80 * 3600,) * 2)
    assert await store.clean() == 0
    assert await store.clean(by_hand=True) == 3
    assert sorted((tmp_path / "commitlog").iterdir()) == files[3:]
    low = store.min_offset("T", 0)
    assert bodies(store, "T", 0) == [b"%d" % number for number in range(low, 300)]
    too_small = store.get("T", 0, low - 1, 1)
    assert too_small.status is GetStatus.OFFSET_TOO_SMALL
    starts = sorted(int(path.name) // 20 for path in (tmp_path / "consumequeue/T/0").iterdir())
    assert starts[0] <= low < starts[1]
    assert len(list((tmp_path / "index").iterdir())) < index
    assert store.query("T", "k299", 10, 0, 2**62).records and not store.query("T", "k0", 10, 0, 2**62).records
    store.close()

    store = open_store(tmp_path, clock, mapped_file_size_consume_queue=200, max_index_num=20)
    assert store.min_offset("T", 0) == low
    assert put(store, "T", 0, b"next") > 0
    store.drain()
    assert store.max_offset("T", 0) == 301
    store.close()


async def test_a_queues_last_file_goes_too_when_later_units_are_only_in_memory(tmp_path: Path) -> None:
    clock = Clock()
    store = open_store(tmp_path, clock, mapped_file_size_consume_queue=200)
    for number in range(10):  # the queue's first file is full
        put(store, "T", 0, b"%d" % number)
    store.drain()
    store.persist()
    for number in range(10, 20):
        put(store, "T", 0, b"%d" % number + bytes(3000))
    store.drain()
    for path in sorted((tmp_path / "commitlog").iterdir())[:-1]:
        os.utime(path, (clock.now / 1000 - 80 * 3600,) * 2)
    assert await store.clean(by_hand=True) > 2
    low = store.min_offset("T", 0)
    assert low > 10 and len(bodies(store, "T", 0)) == 20 - low
    store.persist()
    assert [int(path.name) // 20 for path in (tmp_path / "consumequeue/T/0").iterdir()] == [10]
    store.close()


NEGATIVE = (-1).to_bytes(8, "big", signed=True) + (100).to_bytes(4, "big") + bytes(8)


@pytest.mark.parametrize("what", [bytes(20), NEGATIVE], ids=["zero", "negative"])
@pytest.mark.parametrize(
    ("first", "end", "begin"),
    [(29, 31, 20), (24, 30, 20), (22, 38, 20), (20, 30, 20), (15, 25, 15), (0, 25, 0), (10, 20, 10), (0, 10, 20)],
)
def test_units_that_lead_nowhere_let_no_queue_begin_later(
    tmp_path: Path, first: int, end: int, begin: int, what: bytes
) -> None:
    """The messages of those that lie directly before the first one that the log has may be there still."""
    store = open_store(tmp_path)
    for number in range(20):
        put(store, "T", 0, b"%d" % number)
    while put(store, "Filler", 0, bytes(3000)) < 8192:
        pass
    for number in range(20, 40):
        put(store, "T", 0, b"%d" % number)
    store.close()
    for index in range(first, end):
        with (tmp_path / f"consumequeue/T/0/{index // 20 * 400:020d}").open("r+b") as units:
            units.seek(index % 20 * 20)
            units.write(what)

    store = open_store(tmp_path)
    store.commit_log.forget_oldest(1)
    for _ in range(2):
        store.housekeeping.move_min_offsets()
        assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (begin, 40)
    store.close()


def test_queues_older_than_the_log_can_be_dropped(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put(store, "Old", 0, b"x")
    for _ in range(10):
        put(store, "T", 0, bytes(3000))
    store.drain()
    assert store.drop_expired_queues(store.queue_keys()) == 0
    store.commit_log.forget_oldest(1)
    store.housekeeping.move_min_offsets()
    assert store.drop_expired_queues(store.queue_keys()) == 1
    assert store.topics() == {"T"}
    store.close()


async def test_a_file_that_cannot_be_deleted_is_tried_again(tmp_path: Path) -> None:
    clock, disk = Clock(), Switched()
    store = open_store(tmp_path, clock, file_system=disk)
    for _ in range(10):
        put(store, "T", 0, bytes(3000))
    store.drain()
    files = sorted((tmp_path / "commitlog").iterdir())
    for path in files[:3]:
        os.utime(path, (clock.now / 1000 - 80 * 3600,) * 2)
    disk.stubborn = files[1]
    with pytest.raises(OSError, match="not permitted"):
        await store.clean(by_hand=True)
    assert sorted((tmp_path / "commitlog").iterdir()) == files[1:]
    assert store.figures().min_offset == int(files[1].name)
    assert bodies(store, "T", 0) == [bytes(3000)] * (10 - store.min_offset("T", 0))
    disk.stubborn = None
    assert await store.clean(by_hand=True) == 2
    assert sorted((tmp_path / "commitlog").iterdir()) == files[3:]
    store.close()


def test_a_dropped_topic_does_not_come_back_after_a_kill(tmp_path: Path) -> None:
    """The mark counts its units no more, so that the queues are not built again from the log."""
    store = open_store(tmp_path / "store")
    for topic in ("T", "U"):
        for number in range(30):
            put(store, topic, number % 3, b"x")
    store.drain()
    store.persist()
    put(store, "T", 0, b"after the mark")
    put(store, "U", 0, b"after the mark")
    store.drain()
    store.persist(sync=False)
    assert store.drop_topic("T") == 3
    shutil.copytree(tmp_path / "store", tmp_path / "killed")
    store.close()
    killed = Store(small_config(tmp_path / "killed"))
    report = killed.open()
    assert (report.clean, report.notes) == (False, [])
    assert killed.topics() == {"U"} and len(bodies(killed, "U", 0)) == 11
    killed.close()


async def test_nor_does_one_that_is_dropped_while_queues_are_written_out(tmp_path: Path) -> None:
    disk = Switched()
    store = open_store(tmp_path / "store", file_system=disk)
    store.start()
    for topic in ("T", "U"):
        for number in range(30):
            put(store, topic, number % 3, b"x")
    store.drain()
    disk.hold_queues()
    write_out = asyncio.ensure_future(store._scheduler._write_out(sync=True))
    assert await asyncio.to_thread(disk.flushing.wait, 20)
    assert store.drop_topic("T") == 3
    disk.release()
    await write_out
    shutil.copytree(tmp_path / "store", tmp_path / "killed")
    await store.stop()
    store.close()
    killed = Store(small_config(tmp_path / "killed"))
    report = killed.open()
    assert (report.clean, report.notes) == (False, [])
    assert killed.topics() == {"U"} and len(bodies(killed, "U", 0)) == 10
    killed.close()


def test_past_the_warning_mark_sends_are_refused_and_reads_go_on(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put(store, "T", 0, b"kept")
    store.drain()
    store.config.disk_space_warning_level_ratio = 0.0
    store.check_disk()
    refused = store.appender.put("T", 0, b"x", b"", born_timestamp=1, born_host=HOST, store_host=HOST)
    assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert "full" in (store.refusal or "")
    assert bodies(store, "T", 0) == [b"kept"]
    store.config.disk_space_warning_level_ratio = 0.999
    store.check_disk()
    assert store.refusal is None
    put(store, "T", 0, b"again")
    store.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_disk_that_really_fills_up(small_disk: Path, tmp_path: Path) -> None:
    config = small_config(
        small_disk / "store",
        mapped_file_size_commit_log=1 << 20,
        disk_space_warning_level_ratio=2,
        retry_after_full=0.0,
    )
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(1 << 20))
    store = Store(config)
    store.open()
    stored = 0
    while True:
        result = store.appender.put(
            "T", 0, b"%04d" % stored * 250, b"KEYS\x01k", born_timestamp=1, born_host=HOST, store_host=HOST
        )
        if result.status is not PutStatus.OK:
            break
        stored += 1
        store.drain()
    assert result.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert "No space left" in (store.refusal or "")
    assert 1000 < stored < 3000
    assert len(bodies(store, "T", 0)) == stored

    ballast.unlink()
    for number in range(stored, stored + 100):
        put(store, "T", 0, b"%04d" % number * 250)
    store.drain()
    assert store.refusal is None
    assert bodies(store, "T", 0) == [b"%04d" % number * 250 for number in range(stored + 100)]
    store.close()
    store = Store(config)
    assert store.open().clean
    assert len(bodies(store, "T", 0)) == stored + 100
    store.close()
