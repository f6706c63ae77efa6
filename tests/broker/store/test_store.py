"""Messages go into a store and come out again."""

from __future__ import annotations

from pathlib import Path

import pytest

from eruca.broker.store import GetStatus, Got, Matcher, PutStatus, Store, StoreLocked
from eruca.protocol.message import COMPRESSED, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK, tags_code
from eruca.protocol.record import BatchEntry, decode_record, encode_batch, host_bytes
from eruca.remoting.clock import now_ms
from tests.support.stores import HOST, Clock, bodies, open_store, put, queue_units, read, small_config


def get(store: Store, topic: str, queue: int, offset: int, count: int = 32, match: Matcher | None = None) -> Got:
    return store.get(topic, queue, offset, count, match)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock):  # type: ignore[no-untyped-def]
    store = open_store(tmp_path, clock)
    yield store
    store.close()


def test_a_message_can_be_read_after_its_dispatch(store: Store) -> None:
    result = store.appender.put(
        "T1", 3, b"hello", b"TAGS\x01TagA", flag=7, born_timestamp=5, born_host=HOST, store_host=HOST, reconsume_times=2
    )
    assert (result.status, result.queue_offset, result.physical_offset) == (PutStatus.OK, 0, 0)
    assert result.end_offset == result.size
    assert get(store, "T1", 3, 0).status is GetStatus.NO_MESSAGE_IN_QUEUE

    assert store.drain() == 1
    got = get(store, "T1", 3, 0)
    assert (got.status, got.next_begin_offset, got.min_offset, got.max_offset) == (GetStatus.FOUND, 1, 0, 1)
    record = decode_record(got.buffers[0], check=True)
    assert (record.body, record.flag, record.reconsume_times, record.tags) == (b"hello", 7, 2, "TagA")
    assert record.store_timestamp == result.store_timestamp == 1_700_000_000_000


def test_the_bytes_on_disk_are_those_of_a_captured_record(tmp_path: Path) -> None:
    captured = bytes.fromhex(
        "000000b0daa320a73610a68600000000000000000000000000000000000000000000000000000000"
        "000001a1fd3eea567f00000100009e9a000001a1fd3eea607f000001000074d700000000000000000000000000000005"
        "68656c6c6f025431004e4b455953016b3102554e49515f4b455901414331313030303131354630313842344141433230"
        "444244363945383030303002434c5553544552014c6162436c757374657202544147530154616741"
    )
    store = open_store(tmp_path, Clock(0x1A1FD3EEA60))
    store.appender.put(
        "T1",
        0,
        b"hello",
        captured[-0x4E:],
        born_timestamp=0x1A1FD3EEA56,
        born_host=host_bytes("127.0.0.1", 40602),
        store_host=host_bytes("127.0.0.1", 0x74D7),
    )
    store.close()
    assert (tmp_path / "commitlog" / ("0" * 20)).read_bytes()[:176] == captured
    assert (tmp_path / "commitlog" / ("0" * 20)).stat().st_size == 8192
    assert queue_units(tmp_path) == {"T1/0": bytes.fromhex("0000000000000000000000b0000000000027a807")}
    assert (tmp_path / "checkpoint").stat().st_size == 4096
    assert (tmp_path / "lock").read_bytes() == b"lock"
    assert not (tmp_path / "abort").exists()


def test_queues_keep_their_own_offsets_and_order(store: Store) -> None:
    for number in range(300):
        put(store, "T", number % 3, b"%d" % number)
        if number % 7 == 0:
            store.drain()
    store.drain()
    for queue in range(3):
        records = list(read(store, "T", queue))
        assert [record.body for record in records] == [b"%d" % number for number in range(queue, 300, 3)]
        assert [record.queue_offset for record in records] == list(range(100))
        assert {record.queue_id for record in records} == {queue}


def test_a_file_ends_with_a_blank_record_and_the_message_goes_to_the_next(tmp_path: Path, store: Store) -> None:
    first = [put(store, "T", 0, bytes(3000)) for _ in range(3)]
    assert first[2] == 8192
    end = first[1] + (first[1] - first[0])
    data = (tmp_path / "commitlog" / ("0" * 20)).read_bytes()
    assert data[end : end + 8] == (8192 - end).to_bytes(4, "big") + bytes.fromhex("cbd43194")
    assert (tmp_path / "commitlog" / "00000000000000008192").stat().st_size == 8192
    store.drain()
    assert bodies(store, "T", 0) == [bytes(3000)] * 3


def test_a_record_that_just_fits_leaves_eight_bytes(store: Store) -> None:
    overhead = 88 + 2 + 2
    put(store, "T", 0, bytes(8192 - 8 - overhead))
    assert put(store, "T", 0, b"") == 8192


@pytest.mark.parametrize(
    ("body", "properties", "status"),
    [
        (8192, 0, PutStatus.MESSAGE_ILLEGAL),
        (8192 - 8 - 91, 0, PutStatus.MESSAGE_ILLEGAL),
        (1, 32768, PutStatus.PROPERTIES_SIZE_EXCEEDED),
    ],
)
def test_what_is_too_long_is_refused_and_leaves_nothing(
    store: Store, body: int, properties: int, status: PutStatus
) -> None:
    result = store.appender.put(
        "T", 0, bytes(body), bytes(properties), born_timestamp=1, born_host=HOST, store_host=HOST
    )
    assert result.status is status
    assert store.figures().max_offset == 0
    assert put(store, "T", 0, b"next") == 0


def test_the_configured_message_size_counts_the_body(tmp_path: Path) -> None:
    store = open_store(tmp_path, max_message_size=100)
    assert put(store, "T", 0, bytes(100)) == 0
    refused = store.appender.put("T", 0, bytes(101), b"", born_timestamp=1, born_host=HOST, store_host=HOST)
    assert refused.status is PutStatus.MESSAGE_ILLEGAL
    store.close()


def test_a_batch_is_one_record_each_next_to_one_another(store: Store) -> None:
    put(store, "T", 0, bytes(7000))
    batch = encode_batch([BatchEntry(n, b"b%d" % n, b"UNIQ_KEY\x01K%d" % n) for n in range(5)])
    result = store.appender.put_batch(
        "T", 0, batch, extra_properties=b"CLUSTER\x01C", born_timestamp=1, born_host=HOST, store_host=HOST
    )
    assert (result.status, result.queue_offset, len(result.physical_offsets)) == (PutStatus.OK, 1, 5)
    store.drain()
    got = get(store, "T", 0, 1)
    assert (got.message_count, len(got.buffers)) == (5, 1)
    records = list(read(store, "T", 0))[1:]
    assert [record.physical_offset for record in records] == list(result.physical_offsets)
    assert [record.body for record in records] == [b"b0", b"b1", b"b2", b"b3", b"b4"]
    assert [record.flag for record in records] == [0, 1, 2, 3, 4]
    assert records[3].properties == {"UNIQ_KEY": "K3", "CLUSTER": "C"}


def test_a_batch_never_spans_two_files(store: Store) -> None:
    put(store, "T", 0, bytes(7000))
    batch = encode_batch([BatchEntry(0, bytes(300), b"") for _ in range(4)])
    result = store.appender.put_batch("T", 0, batch, born_timestamp=1, born_host=HOST, store_host=HOST)
    assert result.physical_offsets[0] == 8192


def test_a_bad_batch_leaves_nothing(store: Store) -> None:
    good = encode_batch([BatchEntry(0, b"x", b"")])
    for body, status in (
        (b"", PutStatus.BATCH_ILLEGAL),
        (good + b"\0\0", PutStatus.BATCH_ILLEGAL),
        (encode_batch([BatchEntry(0, bytes(3000), b"")] * 3), PutStatus.MESSAGE_ILLEGAL),
    ):
        result = store.appender.put_batch("T", 0, body, born_timestamp=1, born_host=HOST, store_host=HOST)
        assert result.status is status
    assert store.figures().max_offset == 0


def test_the_bounds_of_single_messages_hold_in_a_batch(tmp_path: Path) -> None:
    store = open_store(tmp_path, max_message_size=1000, mapped_file_size_commit_log=256 << 10)
    few_bytes, properties = BatchEntry(0, bytes(100), b""), BatchEntry(0, b"x", b"k\x01" + b"v" * 32_750)

    def status(*entries: BatchEntry, extra: bytes = b"") -> PutStatus:
        return store.appender.put_batch(
            "T",
            0,
            encode_batch(list(entries)),
            extra_properties=extra,
            born_timestamp=1,
            born_host=HOST,
            store_host=HOST,
        ).status

    assert status(*[few_bytes] * 8) is PutStatus.OK
    assert status(*[few_bytes] * 9) is PutStatus.MESSAGE_ILLEGAL, "all entries together have more than 1000 bytes"
    store.close()
    store = open_store(tmp_path / "larger", max_message_size=100_000, mapped_file_size_commit_log=256 << 10)
    assert status(few_bytes, properties, extra=b"CLUSTER\x01" + b"C" * 20) is PutStatus.PROPERTIES_SIZE_EXCEEDED
    assert store.figures().max_offset == 0
    assert status(few_bytes, properties, extra=b"CLUSTER\x01C") is PutStatus.OK
    store.close()


def test_half_and_rollback_records_have_no_place_in_a_queue(store: Store) -> None:
    put(store, "T", 0, b"half", sys_flag=TRANSACTION_PREPARED)
    put(store, "T", 0, b"first")
    put(store, "T", 0, b"back", sys_flag=TRANSACTION_ROLLBACK)
    put(store, "T", 0, b"second", sys_flag=COMPRESSED)
    store.drain()
    assert bodies(store, "T", 0) == [b"first", b"second"]


def test_ipv6_hosts(store: Store) -> None:
    host = host_bytes("2001:db8::1", 10911)
    store.appender.put("T", 0, b"six", b"", sys_flag=0x30, born_timestamp=1, born_host=host, store_host=host)
    store.drain()
    (record,) = read(store, "T", 0)
    assert (record.born_host, record.store_host, record.body) == (host, host, b"six")


def test_reading_outside_a_queue(store: Store) -> None:
    for _ in range(3):
        put(store, "T", 0, b"x")
    store.drain()
    for offset, status, following in (
        (-1, GetStatus.OFFSET_TOO_SMALL, 0),
        (3, GetStatus.OFFSET_OVERFLOW_ONE, 3),
        (4, GetStatus.OFFSET_OVERFLOW_BADLY, 3),
    ):
        got = get(store, "T", 0, offset)
        assert (got.status, got.next_begin_offset, got.buffers) == (status, following, [])
    assert get(store, "T", 1, 0).status is GetStatus.NO_MESSAGE_IN_QUEUE
    assert store.max_offset("T", 1) == store.min_offset("Unknown", 0) == 0


def test_a_reply_holds_at_most_32_messages_and_the_configured_bytes(tmp_path: Path) -> None:
    store = open_store(tmp_path, max_transfer_bytes_on_message_in_memory=1000)
    for _ in range(40):
        put(store, "T", 0, b"x")
    for _ in range(4):
        put(store, "U", 0, bytes(600))
        put(store, "V", 0, bytes(100))
    store.drain()
    assert get(store, "T", 0, 0, 100).message_count * 94 <= 1000
    assert [get(store, "U", 0, 0).message_count, get(store, "V", 0, 0).message_count] == [1, 4]
    assert get(store, "T", 0, 0, 5).message_count == 5
    store.close()


@pytest.mark.parametrize(("messages", "size", "expected"), [(7, 1 << 18, 7), (1024, 1000, 10)])
def test_a_reply_from_the_disk_has_bounds_of_its_own(tmp_path: Path, messages: int, size: int, expected: int) -> None:
    for percent_in_memory, count in ((0, expected), (40, 20)):
        store = open_store(
            tmp_path / str(percent_in_memory),
            access_message_in_memory_max_ratio=percent_in_memory,
            max_transfer_count_on_message_in_memory=20,
            max_transfer_count_on_message_in_disk=messages,
            max_transfer_bytes_on_message_in_disk=size,
        )
        for _ in range(40):
            put(store, "T", 0, b"x")
        store.drain()
        assert get(store, "T", 0, 0, 100).message_count == count
        store.close()


def test_tags_are_matched_by_their_codes(store: Store) -> None:
    for number in range(100):
        put(store, "T", 0, b"%d" % number, b"TAGS\x01" + (b"rare" if number % 40 == 39 else b"common"))
    put(store, "T", 0, b"untagged")
    store.drain()
    rare = Matcher(frozenset({tags_code("rare")}))
    assert bodies(store, "T", 0, rare) == [b"39", b"79"]
    assert len(bodies(store, "T", 0, Matcher(frozenset({tags_code("rare"), tags_code("common")})))) == 100
    got = get(store, "T", 0, 0, 1, rare)
    assert (got.message_count, got.next_begin_offset) == (1, 79)
    nothing = get(store, "T", 0, 0, 32, Matcher(frozenset({1})))
    assert (nothing.status, nothing.next_begin_offset) == (GetStatus.NO_MATCHED_MESSAGE, 101)


def test_a_matcher_may_look_at_the_record(store: Store) -> None:
    for number in range(10):
        put(store, "T", 0, b"%d" % number)
    store.drain()
    assert bodies(store, "T", 0, Matcher(None, lambda data: decode_record(data).body > b"6")) == [b"7", b"8", b"9"]


def test_a_delayed_message_keeps_its_due_time_as_tag_code(store: Store) -> None:
    for level in (b"3", b"99"):
        put(store, "SCHEDULE_TOPIC_XXXX", 2, b"later", b"DELAY\x01" + level + b"\x02TAGS\x01a")
    store.drain()
    units = [store.unit("SCHEDULE_TOPIC_XXXX", 2, number) for number in range(2)]
    assert [unit[2] for unit in units if unit] == [1_700_000_010_000, 1_700_000_000_000 + 7_200_000]


def test_arrivals_are_told_once_per_queue_and_round(store: Store) -> None:
    told: list[tuple[str, int, int, list[int]]] = []
    store.on_arrival = lambda *arrival: told.append(arrival)
    put(store, "T", 0, b"1", b"TAGS\x01d")
    put(store, "T", 0, b"2")
    put(store, "U", 1, b"3")
    assert told == []
    store.drain()
    assert sorted(told) == [("T", 0, 2, [100, 0]), ("U", 1, 1, [0])]


def test_a_message_by_its_place_in_the_log(store: Store) -> None:
    offset = put(store, "T", 0, b"here")
    data = store.record(offset)
    assert data is not None and decode_record(data).body == b"here"
    assert store.record(offset + 1) is None
    assert store.record(10_000) is None
    assert store.record(-1) is None


def test_store_times(store: Store, clock: Clock) -> None:
    begin = clock.now
    for _ in range(3):
        put(store, "T", 0, b"x")
        clock.now += 1000
    store.drain()
    assert store.earliest_store_time("T", 0) == begin
    assert [store.store_time("T", 0, number) for number in range(-1, 4)] == [-1, begin, begin + 1000, begin + 2000, -1]
    assert store.earliest_store_time("T", 9) == -1


def test_store_times_never_go_back(store: Store, clock: Clock) -> None:
    put(store, "T", 0, b"x")
    clock.now -= 3_600_000
    put(store, "T", 0, b"y")
    store.drain()
    assert store.store_time("T", 0, 1) == store.store_time("T", 0, 0)


def test_one_store_at_a_time(tmp_path: Path, store: Store) -> None:
    with pytest.raises(StoreLocked, match="in use"):
        Store(small_config(tmp_path)).open()


def test_names_that_are_no_folder_are_refused(store: Store) -> None:
    for topic, queue in (("../evil", 0), ("", 0), ("T", -1), ("t" * 128, 0)):
        with pytest.raises(ValueError, match="no queue"):
            store.appender.put(topic, queue, b"x", b"", born_timestamp=1, born_host=HOST, store_host=HOST)


def test_a_closed_store_takes_nothing(tmp_path: Path) -> None:
    store = Store(small_config(tmp_path))
    refused = store.appender.put("T", 0, b"x", b"", born_timestamp=1, born_host=HOST, store_host=HOST)
    assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
    store.open()
    store.close()
    refused = store.appender.put("T", 0, b"x", b"", born_timestamp=1, born_host=HOST, store_host=HOST)
    assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert store.refusal == "the store is closed"


@pytest.mark.slow
def test_ten_thousand_queues_cost_neither_files_nor_room(tmp_path: Path) -> None:
    store = open_store(tmp_path, mapped_file_size_consume_queue=6_000_000, mapped_file_size_commit_log=1 << 24)
    for queue in range(10_000):
        put(store, "T", queue, b"x")
    store.drain()
    store.persist(sync=False)
    assert len(list(Path("/proc/self/fd").iterdir())) < 1000
    taken = sum(path.stat().st_blocks * 512 for path in tmp_path.glob("consumequeue/T/1???/*"))
    assert taken <= 1000 * 8192
    assert bodies(store, "T", 9_999) == [b"x"]
    store.close()


def test_dropping_topics(tmp_path: Path, store: Store) -> None:
    for topic in ("A", "B", "C"):
        for queue in range(2):
            put(store, topic, queue, b"x")
    store.drain()
    store.persist()
    assert store.drop_topic("A") == 2
    assert store.drop_unused({"B"}) == ["C"]
    assert store.topics() == {"B"} and store.queue_ids("B") == [0, 1]
    assert [path.name for path in (tmp_path / "consumequeue").iterdir()] == ["B"]
    put(store, "A", 0, b"again")
    store.drain()
    assert bodies(store, "A", 0) == [b"again"]


def test_what_nobody_may_see_yet_of_a_topic_that_is_deleted_comes_into_no_queue(tmp_path: Path) -> None:
    """A start would find units that nothing counts, and build all queues again."""
    store = open_store(tmp_path)
    put(store, "T", 0, b"seen")
    store.drain()
    store.show(store.figures().max_offset)
    put(store, "T", 0, b"waits")
    put(store, "Other", 0, b"waits, too")
    assert store.drop_topic("T") == 1
    put(store, "T", 0, b"new")
    store.visible_limit = None
    assert store.drain() == 3
    assert bodies(store, "T", 0) == [b"new"] and bodies(store, "Other", 0) == [b"waits, too"]
    assert store.close() is None
    store = open_store(tmp_path)
    assert store.recovery.notes == [] and bodies(store, "T", 0) == [b"new"]
    store.close()


def test_the_clock_of_a_store_is_the_systems() -> None:
    assert abs(now_ms() - __import__("time").time() * 1000) < 1000


def test_a_store_that_leads_again_counts_on_behind_what_nobody_may_see_yet(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put(store, "T", 0, b"seen")
    store.drain()
    store.show(store.figures().max_offset)
    put(store, "T", 0, b"waits")
    store.follow()
    assert store.lead() == 0
    put(store, "T", 0, b"next")
    store.visible_limit = None
    store.drain()
    assert bodies(store, "T", 0) == [b"seen", b"waits", b"next"]
    store.close()
