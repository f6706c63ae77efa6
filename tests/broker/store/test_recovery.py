"""Stores that were stopped, in order or not, and opened again."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from eruca.broker.store import Store, StoreDamaged
from eruca.broker.store.recover import FILLER_TOPIC
from eruca.protocol.message import TRANSACTION_ROLLBACK
from eruca.protocol.record import decode_record
from tests.support.stores import Clock, bodies, index_contents, open_store, put, queue_units, small_config, spoil


def text(number: int) -> bytes:
    return b"message %d " % number * (1 + number % 5)


def fill(store: Store, count: int, *, start: int = 0) -> None:
    for number in range(start, start + count):
        put(store, "T", number % 2, text(number), b"UNIQ_KEY\x01K%d\x02TAGS\x01a" % number)


def expected(count: int, queue: int) -> list[bytes]:
    return [text(number) for number in range(queue, count, 2)]


def live_copy(store: Store, root: Path, target: Path) -> Path:
    """The files of a running store as a kill -9 would leave them."""
    shutil.copytree(root, target)
    return target


def test_after_an_orderly_stop_nothing_is_read_again(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store, 200)
    store.close()
    for _ in range(2):
        store = Store(small_config(tmp_path))
        report = store.open()
        assert (report.clean, report.records, report.damages) == (True, 0, [])
        assert bodies(store, "T", 0) == expected(200, 0) and bodies(store, "T", 1) == expected(200, 1)
        store.close()


def test_writing_goes_on_where_it_ended(tmp_path: Path) -> None:
    for start in range(0, 150, 30):
        store = open_store(tmp_path)
        fill(store, 30, start=start)
        store.close()
    store = open_store(tmp_path)
    assert bodies(store, "T", 0) == expected(150, 0) and bodies(store, "T", 1) == expected(150, 1)
    store.close()


@pytest.mark.parametrize("persisted_at", [None, 0, 37, 100])
@pytest.mark.parametrize("dispatched", [False, True])
def test_after_a_kill_every_message_is_there_once(tmp_path: Path, persisted_at: int | None, dispatched: bool) -> None:
    root = tmp_path / "live"
    store = open_store(root)
    for number in range(120):
        fill(store, 1, start=number)
        if dispatched:
            store.drain()
        if number == persisted_at:
            store.drain()
            store.persist()
    copy = live_copy(store, root, tmp_path / "copy")
    store.close()

    again = Store(small_config(copy))
    report = again.open()
    assert not report.clean and report.damages == [] and report.lost_units == []
    assert bodies(again, "T", 0) == expected(120, 0) and bodies(again, "T", 1) == expected(120, 1)
    found = again.query("T", "K77", 32, 0, 2**62)
    assert [decode_record(data).body for data in found.records] == [text(77)]
    fill(again, 10, start=120)
    again.close()
    assert len(queue_units(copy)["T/0"]) == 65 * 20


def test_what_recovery_builds_equals_what_was_there(tmp_path: Path) -> None:
    clock = Clock()
    store = open_store(tmp_path / "live", clock)
    fill(store, 100)
    store.close()
    units, index = queue_units(tmp_path / "live"), index_contents(tmp_path / "live")

    for gone in ("consumequeue", "index"):
        copy = tmp_path / gone
        shutil.copytree(tmp_path / "live", copy)
        shutil.rmtree(copy / "consumequeue")
        shutil.rmtree(copy / "index")
        (copy / "abort").touch()
        again = Store(small_config(copy), clock)
        assert again.open().redispatched == 100
        again.close()
        assert queue_units(copy) == units
        assert index_contents(copy) == index


def test_a_store_without_the_mark_is_read_by_its_checkpoint(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store, 200)
    store.close()
    (tmp_path / "eruca.mark").unlink()
    for abort in (False, True):
        if abort:
            (tmp_path / "abort").touch()
        store = open_store(tmp_path)
        assert bodies(store, "T", 0) == expected(200, 0) and bodies(store, "T", 1) == expected(200, 1)
        store.close()
        (tmp_path / "eruca.mark").unlink()


@pytest.mark.parametrize(("first", "size"), [(1024, 512), (1100, 40)])
def test_units_that_a_power_failure_took_out_of_the_middle_come_back(tmp_path: Path, first: int, size: int) -> None:
    home = tmp_path / "home"
    config: dict[str, Any] = {"mapped_file_size_consume_queue": 20 * 500, "mapped_file_size_commit_log": 1 << 20}
    store = open_store(home, **config)
    fill(store, 40)
    store.drain()
    store.flush()
    store.persist()
    fill(store, 260, start=40)
    store.drain()
    store.flush()
    store.persist(sync=False)
    copy = live_copy(store, home, tmp_path / "copy")
    store.close()
    file = copy / "consumequeue" / "T" / "0" / f"{0:020d}"
    data = bytearray(file.read_bytes())
    data[first : first + size] = bytes(size)  # between units that are there
    file.write_bytes(data)
    again = open_store(copy, **config)
    assert bodies(again, "T", 0) == expected(300, 0) and bodies(again, "T", 1) == expected(300, 1)
    again.close()


def test_damage_in_the_middle_cuts_nothing_off(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store, 60)
    store.drain()
    unit = store.unit("T", 0, 10)
    assert unit is not None
    store.close()
    place, size, _ = unit
    log = tmp_path / "commitlog" / f"{place // 8192 * 8192:020d}"
    data = bytearray(log.read_bytes())
    data[place % 8192 + 90] ^= 1
    log.write_bytes(data)

    store = Store(small_config(tmp_path))
    report = store.open()
    assert [(damage.start, damage.end) for damage in report.damages] == [(place, place + size)]
    assert report.lost_units == [("T", 0, 10)]
    assert report.skipped_bytes == size
    assert store.figures().damaged_records == 1
    left = expected(60, 0)
    del left[10]
    assert bodies(store, "T", 0) == left and bodies(store, "T", 1) == expected(60, 1)
    fill(store, 2, start=60)
    store.drain()
    assert bodies(store, "T", 0) == [*left, text(60)]
    store.close()

    store = Store(small_config(tmp_path))
    assert store.open().damages == []
    assert bodies(store, "T", 0) == [*left, text(60)]
    store.close()


@pytest.mark.parametrize("abort", [False, True])
def test_a_lost_slot_repeats_the_next_message_and_damage_is_covered(tmp_path: Path, abort: bool) -> None:
    store = open_store(tmp_path)
    fill(store, 40)
    store.drain()
    units = [store.unit("T", 1, number) for number in range(20)]
    store.close()
    lost = units[5]
    assert lost is not None
    spoil(tmp_path, lost[0], lost[1])
    if abort:
        (tmp_path / "abort").touch()

    store = Store(small_config(tmp_path))
    assert store.open().lost_units == [("T", 1, 5)]
    assert store.unit("T", 1, 5) == store.unit("T", 1, 6) == units[6]
    cover = store.record(lost[0])
    assert cover is not None
    filler = decode_record(cover, check=True)
    assert (filler.topic, filler.size, filler.sys_flag) == (FILLER_TOPIC, lost[1], TRANSACTION_ROLLBACK)
    store.close()


def test_the_last_messages_of_a_queue_lost_keep_their_units(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for number in range(5):
        put(store, "A", 0, b"a%d" % number)
    put(store, "Only", 0, b"one")
    for number in range(5):
        put(store, "B", 0, b"b%d" % number)
    store.drain()
    last, only = store.unit("A", 0, 4), store.unit("Only", 0, 0)
    assert last is not None and only is not None
    store.close()
    spoil(tmp_path, last[0], only[0] + only[1] - last[0])

    store = Store(small_config(tmp_path))
    assert sorted(store.open().lost_units) == [("A", 0, 4), ("Only", 0, 0)]
    assert store.max_offset("A", 0) == 5 and bodies(store, "A", 0) == [b"a0", b"a1", b"a2", b"a3"]
    assert store.max_offset("Only", 0) == 1 and bodies(store, "Only", 0) == []
    assert bodies(store, "B", 0) == [b"b0", b"b1", b"b2", b"b3", b"b4"]
    assert put(store, "B", 0, b"b5") > 0
    store.drain()
    store.close()
    for name in ("abort", "eruca.mark"):
        (tmp_path / name).touch() if name == "abort" else (tmp_path / name).unlink()

    store = open_store(tmp_path)
    assert store.max_offset("A", 0) == 5, "also after the queues were built again"
    put(store, "A", 0, b"a5")
    put(store, "Only", 0, b"two")
    store.drain()
    assert bodies(store, "A", 0)[-1] == b"a5" and store.max_offset("A", 0) == 6
    assert bodies(store, "Only", 0) == [b"two"] and store.max_offset("Only", 0) == 2
    store.close()


def test_a_file_cut_short_is_made_whole(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store, 300)
    store.drain()
    store.close()
    files = sorted((tmp_path / "commitlog").iterdir())
    assert len(files) >= 4
    with files[1].open("r+b") as file:
        file.truncate(5000)
    files[2].unlink()

    store = Store(small_config(tmp_path))
    report = store.open()
    assert "filled up with zeros" in report.notes[0]
    left = [text(number) for number in range(300)]
    kept = bodies(store, "T", 0) + bodies(store, "T", 1)
    assert set(kept) < set(left) and len(kept) + len(report.lost_units) == 300
    assert bodies(store, "T", 0)[-1] == text(298) and bodies(store, "T", 1)[-1] == text(299)
    store.close()


def test_another_file_size_is_refused_with_advice(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store, 300)
    store.close()
    with pytest.raises(StoreDamaged, match="mappedFileSizeCommitLog"):
        Store(small_config(tmp_path, mapped_file_size_commit_log=4096)).open()
    with pytest.raises(StoreDamaged, match="multiple of mappedFileSizeCommitLog"):
        Store(small_config(tmp_path, mapped_file_size_commit_log=16384)).open()
    store = open_store(tmp_path)
    assert bodies(store, "T", 0) == expected(300, 0)
    store.close()


def test_a_torn_record_at_the_end_is_dropped_and_said(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store, 10)
    store.drain()
    last = store.unit("T", 1, 4)
    assert last is not None
    store.close()
    (tmp_path / "abort").touch()
    spoil(tmp_path, last[0] + 95, 4)

    store = Store(small_config(tmp_path))
    report = store.open()
    assert [(one.start, one.reason) for one in report.damages] == [
        (last[0], "an incomplete record at the end of the log")
    ]
    assert report.end_offset == last[0]
    assert bodies(store, "T", 1) == expected(10, 1)[:4]
    put(store, "T", 1, b"instead")
    store.drain()
    assert bodies(store, "T", 1) == [*expected(10, 1)[:4], b"instead"]
    store.close()


def test_damage_before_the_blank_end_of_the_last_file_is_the_logs_end(tmp_path: Path) -> None:
    """What is written in the room behind it would be hidden by what covers it."""
    store = open_store(tmp_path / "live", flush_disk_type="SYNC_FLUSH")
    put(store, "T", 0, b"first")
    store.flush()
    store.persist()
    end = store.figures().max_offset
    starts = []
    while (start := put(store, "T", 0, b"x" * 1400)) < 8192:
        starts.append(start)
    copy = live_copy(store, tmp_path / "live", tmp_path / "copy")
    store.close()
    (copy / "commitlog" / f"{8192:020d}").unlink()  # its name never came to the disk
    for start in starts:
        spoil(copy, start, 100)

    again = open_store(copy, flush_disk_type="SYNC_FLUSH")
    assert again.figures().max_offset == again.recovery.end_offset == end
    assert put(again, "T", 0, b"acknowledged") == end
    again.flush()
    again.persist()
    killed = live_copy(again, copy, tmp_path / "killed")
    again.close()
    assert not any((killed / "commitlog" / f"{0:020d}").read_bytes()[again.figures().max_offset :])
    store = open_store(killed, flush_disk_type="SYNC_FLUSH")
    assert bodies(store, "T", 0) == [b"first", b"acknowledged"]
    store.close()


def test_a_body_that_holds_a_record_is_not_taken_for_one(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put(store, "T", 0, b"first")
    first = store.record(0)
    assert first is not None
    outer = put(store, "T", 0, first * 3)
    put(store, "T", 0, b"last")
    store.close()
    spoil(tmp_path, outer + 8, 4)
    store = Store(small_config(tmp_path))
    report = store.open()
    assert [one.start for one in report.damages] == [outer]
    assert bodies(store, "T", 0) == [b"first", b"last"]
    store.close()


def test_a_damaged_size_covers_no_sound_record(tmp_path: Path) -> None:
    """One bit of it leads over the next record to where another one begins."""
    store = open_store(tmp_path)
    first = put(store, "T", 0, b"first" * 10)
    size = put(store, "T", 0, b"second" + bytes(256 - 98)) - first
    third = put(store, "T", 0, b"third")
    store.close()
    assert third - first == size + 256 and not size & 256
    with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as log:
        log.seek(first)
        log.write((size | 256).to_bytes(4, "big"))

    store = open_store(tmp_path)
    assert [(one.start, one.end) for one in store.recovery.damages] == [(first, first + size)]
    assert [body[:6] for body in bodies(store, "T", 0)] == [b"second", b"third"]
    store.close()


def test_a_topic_deleted_and_made_again_is_rebuilt_with_its_later_messages(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for number in range(5):
        put(store, "T", 0, b"old%d" % number)
    store.drain()
    store.drop_topic("T")
    for number in range(2):
        put(store, "T", 0, b"new%d" % number)
    store.close()
    shutil.rmtree(tmp_path / "consumequeue")
    (tmp_path / "abort").touch()
    store = open_store(tmp_path)
    assert bodies(store, "T", 0) == [b"new0", b"new1"]
    store.close()


def test_a_queue_whose_beginning_was_deleted_with_the_log_begins_later(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store, 300)
    store.drain()
    store.close()
    files = sorted((tmp_path / "commitlog").iterdir())
    files[0].unlink()
    shutil.rmtree(tmp_path / "consumequeue")
    (tmp_path / "abort").touch()
    store = Store(small_config(tmp_path))
    report = store.open()
    low = store.min_offset("T", 0)
    assert report.lost_units == [] and low > 0
    assert bodies(store, "T", 0) == expected(300, 0)[low:]
    store.close()
    first = sorted((tmp_path / "consumequeue" / "T" / "0").iterdir())[0]
    blank = bytes.fromhex("0000000000000000" + "7fffffff" + "0000000000000000")
    assert first.read_bytes().startswith(blank * (low - int(first.name) // 20))


def test_without_a_log_the_queues_go(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store, 20)
    store.close()
    shutil.rmtree(tmp_path / "commitlog")
    store = open_store(tmp_path)
    assert store.topics() == set()
    assert put(store, "T", 0, b"anew") == 0
    store.drain()
    assert bodies(store, "T", 0) == [b"anew"]
    store.close()


@pytest.mark.parametrize("at", [20, 22, 25])
def test_a_damaged_queue_offset_costs_that_message_alone(tmp_path: Path, at: int) -> None:
    """No CRC covers it. The log has no room for what would stand before the message, nor the machine for the units."""
    store = open_store(tmp_path)
    fill(store, 40)
    store.drain()
    unit = store.unit("T", 0, 10)
    assert unit is not None
    store.close()
    spoil(tmp_path, unit[0] + at, 1)
    shutil.rmtree(tmp_path / "consumequeue")
    store = Store(small_config(tmp_path))
    report = store.open()
    assert report.lost_units == [("T", 0, 10)]
    wanted = expected(40, 0)
    assert bodies(store, "T", 0) == wanted[:10] + wanted[11:]
    assert bodies(store, "T", 1) == expected(40, 1)
    store.close()
