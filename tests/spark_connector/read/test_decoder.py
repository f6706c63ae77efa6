"""Batches of columns against the one-by-one decoding of records."""

import zlib
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructField, StructType

from eruca.protocol.message import decode_properties, encode_properties
from eruca.protocol.queues import MessageQueue
from eruca.protocol.record import MAGIC_V1, MAGIC_V2, Record, decode_records
from eruca.spark_connector.errors import SourceError
from eruca.spark_connector.read.decoder import Decoder
from eruca.spark_connector.read.property_columns import PropertyTexts
from eruca.spark_connector.read.spans import Chunk
from eruca.spark_connector.schema import COLUMNS, arrow_schema
from tests.spark_connector.messages import ORDERS, ZLIB, stored

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FOREVER = 1 << 62
EVERYTHING = arrow_schema(StructType([StructField(name, kind) for name, kind in COLUMNS.items()]))


def decode(*chunks: Chunk, tags: frozenset[str] | None = None) -> list[dict[str, object]]:
    batch = Decoder(EVERYTHING, tags).decode(chunks)
    batch.validate(full=True)
    assert batch.schema.equals(EVERYTHING)
    rows: list[dict[str, object]] = batch.to_pylist()
    return [row | {"properties": dict(row["properties"])} for row in rows]  # type: ignore[call-overload]


def expected(queue: MessageQueue, record: Record) -> dict[str, object]:
    body = zlib.decompress(record.body) if record.sys_flag & 1 else record.body
    return {
        "topic": queue.topic,
        "brokerName": queue.broker_name,
        "queueId": queue.queue_id,
        "queueOffset": record.queue_offset,
        "body": body,
        "tags": record.tags,
        "keys": record.properties.get("KEYS"),
        "messageId": record.unique_key or record.offset_message_id,
        "bornTimestamp": EPOCH + timedelta(milliseconds=record.born_timestamp),
        "storeTimestamp": EPOCH + timedelta(milliseconds=record.store_timestamp),
        "reconsumeTimes": record.reconsume_times,
        "flag": record.flag,
        "properties": record.properties,
    }


def assert_same(*chunks: Chunk) -> None:
    assert decode(*chunks) == [
        expected(chunk.queue, record) for chunk in chunks for record in decode_records(chunk.body)
    ]


def test_records_of_one_size() -> None:
    body = b"".join(stored(offset, properties={"TAGS": "paid", "KEYS": "k1 k2"}) for offset in range(10, 20))

    assert_same(Chunk(ORDERS, body, FOREVER))


def test_records_of_all_sizes_hosts_and_compressions_from_several_queues() -> None:
    other = MessageQueue("orders", "broker-b", 0)
    packed = zlib.compress(b"long " * 1000)
    first = [
        stored(0, b"", properties={}),
        stored(1, b"x" * 5000, properties={"TAGS": "A", "UNIQ_KEY": "7F00000100002A139A5500000000", "KEYS": "id-1"}),
        stored(2, packed, sys_flag=ZLIB, properties={"KEYS": "id-2"}),
        stored(3, packed, sys_flag=1, properties={"CLUSTER": "c"}, flag=-5),
        stored(4, b"six", sys_flag=0x30, reconsume_times=3),
    ]
    second = [
        stored(7, b"born", sys_flag=0x10, queue=other),
        stored(8, b"stored", sys_flag=0x20, queue=other, properties={"TAGS": "Ω", "naïve": "日本"}),
    ]

    assert_same(Chunk(ORDERS, b"".join(first), FOREVER), Chunk(other, b"".join(second), FOREVER))


def test_a_record_of_version_2_with_its_longer_topic_length() -> None:
    one = stored(0, b"body", properties={"TAGS": "A"})
    at = one.index(b"\x06orders")
    size = (len(one) + 1).to_bytes(4, "big")
    two = size + MAGIC_V2.to_bytes(4, "big") + one[8:at] + b"\x00" + one[at:]

    assert one[4:8] == MAGIC_V1.to_bytes(4, "big")
    assert_same(Chunk(ORDERS, one + two, FOREVER))


def test_a_body_that_holds_records_is_one_body() -> None:
    inner = stored(7, b"inner", properties={"KEYS": "id"})
    bodies = [b"first", inner, inner * 3, inner[4:], b"\xda\xa3\x20\xa7", inner[:-1], b"last"]
    body = b"".join(stored(offset, body) for offset, body in enumerate(bodies))

    assert_same(Chunk(ORDERS, body, FOREVER), Chunk(ORDERS, inner, FOREVER))


def test_a_batch_keeps_nothing_of_the_bytes_that_it_is_made_of() -> None:
    one, two = stored(1, b"one", properties={"TAGS": "A", "n": "1"}), stored(2, b"second", properties={"KEYS": "k"})
    chunks = [Chunk(ORDERS, one, FOREVER), Chunk(ORDERS, two, FOREVER)]
    data = bytearray(one + two)

    batch = Decoder(EVERYTHING).decode(chunks, memoryview(data))
    data[:] = b"\xff" * len(data)

    assert batch.equals(Decoder(EVERYTHING).decode(chunks))


def test_what_lies_behind_the_range_is_left_out() -> None:
    body = b"".join(stored(offset) for offset in range(5))

    assert [row["queueOffset"] for row in decode(Chunk(ORDERS, body, 3))] == [0, 1, 2]
    assert decode(Chunk(ORDERS, body, 0)) == []


def test_a_tag_with_the_same_hash_does_not_pass() -> None:
    # "Aa" and "BB" have one hash code in Java, and brokers compare no more than that.
    body = b"".join(stored(i, properties={"TAGS": tag}) for i, tag in enumerate(["Aa", "BB", "Aa"])) + stored(3)

    assert [row["queueOffset"] for row in decode(Chunk(ORDERS, body, FOREVER), tags=frozenset({"Aa"}))] == [0, 2]


def test_a_projection_makes_only_its_columns() -> None:
    schema = EVERYTHING.field("body"), EVERYTHING.field("queueOffset")
    batch = Decoder(pa.schema(schema)).decode([Chunk(ORDERS, stored(4, b"x"), FOREVER)])

    assert batch.to_pylist() == [{"body": b"x", "queueOffset": 4}]


@pytest.mark.parametrize("at", [0, 4, 84, 87, 93])
def test_damaged_lengths_are_named_with_their_queue(at: int) -> None:
    record = bytearray(stored(0) + stored(1))
    record[at] ^= 0x55

    with pytest.raises(SourceError, match=r"MessageQueue \[topic=orders, brokerName=broker-a, queueId=1\]"):
        decode(Chunk(ORDERS, bytes(record), FOREVER))


def test_an_answer_cut_short_is_refused() -> None:
    with pytest.raises(SourceError, match="ends within a record"):
        decode(Chunk(ORDERS, (stored(0) + stored(1))[:-1], FOREVER))


def test_a_body_that_is_not_what_its_flag_says_is_named() -> None:
    with pytest.raises(SourceError, match=r"The body at offset 9 of .* cannot be decompressed"):
        decode(Chunk(ORDERS, stored(9, b"plain", sys_flag=ZLIB), FOREVER))


def test_a_body_that_is_too_large_when_unpacked_is_named() -> None:
    chunk = Chunk(ORDERS, stored(9, zlib.compress(bytes(5000)), sys_flag=ZLIB), FOREVER)
    assert Decoder(EVERYTHING, max_body=5000).decode([chunk]).num_rows == 1
    with pytest.raises(SourceError, match=r"The body at offset 9 of .* more than 4999 bytes when it is unpacked"):
        Decoder(EVERYTHING, max_body=4999).decode([chunk])


# ---------------------------------------------------------------------- properties


def parse(*texts: bytes) -> list[dict[str, str]]:
    kind = EVERYTHING.field("properties").type
    column = PropertyTexts(pa.array(texts, type=pa.binary())).maps(kind)
    column.validate(full=True)
    return [dict(row) for row in column.to_pylist()]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\x02",
        b"a\x01b\x02",
        b"\x02\x02a\x01b\x02\x02c\x01d",
        b"broken\x02a\x01b",
        b"a\x01\x02b\x01c",
        b"\x01x\x02b\x01c",
        b"a\x01b\x01c",
        b"a\x01first\x02b\x01c\x02a\x01last",
        b"a\x01first\x02a\x01",
        b"\xff\xfe\x01\xc3(\x02ok\x01\xe2\x82\xac",
    ],
)
def test_odd_texts_are_read_as_the_codec_reads_them(text: bytes) -> None:
    around = encode_properties({"TAGS": "x", "KEYS": "y"})

    assert parse(around, text, b"", around) == [decode_properties(each) for each in (around, text, b"", around)]


texts = st.lists(st.sampled_from([b"a", b"bb", b"TAGS", b"\x01", b"\x02", "é".encode(), b"\xff"]), max_size=12)


@settings(max_examples=300, deadline=None)
@given(st.lists(texts.map(b"".join), min_size=1, max_size=8))
def test_any_texts_are_read_as_the_codec_reads_them(raw: list[bytes]) -> None:
    wanted = [decode_properties(each) for each in raw]

    assert parse(*raw) == wanted
    tags = PropertyTexts(pa.array(raw, type=pa.binary())).column(b"TAGS").to_pylist()
    assert tags == [each.get("TAGS") for each in wanted]
