"""What may be sent, in RocketMQ's words, and what a received message shows."""

from __future__ import annotations

import copy
import pickle
import zlib
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from eruca.client import Message, ReceivedMessage
from eruca.client.errors import BadAnswer, BadMessage, BadName, UsageError
from eruca.client.message import check_message, text_of
from eruca.client.message import received as pulled
from eruca.client.producing.batch import check_batch, encode_messages, split_batch
from eruca.protocol.message import decode_properties
from eruca.protocol.queues import MessageQueue
from eruca.protocol.record import decode_batch, decode_record
from tests.support.received import received, stored

LIMIT = 4 * 1024 * 1024


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (Message("", b"x"), "The specified topic is blank"),
        (
            Message("a b", b"x"),
            "The specified topic[a b] contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
        ),
        (Message("t" * 128, b"x"), "The specified topic is longer than topic max length 127."),
        (Message("SCHEDULE_TOPIC_XXXX", b"x"), "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden."),
        (Message("T", None), "the message body is null"),  # type: ignore[arg-type]
        (Message("T", b""), "the message body length is zero"),
        (Message("T", b"x" * (LIMIT + 1)), "the message body size over max value, MAX: 4194304"),
        (
            Message("T", "text"),  # type: ignore[arg-type]
            "the message body is of type str: bytes are expected, such as text.encode()",
        ),
        (Message("T", b"x", delay_level=19), "delay_level=19: 0 to 18 is expected"),
    ],
)
def test_what_cannot_be_sent_is_told_at_the_call(message: Message, sentence: str) -> None:
    with pytest.raises((BadMessage, BadName)) as raised:
        check_message(message, LIMIT)
    assert str(raised.value) == sentence
    assert isinstance(raised.value, UsageError) and not raised.value.retriable


def test_the_greatest_body_passes() -> None:
    check_message(Message("T", b"x" * LIMIT), LIMIT)


@pytest.mark.parametrize(
    ("properties", "sentence"),
    [
        ({"KEYS": "x"}, "The Property<KEYS> is used by system, input another please"),
        ({"a": " "}, "The name or value of property can not be null or blank string! ('a': ' '; both are texts)"),
        ({"a": 5}, "The name or value of property can not be null or blank string! ('a': 5; both are texts)"),
        ({"a": "b\x02c"}, "tags, keys and properties must not contain the characters 0x01 and 0x02"),
        ({"a": "b" * 40000}, "tags, keys and properties together take more than 32767 bytes"),
        ({"a": "ü" * 20000}, "tags, keys and properties together take more than 32767 bytes"),
    ],
)
def test_properties_that_cannot_be_sent(properties: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadMessage) as raised:
        text_of(Message("T", b"x", properties=properties), "ID")
    assert str(raised.value) == sentence


def test_properties_as_they_travel() -> None:
    message = Message(
        "T", b"x", tags="A", keys=["k1", "k2"], properties={"farbe": "grün"}, delay_level=3, wait_store=False
    )
    assert decode_properties(text_of(message, "ID").encode()) == {
        "UNIQ_KEY": "ID",
        "WAIT": "false",
        "TAGS": "A",
        "KEYS": "k1 k2",
        "DELAY": "3",
        "farbe": "grün",
    }


def test_messages_with_the_same_content_are_equal() -> None:
    class Order(Message):
        priority: int = 0

    message = Message("T", b"x", tags="A", keys=["k1", "k2"], properties={"colour": "green"})
    assert message == Message("T", bytearray(b"x"), tags="A", keys="k1 k2", properties={"colour": "green"})  # type: ignore[arg-type]
    assert message == copy.copy(message) and [message] == [pickle.loads(pickle.dumps(message))]
    for other in (
        Message("T", b"y", tags="A", keys="k1 k2", properties={"colour": "green"}),
        Message("T", b"x", tags="A", keys="k1 k2", properties={"colour": "green"}, delay=1),
        Message("T", b"x", tags="A", keys="k1", properties={"colour": "green"}),
        Order("T", b"x", tags="A", keys="k1 k2", properties={"colour": "green"}),
        b"x",
    ):
        assert message != other
    assert Order("T", b"x", priority=1) != Order("T", b"x", priority=2)
    with pytest.raises(TypeError, match="unhashable"):
        hash(message)


@pytest.mark.parametrize("keys", [["a b"], [" a"], ["a", "b c"], ["a", " "], ("a ",)])
def test_a_key_has_no_blank(keys: list[str]) -> None:
    with pytest.raises(BadMessage, match="a key must not contain a blank"):
        Message("T", b"x", keys=keys)


def test_a_text_may_have_several_keys() -> None:
    assert Message("T", b"x", keys="a b").keys == Message("T", b"x", keys=iter(["a", "b"])).keys == "a b"
    assert Message("T", b"x", keys=[]).keys == ""


def test_messages_can_be_copied_pickled_and_made_special() -> None:
    class Order(Message):
        priority: int = 0

    message = Message("T", b"x", tags="A", keys=["k1", "k2"], delay=timedelta(seconds=3))
    for other in (copy.copy(message), copy.deepcopy(message), pickle.loads(pickle.dumps(message))):
        assert other is not message and text_of(other, "ID") == text_of(message, "ID")
    order = Order("T", b"x", priority=7, tags="A")
    assert order.priority == 7 and text_of(order, "ID") == "UNIQ_KEY\x01ID\x02WAIT\x01true\x02TAGS\x01A"


@pytest.mark.parametrize(
    ("message", "name", "value"),
    [
        (Message("T", b"x", delay=1.5), "TIMER_DELAY_MS", "1500"),
        (Message("T", b"x", delay=timedelta(days=2)), "TIMER_DELAY_MS", "172800000"),
        (Message("T", b"x", deliver_at=1_800_000_000_000), "TIMER_DELIVER_MS", "1800000000000"),
        (Message("T", b"x", deliver_at=datetime(2027, 1, 15, 8, tzinfo=UTC)), "TIMER_DELIVER_MS", "1800000000000"),
    ],
)
def test_a_delay_of_its_own(message: Message, name: str, value: str) -> None:
    assert decode_properties(text_of(message, "ID").encode())[name] == value


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"delay": -1}, "delay=-1: 0 or more seconds, or a timedelta, is expected"),
        ({"delay": "1s"}, "delay='1s': 0 or more seconds, or a timedelta, is expected"),
        ({"delay": float("nan")}, "delay=nan: 0 or more seconds, or a timedelta, is expected"),
        ({"deliver_at": 1.5}, "deliver_at=1.5: a datetime or ms since 1970, a whole number, is expected"),
        ({"delay": 1, "delay_level": 1}, "a message takes one of delay_level, delay and deliver_at"),
        ({"delay": 1, "deliver_at": 1}, "a message takes one of delay_level, delay and deliver_at"),
    ],
)
def test_a_delay_that_is_none(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadMessage) as raised:
        Message("T", b"x", **options)
    assert str(raised.value) == sentence


def test_a_received_message_shows_what_was_stored() -> None:
    message = received(b"body", properties=b"TAGS\x01A\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01U")
    assert (message.topic, message.body, message.tags, message.keys) == ("T", b"body", "A", ["k1", "k2"])
    assert (message.queue_offset, message.reconsume_times, message.flag) == (7, 1, 9)
    assert (message.born_timestamp, message.store_timestamp, message.born_host) == (11, 12, "10.0.0.1:80")
    assert message.message_id == "U"
    assert message.offset_message_id == "0102030400002A9F0000000000001000"


LOOKS: tuple[str, ...] = (
    "topic",
    "body",
    "tags",
    "keys",
    "properties",
    "message_id",
    "offset_message_id",
    "queue_offset",
    "flag",
)
LOOKS += ("stored_size", "reconsume_times", "born_timestamp", "store_timestamp", "born_host", "record", "queue")


def test_what_a_pull_brought_reads_as_its_records_do() -> None:
    """Messages that are read when they are asked, and those made of whole records: whatever is looked at first."""
    queue = MessageQueue("T", "a", 2)
    records = [
        stored(b"one", properties=b"TAGS\x01AB"),
        stored(zlib.compress(b"two"), properties=b"TAGS\x01A\x02KEYS\x01k1 k2", sys_flag=1),
        stored(b"three", sys_flag=0x10),
        stored(zlib.compress(b"four"), properties=b"TAGS\x01A\x02UNIQ_KEY\x01U", sys_flag=0x31),
    ]
    data = b"".join(records)
    whole = [ReceivedMessage(decode_record(each), queue) for each in records]
    for look in LOOKS:
        found = pulled(data, queue)
        assert [getattr(each, look) for each in found] == [getattr(each, look) for each in whole], look
        assert [seen(each) for each in found] == [seen(each) for each in whole]
    assert [each.body for each in pulled(data, queue, tags={b"A"})] == [b"two", b"four"]
    assert seen(pickle.loads(pickle.dumps(pulled(data, queue)[1]))) == seen(whole[1])
    with pytest.raises(BadAnswer, match="the lengths in the record at"):
        pulled(data.replace(b"three", b"tree"), queue)


def seen(message: ReceivedMessage) -> list[object]:
    return [getattr(message, name) for name in LOOKS]


def test_a_topic_that_is_no_text_is_told_when_it_is_read() -> None:
    damaged = stored(b"x").replace(b"\x01T\x00\x00", b"\x01\xff\x00\x00")
    (message,) = pulled(damaged, MessageQueue("T", "a", 2))
    assert message.body == b"x"
    with pytest.raises(BadAnswer, match="no whole record at 0"):
        message.record  # noqa: B018


def test_without_a_unique_key_the_brokers_id_stands_in() -> None:
    assert received(b"x").message_id == "0102030400002A9F0000000000001000"


def test_a_message_that_comes_again_keeps_its_topic() -> None:
    again = received(b"x", topic="%RETRY%g", properties=b"RETRY_TOPIC\x01Orders")
    assert again.topic == "Orders" and again.queue.topic == "%RETRY%g"


def test_a_batch_is_written_entry_by_entry() -> None:
    messages = [Message("T", b"one", flag=1), Message("T", b"two", tags="A")]
    entries = decode_batch(encode_messages(messages, ["U1", "U2"], LIMIT))
    assert [(entry.flag, entry.body) for entry in entries] == [(1, b"one"), (0, b"two")]
    assert decode_properties(entries[1].properties) == {"UNIQ_KEY": "U2", "WAIT": "true", "TAGS": "A"}


@pytest.mark.parametrize(
    ("messages", "sentence"),
    [
        ([], "messages are empty: a batch takes one message or more"),
        ([Message("T", b"x", delay=1)], "TimeDelayLevel is not supported for batching"),
        ([Message("T", b"x", delay_level=1)], "TimeDelayLevel is not supported for batching"),
        ([Message("T", b"x"), Message("U", b"x")], "The topic of the messages in one batch should be the same"),
        (
            [Message("T", b"x"), Message("T", b"x", wait_store=False)],
            "The waitStoreMsgOK of the messages in one batch should the same",
        ),
        ([Message("%RETRY%g", b"x")], "Retry Group is not supported for batching"),
        (["x"], "the message is of type str: make a Message(topic, body) of it"),
        (Message("T", b"x"), "messages are of type Message: a list of messages is expected"),
        (iter([Message("T", b"x")]), "messages are of type list_iterator: a list of messages is expected"),
    ],
)
def test_what_cannot_go_together(messages: Any, sentence: str) -> None:
    with pytest.raises(BadMessage) as raised:
        check_batch(messages, LIMIT)
    assert str(raised.value) == sentence


def test_a_batch_that_is_too_large_is_told_how_to_divide() -> None:
    with pytest.raises(BadMessage, match=r"divide them with split_batch"):
        encode_messages([Message("T", b"x" * 100)] * 10, ["U"] * 10, 500)


def test_a_list_is_divided_so_that_each_part_fits() -> None:
    messages = [Message("T", b"x" * (100 + number % 7), properties={"n": str(number)}) for number in range(100)]
    parts = list(split_batch(messages, 1000))
    assert [message for part in parts for message in part] == messages
    assert len(parts) < 40
    for part in parts:
        encode_messages(part, ["C00002026C0AABBBF2266952730A0001"] * len(part), 1000)


def test_topics_are_divided_too() -> None:
    messages = [Message("T", b"1"), Message("T", b"2"), Message("U", b"3")]
    assert [len(part) for part in split_batch(messages)] == [2, 1]


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (Message("T", b"abc", tags="new", keys=["a", "b"]), "<Message to T, tags='new', keys='a b', 3 bytes>"),
        (Message("T", bytearray(2)), "<Message to T, tags=None, keys=None, 2 bytes>"),  # type: ignore[arg-type]
        (Message("T", None), "<Message to T, tags=None, keys=None, a body of type NoneType>"),  # type: ignore[arg-type]
    ],
)
def test_a_message_can_be_looked_at_before_it_is_right(message: Message, text: str) -> None:
    assert repr(message) == text
