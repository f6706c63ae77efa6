"""Rows to messages: what travels, by which id a repeat is known, and which rows are refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from eruca.client import MessageQueue
from eruca.protocol.message import decode_properties
from eruca.protocol.record import decode_batch
from eruca.spark_connector.errors import SinkError
from eruca.spark_connector.sink_options import read_sink_options
from eruca.spark_connector.write.encoder import Encoder, MessageBatch, SingleMessage
from eruca.spark_connector.write.row_ids import Origin

MAP = pa.map_(pa.string(), pa.string())
ORIGIN = Origin("query", 7, 3)


def queue_by_length(topic: str, key: Any, queue_id: int | None, broker: str | None) -> MessageQueue | None:
    if key is None and queue_id is None:
        return None
    return MessageQueue(topic, broker or "broker-a", len(key) if queue_id is None else queue_id)


def encoder(**options: str) -> Encoder:
    given = {"nameServer": "mq:1", "idempotent": "false", **options}
    return Encoder(read_sink_options(given, streaming=True), ORIGIN, queue_by_length)


def encode(rows: dict[str, Any], **options: str) -> list[MessageBatch | SingleMessage]:
    return list(encoder(**{"topic": "orders", **options}).encode(pa.record_batch(rows)))


def messages(batch: MessageBatch | SingleMessage) -> list[tuple[bytes, int, dict[str, str]]]:
    assert isinstance(batch, MessageBatch)
    entries = decode_batch(batch.body)
    assert len(entries) == batch.count
    return [(each.body, each.flag, decode_properties(each.properties)) for each in entries]


def ids(*bodies: str, using: Encoder | None = None) -> list[str]:
    using = using or encoder(topic="orders", idempotent="true")
    found: list[str] = []
    for each in using.encode(pa.record_batch({"body": list(bodies)})):
        found += [properties["SPARK_ID"] for _, _, properties in messages(each)]
    return found


def test_a_row_becomes_a_message_of_a_batch() -> None:
    [batch] = encode(
        {
            "body": ["först", "second"],
            "tags": ["Paid", None],
            "keys": ["o1 o2", ""],
            "flag": pa.array([5, None], pa.int32()),
            "properties": pa.array([[("größe", "x y"), ("KEYS", "of old"), ("UNIQ_KEY", "0"), ("b", "2")], None], MAP),
        }
    )

    assert (batch.topic, batch.queue) == ("orders", None)
    (one, flag, first), (two, none, second) = messages(batch)
    assert (one.decode(), flag, two, none) == ("först", 5, b"second", 0)
    keys = [first.pop("UNIQ_KEY"), second.pop("UNIQ_KEY")]
    assert [len(key) for key in keys] == [32, 32] and keys[0] < keys[1]
    assert first == {"WAIT": "true", "TAGS": "Paid", "KEYS": "o1 o2", "größe": "x y", "b": "2"}
    assert second == {"WAIT": "true"}


def test_a_slice_of_a_batch_of_rows() -> None:
    rows = pa.record_batch(
        {"body": ["a", "b", "c", "d"], "properties": pa.array([[("n", str(n)), ("m", "x")] for n in range(4)], MAP)}
    )

    [batch] = encoder(topic="t").encode(rows.slice(1, 2))

    assert [(body, properties["n"]) for body, _, properties in messages(batch)] == [(b"b", "1"), (b"c", "2")]


def test_batches_end_by_rows_and_bytes() -> None:
    rows = {"body": ["x" * 100] * 10}

    assert [each.count for each in encode(rows, sendBatchRows="4") if isinstance(each, MessageBatch)] == [4, 4, 2]
    assert [each.count for each in encode(rows, sendBatchBytes="600") if isinstance(each, MessageBatch)] == [3, 3, 3, 1]
    assert len(encode(rows, sendBatchBytes="10")) == 10


def test_rows_of_one_key_go_to_one_queue_in_their_order() -> None:
    found = encode({"body": ["1", "2", "3", "4", "5"], "shardingKey": ["aa", None, "b", "aa", "b"]})

    assert {batch.queue and batch.queue.queue_id: [m[0] for m in messages(batch)] for batch in found} == {
        2: [b"1", b"4"],
        None: [b"2"],
        1: [b"3", b"5"],
    }


def test_topics_and_queues_by_column() -> None:
    rows = {
        "body": ["1", "2", "3"],
        "topic": ["a", "b", "a"],
        "queueId": pa.array([0, None, 1], pa.int32()),
        "brokerName": ["x", None, "y"],
    }

    by_column = encoder().encode(pa.record_batch(rows))
    assert {str(each.queue) if each.queue else each.topic for each in by_column} == {
        str(MessageQueue("a", "x", 0)),
        "b",
        str(MessageQueue("a", "y", 1)),
    }
    assert {each.topic for each in encode(rows)} == {"orders"}


def test_a_delayed_row_travels_alone() -> None:
    level = encode({"body": ["a", "b"], "delayLevel": pa.array([3, None], pa.int32())})
    assert [type(each) for each in level] == [MessageBatch, SingleMessage]
    assert isinstance(level[1], SingleMessage) and level[1].properties == "WAIT\x01true\x02DELAY\x013"

    time = encode({"body": ["a"], "delayTimeMs": pa.array([1500], pa.int64())})
    assert [each.properties for each in time if isinstance(each, SingleMessage)] == [
        "WAIT\x01true\x02TIMER_DELAY_MS\x011500"
    ]
    at = encode({"body": ["a"], "deliverTimeMs": pa.array([99], pa.int64())})
    assert [each.properties for each in at if isinstance(each, SingleMessage)] == [
        "WAIT\x01true\x02TIMER_DELIVER_MS\x0199"
    ]


def test_an_id_is_of_the_message_and_not_of_its_place() -> None:
    first = ids("a", "b", "c", "b")
    again = ids("b", "c", "b", "a")

    assert sorted(first) == sorted(again) and len(set(first)) == 4
    assert all(each.startswith("query/7/3/") for each in first)
    assert first[3] == first[1] + "/1"
    in_parts = encoder(topic="orders", idempotent="true")
    assert ids("a", "b", using=in_parts) + ids("c", "b", using=in_parts) == first


def test_messages_that_differ_in_anything_have_different_ids() -> None:
    variants: list[dict[str, Any]] = [
        {"body": ["a"]},
        {"body": ["a"], "tags": ["t"]},
        {"body": ["a"], "keys": ["t"]},
        {"body": ["a"], "flag": pa.array([1], pa.int32())},
        {"body": ["a"], "properties": pa.array([[("t", "t")]], MAP)},
        {"body": ["a"], "topic": ["other"]},
    ]
    found = set()
    for rows in variants:
        options = {"idempotent": "true"} if "topic" in rows else {"idempotent": "true", "topic": "orders"}
        for each in encoder(**options).encode(pa.record_batch(rows)):
            found |= {properties["SPARK_ID"] for _, _, properties in messages(each)}

    assert len(found) == len(variants)


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ({"body": ["a", None]}, "The body of a row is null or empty"),
        ({"body": ["a", ""]}, "The body of a row is null or empty"),
        ({"body": ["a"], "tags": ["x\x02y"]}, "A text in tags holds the character 0x02"),
        ({"body": ["a"], "properties": pa.array([[("n", "x\x01y")]], MAP)}, "A text in properties holds"),
        ({"body": ["a"], "properties": pa.array([[("n", " ")]], MAP)}, "in properties is null or blank"),
        ({"body": ["a"], "properties": pa.array([[("n", None)]], MAP)}, "in properties is null or blank"),
        ({"body": ["a"], "keys": ["k" * 33000]}, r"of a row take 330\d\d bytes"),
    ],
)
def test_a_row_that_cannot_be_a_message_is_refused(rows: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SinkError, match=sentence):
        encode(rows)


def test_several_tags_in_one_text_are_refused_but_of_a_message_that_was_read() -> None:
    joined = {"body": ["a", "b"], "tags": ["A", "A || B"]}
    with pytest.raises(SinkError, match=r'^A row has the tags "A \|\| B": a message has one tag, and \|\| stands'):
        encode(joined)
    for others in ([], [("TAGS", "A")], None):
        with pytest.raises(SinkError, match="a message has one tag"):
            encode({**joined, "properties": pa.array([[("TAGS", "A || B")], others], MAP)})

    [batch] = encode({**joined, "properties": pa.array([None, [("TAGS", "A || B"), ("n", "1")]], MAP)})
    assert [properties["TAGS"] for _, _, properties in messages(batch)] == ["A", "A || B"]


def test_a_row_without_a_topic_is_refused() -> None:
    with pytest.raises(SinkError, match="A row has no topic"):
        list(encoder().encode(pa.record_batch({"body": ["a", "b"], "topic": ["x", None]})))
