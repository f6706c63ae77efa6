"""Reads in one go, by the native step or not: the same messages as record by record, and nothing outside of the log."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eruca.broker.store import Got, Matcher, Store, native
from eruca.broker.store.consume_queue import UNIT_FORM
from eruca.broker.store.layout import Taken
from eruca.protocol.message import java_hash
from eruca.protocol.record import decode_records
from tests.support.file_systems import Switched
from tests.support.native import Step, using
from tests.support.stores import Clock, bodies, open_store, put, small_config


def whole(found: Taken | None) -> tuple[bytes, int, int, int] | None:
    """What ``take`` or ``fetch`` found, in one piece."""
    return None if found is None else (b"".join(found[0]), *found[1:])


def taken(got: Got) -> tuple[object, ...]:
    return *got[:4], b"".join(got.buffers), *got[5:]


@given(st.integers(0, 2**32), st.booleans())
@settings(deadline=None, max_examples=15)
def test_what_is_found_is_the_same_however_it_is_read(
    tmp_path_factory: pytest.TempPathFactory, seed: int, again: bool
) -> None:
    chance = random.Random(seed)
    root = tmp_path_factory.mktemp("store")
    store = open_store(root, Clock(), max_transfer_count_on_message_in_memory=64)
    for _ in range(chance.choice([40, 300])):
        queue, tag = chance.randrange(3), chance.choice([b"", b"TAGS\x01a", b"TAGS\x01b", b"TAGS\x01c"])
        put(store, "T", queue, chance.randbytes(chance.choice([0, 30, 700])), tag)
    store.drain()
    if again:  # all was written by an earlier run
        store.close()
        store = open_store(root, Clock(), max_transfer_count_on_message_in_memory=64)
    codes = [java_hash(tag) for tag in "abcd"]
    for _ in range(40):
        chosen = chance.choice([None, frozenset(codes[:1]), frozenset(codes[1:]), frozenset(codes[3:]), frozenset()])
        ask = "T", chance.randrange(3), chance.choice([0, 5, 50, 120]), chance.choice([1, 3, 32, 64]), Matcher(chosen)
        store.commit_log.hot_bytes = chance.choice([0, 9000, 1 << 30])
        store.reader.limits.memory_bytes = chance.choice([300, 2000, 262144])
        store.reader.limits.memory = chance.choice([5000, 1 << 30])
        found = []
        for on, together in ((native.on, 128 << 10), (False, 128 << 10), (native.on, 900), (False, 0)):
            store.reader.limits.together = together
            with using(c=on):
                found.append(taken(store.get(*ask)))
        assert found[0] == found[1] == found[2] == found[3], ask
    store.close()


@pytest.mark.usefixtures("chosen")
@pytest.mark.parametrize("again", [True, False], ids=["of an earlier run", "of this run"])
def test_records_that_lie_apart_on_the_disk_come_in_several_answers(tmp_path: Path, again: bool) -> None:
    config = small_config(tmp_path, mapped_file_size_commit_log=4 << 20, mapped_file_size_consume_queue=20_000)
    disk = Switched()
    store = Store(config, Clock(), file_system=disk)
    store.open()
    for number in range(1600):
        put(store, "T", number % 4, b"%04d" % number + bytes(1100))
    store.drain()
    if again:
        store.close()
        store = Store(config, Clock(), file_system=disk)
        store.open()
    store.commit_log.hot_bytes = 0
    seen: list[bytes] = []
    disk.reads.clear()
    answers = 0
    while len(seen) < 400:
        got = store.get("T", 1, len(seen), 1024)
        found = [record.body for buffer in got.buffers for record in decode_records(buffer, check=True)]
        assert len(found) >= 64 or len(seen) + len(found) == 400
        seen += found
        answers += 1
    assert [int(body[:4]) for body in seen] == list(range(1, 1600, 4))
    assert 2 <= answers <= 6 and sum(disk.reads) <= 1.6 * 1600 * 1300 and len(disk.reads) <= 5 * answers
    store.close()


@pytest.mark.usefixtures("chosen")
def test_plain_reads_are_not_made_record_by_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path, Clock())
    for number in range(20):
        put(store, "T", number % 2, b"%d" % number, b"TAGS\x01a")
    store.drain()
    monkeypatch.setattr("eruca.broker.store.reader.Reader._read_each", None)
    for _ in ("of this run", "of an earlier run"):
        for match in (None, Matcher(frozenset([java_hash("a")]))):
            for hot in (1 << 30, 0):
                for memory in (1 << 30, 0):
                    store.commit_log.hot_bytes, store.reader.limits.memory = hot, memory
                    assert len(bodies(store, "T", 1, match)) == 10
        store.close()
        store = open_store(tmp_path, Clock())
    store.close()


@given(st.integers(0, 2**32))
@settings(deadline=None, max_examples=30)
def test_damage_is_found_the_same_however_it_is_read(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """A byte of the log or of a queue's units changes between two runs, after the recovery."""
    chance = random.Random(seed)
    root = tmp_path_factory.mktemp("store")
    store = open_store(root, Clock())
    for number in range(60):
        put(store, "T", number % 2, chance.randbytes(chance.choice([0, 30, 700])), b"TAGS\x01a")
    store.drain()
    store.close()
    store = open_store(root, Clock())
    changed = chance.choice(sorted(root.glob("co*/**/" + "0" * 15 + "*")))
    end = 600 if changed.parent.name.isdigit() else store.figures().max_offset - int(changed.name)
    with open(changed, "r+b") as file:
        file.seek(chance.randrange(min(end, changed.stat().st_size)))
        old = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([old ^ 1 << chance.randrange(8)]))
    for number in range(2):
        found = []
        for on in (native.on, False):
            with using(c=on):
                found.append(taken(store.get("T", number, 0, 32)))
        assert found[0] == found[1], (seed, number)
    store.close()


places = st.one_of(st.integers(90, 160), st.integers(-(2**63), 2**63 - 1))
units = st.lists(
    st.tuples(places, st.one_of(st.integers(0, 40), st.integers(-(2**31), 2**31 - 1)), st.sampled_from([1, 2, -3])),
    max_size=9,
)


@given(
    units,
    st.sampled_from([None, (), (1,), (2, -3)]),
    st.integers(-1, 5),
    st.integers(-1, 90),
    st.integers(95, 105),
    st.one_of(st.integers(90, 160), places),
    st.one_of(st.integers(90, 160), places),
)
@example([(100, 5, 1), (105, 5, 2), (110, 5, 1)], (1,), 0, 90, 100, 100, 150)  # one at least, none passed over
@example([(90, 0, 1)], (1,), -1, 0, 95, 95, 90)
def test_nothing_is_read_outside_of_the_log(
    step: Step,
    wanted: list[tuple[int, int, int]],
    codes: tuple[int, ...] | None,
    most: int,
    room: int,
    start: int,
    low: int,
    high: int,
) -> None:
    log = bytes(range(100, 150))
    packed = None if codes is None else b"".join(code.to_bytes(8, "big", signed=True) for code in codes)
    data = b"".join(UNIT_FORM.pack(*unit) for unit in wanted)
    found = step.take(data, packed, most, room, memoryview(log), start, low, high)
    with tempfile.TemporaryFile() as file:
        file.write(log)
        file.flush()
        if high <= start + len(log):  # behind it, the file is at its end
            for wait in (True, False):
                assert whole(found) == whole(
                    step.fetch(data, packed, most, room, file.fileno(), start, low, high, wait, b"T", 0, 0, 0)
                )
    expected: list[bytes] | None = []
    looked_at = len(wanted)
    for number, (at, size, code) in enumerate(wanted):
        if expected is not None and (codes is None or code in codes):
            if expected and (len(expected) >= most or sum(map(len, expected)) + size > room):
                looked_at = number
                break
            if not (start <= low <= at and at + size <= high and size > 0):
                expected = None
            else:
                expected.append(log[at - start : at - start + size])
    if low < start or high > start + len(log):
        expected = None
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert whole(found) == (b"".join(expected), len(expected), looked_at, sum(map(len, expected)))
