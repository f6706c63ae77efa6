"""The key index: its bytes, and messages found by key."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eruca.broker.store import FileSystem, Store
from eruca.broker.store.consume_queue import ConsumeQueue
from eruca.broker.store.index_file import IndexFile
from eruca.broker.store.layout import index_hash
from eruca.protocol.message import TRANSACTION_ROLLBACK, java_hash
from eruca.protocol.record import decode_record
from tests.support.native import STEPS, Step
from tests.support.stores import Clock, bodies, open_store, put, small_config

EVER = 2**62


@pytest.fixture
def clock() -> Clock:
    return Clock()


def found(store: Store, topic: str, key: str, most: int = 32, begin: int = 0, end: int = EVER) -> list[bytes]:
    return [decode_record(data).body for data in store.query(topic, key, most, begin, end).records]


@pytest.mark.parametrize(
    ("key", "value"),
    [("T1#k1", 79072524), ("T1#AC11000115F018B4AAC20DBD69E80000", 1191156885)],
)
def test_hashes_are_absolute(key: str, value: int) -> None:
    assert index_hash(java_hash(key)) == value


def test_the_one_number_without_an_absolute_value_is_0() -> None:
    assert index_hash(-0x80000000) == 0


keys = st.one_of(
    st.binary(min_size=16, max_size=16).map(lambda data: data.hex().upper()),
    st.binary(min_size=16, max_size=16).map(bytes.hex),
    st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02 "), min_size=1, max_size=40),
    st.text("0123456789ABCDEF_+", min_size=32, max_size=32),
)


@given(st.sampled_from(["Topic", "主题"]), keys, keys)
def test_the_hashes_of_a_record_are_those_of_java(step: Step, topic: str, unique: str, key: str) -> None:
    queue = ConsumeQueue(topic, 0, "unused")
    text = f"TAGS\x01x\x02UNIQ_KEY\x01{unique}\x02KEYS\x01{key}".encode()
    found = step.keys([(queue, 7, 100, text, 0, 99, 0)])
    assert found == [(index_hash(java_hash(f"{topic}#{one}")), 7, 99) for one in (unique, key)]


@given(st.lists(st.tuples(st.binary(max_size=40), st.sampled_from([0, 4, 8, 12])), max_size=9))
@example([(b"KEYS\x01\xed\xa0\x80 \xed\xa0\xbd\xed\xb8\x80", 0), (b"UNIQ_KEY\x01\xf0\x9f\x98", 0)])
def test_both_implementations_hash_any_bytes_alike(texts: list[tuple[bytes, int]]) -> None:
    """Text that is not UTF-8, lone surrogates and code points of four bytes among them."""
    queue = ConsumeQueue("Topic", 0, "unused")
    work = [
        (queue, at, 100, prefix + text, at, 99, sys_flag)
        for at, (text, sys_flag) in enumerate(texts)
        for prefix in (b"", b"KEYS\x01", b"UNIQ_KEY\x01", b"TAGS\x01a\x02KEYS\x01k\x02UNIQ_KEY\x01")
    ]
    first, *others = [step.keys(work) for step in STEPS]
    assert all(other == first for other in others)


def test_a_file_as_apache_writes_it(tmp_path: Path, clock: Clock) -> None:
    store = open_store(tmp_path, clock, max_hash_slot_num=1000, max_index_num=4000)
    begin = clock.now
    put(store, "T1", 0, b"a", b"KEYS\x01k1\x02UNIQ_KEY\x01AC11000115F018B4AAC20DBD69E80000")
    clock.now += 10_500
    second = put(store, "T1", 0, b"b", b"KEYS\x01k1")
    store.drain()
    store.close()
    (path,) = (tmp_path / "index").iterdir()
    data = path.read_bytes()
    assert len(path.name) == 17 and len(data) == 84_040
    assert struct.unpack_from(">qqqqii", data) == (begin, begin + 10_500, 0, second, 2, 4)
    assert struct.unpack_from(">i", data, 40 + 524 * 4) == (3,)
    entries = [data[40 + 4000 + number * 20 :][:20] for number in range(4)]
    assert entries[0] == bytes(20)
    assert entries[1][:4] == (1191156885).to_bytes(4, "big")
    assert entries[2].hex() == "04b68d0c" + "0" * 32
    assert entries[3].hex() == f"04b68d0c{second:016x}0000000a00000002"


def test_messages_by_key(tmp_path: Path, clock: Clock) -> None:
    store = open_store(tmp_path, clock)
    for number in range(40):
        put(store, "T", number % 3, b"%d" % number, b"KEYS\x01all odd%d\x02UNIQ_KEY\x01%032d" % (number % 2, number))
    put(store, "U", 0, b"other", b"KEYS\x01all")
    put(store, "T", 0, "é".encode(), "KEYS\x01clé 鍵".encode())
    store.drain()
    assert found(store, "T", "odd1", 64) == [b"%d" % number for number in range(1, 40, 2)]
    assert found(store, "T", "all", 3) == [b"37", b"38", b"39"]
    assert found(store, "T", "7".zfill(32)) == [b"7"]
    assert found(store, "U", "all") == [b"other"]
    assert found(store, "T", "clé") == found(store, "T", "鍵") == ["é".encode()]
    assert found(store, "T", "none") == found(store, "T", "") == []
    store.close()


def test_keys_that_are_not_utf_8_are_found_by_the_text_that_readers_show(tmp_path: Path, clock: Clock) -> None:
    store = open_store(tmp_path, clock)
    for text in (b"KEYS\x01a\xffb c", b"UNIQ_KEY\x01\xe8\xae", "KEYS\x01订单\x02UNIQ_KEY\x01号".encode()):
        put(store, "T", 0, text, text)
    store.drain()
    for number, keys in enumerate((("a\ufffdb", "c"), ("\ufffd",), ("订单", "号"))):
        for key in keys:
            assert found(store, "T", key) == [bodies(store, "T", 0)[number]]
    assert found(store, "T", "\ud800") == []
    store.close()


def test_messages_by_key_and_time(tmp_path: Path, clock: Clock) -> None:
    store = open_store(tmp_path, clock)
    begin = clock.now
    for number in range(100):
        put(store, "T", 0, b"%d" % number, b"KEYS\x01k")
        clock.now += 300
    store.drain()
    assert found(store, "T", "k", 64, begin + 3000, begin + 3600) == [b"10", b"11", b"12"]
    assert found(store, "T", "k", 64, begin + 28_000, EVER) == [b"94", b"95", b"96", b"97", b"98", b"99"]
    assert found(store, "T", "k", 64, begin - 10, begin - 1) == []
    assert len(found(store, "T", "k", 1000)) == 64
    result = store.query("T", "k", 1, 0, EVER)
    assert result.index_last_update_timestamp == begin + 99 * 300
    assert result.index_last_update_physical_offset == store.unit("T", 0, 99)[0]  # type: ignore[index]
    store.close()


def test_a_full_file_is_followed_by_another_that_begins_at_its_end(tmp_path: Path, clock: Clock) -> None:
    store = open_store(tmp_path, clock, max_index_num=10)
    for _ in range(20):
        put(store, "T", 0, b"x", b"KEYS\x01k")
        clock.now += 1000
    store.drain()
    store.close()
    files = [IndexFile(path, 50, 10, FileSystem()) for path in sorted((tmp_path / "index").iterdir())]
    assert [file.count for file in files] == [10, 10, 3]
    assert files[0].entry(9)[2] == 8
    assert files[1].entry(1)[2] == 1, "relative to the end of the file before"
    assert files[1].begin_time == files[0].end_time + 1000


KEYED = [(number * 7 % 13, number * 100, 1_000 + number) for number in range(1, 101)]


@pytest.fixture
def crashed(tmp_path: Path) -> tuple[IndexFile, bytes]:
    """A file with 20 entries that are on the disk and 80 that came later; and what was on the disk."""
    file = IndexFile(tmp_path / "20231114221320000", 10, 120, FileSystem())
    file.put(KEYED[:20])
    synced = bytes(file.map)
    file.put(KEYED[20:])
    return file, synced


@pytest.mark.parametrize("lost", ["nothing", "the slots", "the entries", "half of the entries"])
@pytest.mark.parametrize("offset", [500, 2001, 2500, 100_000])
def test_after_a_crash_all_slots_are_right(crashed: tuple[IndexFile, bytes], lost: str, offset: int) -> None:
    """Whatever of what came after the last flush reached the disk, the file is as one that was made of what is left."""
    file, synced = crashed
    slots, later = 40, file.entries_at + 21 * 20
    if lost == "the slots":
        file.map[slots : file.entries_at] = synced[slots : file.entries_at]
    elif lost != "nothing":
        begin = later if lost == "the entries" else later + 9 * 20
        file.map[begin:] = bytes(len(file.map) - begin)
    file.cut(offset, synced=2001)
    left = [entry for entry in KEYED if entry[1] < offset]
    left = left[: {"the entries": 20, "half of the entries": 29}.get(lost, 100)]
    assert (file.count, file.end_offset) == (len(left) + 1, left[-1][1])
    for value in range(13):
        assert [at for at, _ in file.chain(value)] == [at for key, at, _ in reversed(left) if key == value]
    assert file.used_slots == len({value % 10 for value, _, _ in left})
    assert not any(file.map[file.entries_at + 20 * file.count :])


def test_rollbacks_are_not_indexed(tmp_path: Path, clock: Clock) -> None:
    store = open_store(tmp_path, clock)
    put(store, "T", 0, b"x", b"KEYS\x01k", sys_flag=TRANSACTION_ROLLBACK)
    store.drain()
    assert found(store, "T", "k") == []
    store.close()


def test_an_index_of_larger_files_is_left_alone_and_made_again(tmp_path: Path, clock: Clock) -> None:
    store = open_store(tmp_path, clock)
    put(store, "T", 0, b"x", b"KEYS\x01k")
    store.drain()
    store.close()
    store = Store(small_config(tmp_path, max_index_num=30), clock)
    assert any("maxIndexNum" in note for note in store.open().notes)
    put(store, "T", 0, b"y", b"KEYS\x01k")
    store.drain()
    assert found(store, "T", "k") == [b"x", b"y"]
    store.close()


def test_without_an_index_nothing_is_found(tmp_path: Path, clock: Clock) -> None:
    store = open_store(tmp_path, clock, message_index_enable=False)
    put(store, "T", 0, b"x", b"KEYS\x01k")
    store.drain()
    assert found(store, "T", "k") == []
    assert not (tmp_path / "index").exists()
    store.close()
