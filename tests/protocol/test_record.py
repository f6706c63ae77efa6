"""Records as a real 4.9.7 broker wrote them, and records there and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.protocol.errors import ProtocolError
from eruca.protocol.record import (
    MAGIC_V2,
    BatchEntry,
    Record,
    body_crc,
    decode_batch,
    decode_record,
    decode_records,
    encode_batch,
    encode_blank,
    encode_record,
    host_bytes,
    host_text,
    outline,
    peek,
    properties_of,
    stored_body,
)

PLAIN = bytes.fromhex(
    "000000b0daa320a73610a6860000000000000000000000000000000000000000000000000000000000000"
    "1a1fd3eea567f00000100009e9a000001a1fd3eea607f000001000074d700000000000000000000000000"
    "00000568656c6c6f025431004e4b455953016b3102554e49515f4b4559014143313130303031313546303"
    "1384234414143323044424436394538303030"
    "3002434c5553544552014c6162436c757374657202544147530154616741"
)
COMMITTED = bytes.fromhex(
    "000000e2daa320a77b5a4121000000000000000000000000000000020000000000000780000000080000018bcfe56800"
    "7f0000010000ab82000001a1fd4075ab7f000001000074d70000000000000000000006880000000468616c6602543100"
    "815245414c5f544f504943015431025452414e5f4d5347017472756502554e49515f4b455901414331313030303131"
    "354630313842344141433230444244363945383030303002434c5553544552014c6162436c75737465720250"
    "47524f55500150470257414954017472756502544147530154616754025245414c5f5149440130"
)
OPERATION = bytes.fromhex(
    "00000087daa320a774dbdf2100000000000000000000000000000000000000000000086200000000000001a1fd4075ac"
    "7f000001000074d7000001a1fd4075b07f000001000074d700000000000000000000000000000001301b524d515f5359"
    "535f5452414e535f4f505f48414c465f544f504943001057414954017472756502544147530164"
)


def encode(record: Record) -> bytes:
    fields = record._asdict()
    for derived in ("size", "magic", "body_crc", "body_length"):
        del fields[derived]
    return encode_record(properties=fields.pop("properties_text"), **fields)


@pytest.mark.parametrize("stored", [PLAIN, COMMITTED, OPERATION], ids=["plain", "committed", "operation"])
def test_a_captured_record_decodes_and_encodes_to_the_same_bytes(stored: bytes) -> None:
    record = decode_record(stored, check=True)
    assert record.size == len(stored)
    assert encode(record) == stored


def test_the_fields_of_the_captured_plain_record() -> None:
    record = decode_record(PLAIN)
    assert (record.topic, record.queue_id, record.queue_offset, record.physical_offset) == ("T1", 0, 0, 0)
    assert record.body == b"hello"
    assert record.body_crc == body_crc(b"hello") == 907060870
    assert record.properties == {
        "KEYS": "k1",
        "UNIQ_KEY": "AC11000115F018B4AAC20DBD69E80000",
        "CLUSTER": "LabCluster",
        "TAGS": "TagA",
    }
    assert (record.tags, record.keys, record.unique_key) == ("TagA", ["k1"], "AC11000115F018B4AAC20DBD69E80000")
    assert host_text(record.born_host) == "127.0.0.1:40602"
    assert record.offset_message_id == "7F000001000074D70000000000000000"


def test_the_captured_commit_names_its_half_message() -> None:
    record = decode_record(COMMITTED)
    assert (record.sys_flag, record.prepared_transaction_offset, record.body) == (8, 0x688, b"half")


def test_crc_is_masked_to_31_bits() -> None:
    assert [body_crc(body) for body in (b"half", b"b1", b"b2")] == [2069512481, 1204558816, 1589987930]


def test_the_blank_record_spans_the_rest_of_its_file() -> None:
    assert encode_blank(0x207D9).hex() == "000207d9cbd43194"
    assert peek(encode_blank(100)) == (100, 0xCBD43194)


hosts = st.one_of(st.binary(min_size=8, max_size=8), st.binary(min_size=20, max_size=20))
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
topics = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)
records = st.fixed_dictionaries(
    {
        "topic": topics,
        "queue_id": int32,
        "queue_offset": int64,
        "physical_offset": int64,
        "body": st.binary(max_size=300),
        "properties": st.binary(max_size=200),
        "flag": int32,
        "born_timestamp": int64,
        "born_host": hosts,
        "store_timestamp": int64,
        "store_host": hosts,
        "reconsume_times": int32,
        "prepared_transaction_offset": int64,
    }
)


@given(st.lists(records, max_size=4), st.integers(0, 15))
def test_records_come_back_as_they_were(messages: list[dict[str, object]], low_bits: int) -> None:
    stored = b""
    for message in messages:
        born, store = message["born_host"], message["store_host"]
        assert isinstance(born, bytes) and isinstance(store, bytes)
        message["sys_flag"] = low_bits | (0x10 if len(born) == 20 else 0) | (0x20 if len(store) == 20 else 0)
        stored += encode_record(**message)  # type: ignore[arg-type]
    found = decode_records(memoryview(stored), check=True)
    assert sum(record.size for record in found) == len(stored)
    for record, message in zip(found, messages, strict=True):
        fields = record._asdict()
        assert {name: fields["properties_text" if name == "properties" else name] for name in message} == message
        text = record.properties_text
        assert properties_of(memoryview(encode_record(**message))) == text  # type: ignore[arg-type]


def version_2(record: bytes) -> bytes:
    """The same as 5.x stores it: the topic's length takes two bytes."""
    at = len(record) - 2 - len(properties_of(record)) - len(decode_record(record).topic.encode()) - 1
    return (len(record) + 1).to_bytes(4) + MAGIC_V2.to_bytes(4) + record[8:at] + b"\0" + record[at:]


@given(st.lists(st.tuples(records, st.booleans()), max_size=4), st.integers(0, 15))
def test_an_outline_says_what_the_records_say(messages: list[tuple[dict[str, object], bool]], low_bits: int) -> None:
    stored = b""
    for message, second in messages:
        born, store = message["born_host"], message["store_host"]
        assert isinstance(born, bytes) and isinstance(store, bytes)
        message["sys_flag"] = low_bits | (0x10 if len(born) == 20 else 0) | (0x20 if len(store) == 20 else 0)
        record = encode_record(**message)  # type: ignore[arg-type]
        stored += version_2(record) if second else record
    places, found = outline(stored)
    whole = decode_records(stored)
    assert [decode_record(stored, at) for at in places] == whole
    assert found == [(each.size, each.magic, each.queue_offset, each.sys_flag, len(each.body)) for each in whole]
    assert [stored_body(stored, at, head) for at, head in zip(places, found, strict=True)] == [
        each.body for each in whole
    ]


@given(st.integers(0, len(PLAIN + COMMITTED) * 8 - 1), st.integers(0, 40))
def test_an_outline_refuses_what_cannot_be_decoded(bit: int, cut: int) -> None:
    """Damaged records: what passes here can be read later, but for a topic that is no text."""
    data = bytearray(PLAIN + COMMITTED)
    data[bit // 8] ^= 1 << bit % 8
    damaged = bytes(data[: len(data) - cut])
    try:
        found: list[Record] | None = decode_records(damaged)
    except ProtocolError:
        found = None
    if found is not None:
        assert [head[2] for head in outline(damaged)[1]] == [each.queue_offset for each in found]
    else:
        try:
            places, _ = outline(damaged)
        except ProtocolError:
            return
        assert any(not _is_text(damaged, at) for at in places)


def _is_text(data: bytes, at: int) -> bool:
    try:
        decode_record(data, at)
    except ProtocolError:
        return False
    return True


@given(st.integers(0, len(PLAIN) - 1))
def test_a_record_cut_short_is_refused(size: int) -> None:
    with pytest.raises(ProtocolError):
        decode_record(PLAIN[:size])


@given(st.integers(0, len(COMMITTED) * 8 - 1))
def test_a_flipped_bit_never_shows_another_body(bit: int) -> None:
    data = bytearray(COMMITTED)
    data[bit // 8] ^= 1 << bit % 8
    try:
        record = decode_record(bytes(data), check=True)
    except ProtocolError:
        return
    assert record.body == b"half"


def test_a_5x_record_with_a_long_topic_is_read() -> None:
    v1 = decode_record(PLAIN)
    topic = b"t" * 300
    body_end = 88 + len(v1.body)
    tail = PLAIN[body_end + 1 + 2 :]
    size = body_end + 2 + len(topic) + len(tail)
    v2 = size.to_bytes(4, "big") + MAGIC_V2.to_bytes(4, "big") + PLAIN[8:body_end]
    whole = v2 + len(topic).to_bytes(2, "big") + topic + tail
    record = decode_record(whole, check=True)
    assert (record.topic, record.body, record.properties) == ("t" * 300, b"hello", v1.properties)
    assert properties_of(whole) == v1.properties_text
    assert properties_of(whole[:60]) == properties_of(b"") == b""


@pytest.mark.parametrize(
    "wrong",
    [
        {"topic": "t" * 128},
        {"properties": bytes(32768)},
        {"born_host": bytes(20)},
        {"queue_id": 2**31},
    ],
)
def test_what_no_record_can_hold_is_refused(wrong: dict[str, object]) -> None:
    fields = decode_record(PLAIN)._asdict() | {"properties": b""}
    for derived in ("size", "magic", "body_crc", "body_length", "properties_text"):
        del fields[derived]
    with pytest.raises(ProtocolError):
        encode_record(**(fields | wrong))


entries = st.builds(BatchEntry, int32, st.binary(max_size=50), st.binary(max_size=50))


@given(st.lists(entries, max_size=5))
def test_a_batch_comes_back_as_it_was(batch: list[BatchEntry]) -> None:
    assert decode_batch(encode_batch(batch)) == batch


@given(st.lists(entries, min_size=1, max_size=3), st.data())
def test_a_batch_cut_inside_an_entry_is_refused(batch: list[BatchEntry], data: st.DataObject) -> None:
    body = encode_batch(batch)
    last = len(encode_batch(batch[-1:]))
    with pytest.raises(ProtocolError):
        decode_batch(body[: len(body) - data.draw(st.integers(1, last - 1))])


def test_hosts_as_text() -> None:
    assert host_bytes("1.2.3.4", 10911) == bytes.fromhex("0102030400002a9f")
    assert host_text(host_bytes("1.2.3.4", 10911)) == "1.2.3.4:10911"
    assert host_text(host_bytes("[::1]", 9)) == "::1:9"
    for address, port in (("nowhere", 1), ("1.2.3.4", 70000)):
        with pytest.raises(ProtocolError):
            host_bytes(address, port)
    with pytest.raises(ProtocolError):
        host_text(bytes(5))
