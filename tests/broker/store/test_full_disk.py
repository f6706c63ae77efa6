"""A disk without room: what is refused, what is said, and how it goes on when there is room again."""

from __future__ import annotations

from pathlib import Path

from structlog.testing import capture_logs

from eruca.broker.store import PutStatus, Store
from eruca.protocol.record import encode_batch
from tests.support.file_systems import Switched
from tests.support.stores import HOST, Clock, bodies, open_store, small_config


def put(store: Store, body: bytes) -> PutStatus:
    return store.appender.put("T", 0, body, b"", born_timestamp=1, born_host=HOST, store_host=HOST).status


def test_a_log_without_room_refuses_says_so_once_and_goes_on(tmp_path: Path) -> None:
    disk = Switched()
    store = open_store(tmp_path, Clock(), file_system=disk, retry_after_full=0.0)
    stored = [b"%04d" % number + bytes(1000) for number in range(3)]
    assert {put(store, body) for body in stored} == {PutStatus.OK}

    with capture_logs() as said:
        with disk.without_room("/commitlog/"):
            statuses = [put(store, bytes(1000)) for _ in range(12)]
            taken = statuses.count(PutStatus.OK)
            assert taken < 8192 // 1000 and set(statuses[taken:]) == {PutStatus.SERVICE_NOT_AVAILABLE}
            assert store.refusal == "no room in the commit log: No space left on device"
            store.drain()
            assert bodies(store, "T", 0) == stored + [bytes(1000)] * taken
        assert put(store, b"there is room again") is PutStatus.OK
    assert store.refusal is None
    assert [line["event"] for line in said] == ["no_room_in_commit_log", "room_in_commit_log"]

    store.close()
    again = Store(small_config(tmp_path), Clock())
    assert again.open().clean
    assert bodies(again, "T", 0) == stored + [bytes(1000)] * taken + [b"there is room again"]
    again.close()


def test_a_refused_message_or_batch_counts_once(tmp_path: Path) -> None:
    disk = Switched()
    store = open_store(tmp_path, Clock(), file_system=disk, mapped_file_size_commit_log=64 << 20)
    assert put(store, b"the file is there") is PutStatus.OK

    def put_batch(entries: bytes) -> PutStatus:
        return store.appender.put_batch("T", 0, entries, born_timestamp=1, born_host=HOST, store_host=HOST).status

    with disk.without_room("/commitlog/"):
        while put_batch(encode_batch([(0, bytes(100_000), b"")])) is PutStatus.OK:
            pass
        assert store.figures().put_failed == 1
        assert put(store, bytes(100_000)) is PutStatus.SERVICE_NOT_AVAILABLE
    assert store.figures().put_failed == 2
    limit = store.config.max_message_size
    assert put(store, bytes(limit + 1)) is put_batch(bytes(limit + 1)) is PutStatus.MESSAGE_ILLEGAL
    assert put_batch(b"no batch") is PutStatus.BATCH_ILLEGAL
    assert store.figures().put_failed == 5
    store.close()


def test_an_index_without_room_waits_says_so_once_and_goes_on(tmp_path: Path) -> None:
    disk = Switched()
    store = open_store(tmp_path, Clock(), file_system=disk)

    def keyed(key: bytes) -> None:
        stored = store.appender.put("T", 0, key, b"KEYS\x01" + key, born_timestamp=1, born_host=HOST, store_host=HOST)
        assert stored.status is PutStatus.OK
        store.drain()

    def found() -> list[bool]:
        return [bool(store.disk_lookup.query("T", key, 9, 0, 2**62).records) for key in ("a", "b", "c")]

    with capture_logs() as said:
        with disk.without_room("/index/"):
            keyed(b"a")
            keyed(b"b")
            assert found() == [False] * 3 and bodies(store, "T", 0) == [b"a", b"b"]
        keyed(b"c")
    assert found() == [True] * 3
    assert [line["event"] for line in said] == ["no_room_in_index", "room_in_index"]
    store.close()


def test_a_close_with_messages_that_are_in_no_index_yet_says_so(tmp_path: Path) -> None:
    disk = Switched()
    store = open_store(tmp_path, Clock(), file_system=disk)
    with capture_logs() as said, disk.without_room("/index/"):
        store.appender.put("T", 0, b"a", b"KEYS\x01a", born_timestamp=1, born_host=HOST, store_host=HOST)
        store.drain()
        fault = store.close()
    assert str(fault) == "1 messages are not in their queues or in the index yet"
    assert [line["event"] for line in said] == ["no_room_in_index", "store_not_closed_in_order"]

    again = Store(small_config(tmp_path), Clock())
    assert not again.open().clean
    assert len(again.disk_lookup.query("T", "a", 9, 0, 2**62).records) == 1
    assert again.close() is None


def test_a_close_that_finds_no_room_leaves_the_store_to_be_recovered(tmp_path: Path) -> None:
    disk = Switched()
    store = open_store(tmp_path, Clock(), file_system=disk)
    assert put(store, b"kept") is PutStatus.OK
    with capture_logs() as said, disk.without_room():
        store.close()
    assert [line["event"] for line in said] == ["store_not_closed_in_order"]

    again = Store(small_config(tmp_path), Clock())
    assert not again.open().clean
    assert bodies(again, "T", 0) == [b"kept"]
    again.close()
