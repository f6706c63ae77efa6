"""Values in place of bytes, and what a misfit is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pydantic
import pytest

from eruca.client import Message, ReceivedMessage, serializers
from eruca.client.errors import BadBody, BadMessage, ClientError, UsageError
from eruca.client.message import text_of
from eruca.client.serializers import BYTES, JSON, MSGPACK, TEXT, Json, MsgPack, Serializer
from eruca.protocol.queues import MessageQueue
from eruca.protocol.record import decode_record, encode_record
from tests.client.conftest import Lab


@dataclass
class Order:
    number: int
    salad: str


class Plate(pydantic.BaseModel):
    number: int
    parts: list[str] = []


def received(message: Message) -> ReceivedMessage:
    """The message as a broker would give it back."""
    stored = encode_record(
        topic=message.topic,
        queue_id=0,
        queue_offset=0,
        physical_offset=0,
        body=message.body,
        properties=text_of(message, "ID").encode(),
        flag=0,
        sys_flag=0,
        born_timestamp=1,
        born_host=bytes(8),
        store_timestamp=1,
        store_host=bytes(8),
        reconsume_times=0,
    )
    return ReceivedMessage(decode_record(stored), MessageQueue(message.topic, "a", 0))


@pytest.mark.parametrize(
    ("serializer", "value", "body", "content_type"),
    [
        (BYTES, b"\x00\xff", b"\x00\xff", "application/octet-stream"),
        (TEXT, "grün", "grün".encode(), "text/plain; charset=utf-8"),
        (JSON, {"a": [1, None]}, b'{"a":[1,null]}', "application/json"),
        (MSGPACK, [1, "b"], b"\x92\x01\xa1b", "application/msgpack"),
    ],
)
def test_a_value_comes_back(serializer: Serializer, value: Any, body: bytes, content_type: str) -> None:
    message = Message.of("T", value, serializer, tags="new", properties={"mine": "1"})
    assert (message.body, message.tags) == (body, "new")
    assert message.properties == {"contentType": content_type, "mine": "1"}
    assert received(message).value == value


def test_a_value_is_json_unless_a_serializer_is_named() -> None:
    message = Message.of("Orders", {"number": 7}, tags="new")
    assert (message.body, message.properties) == (b'{"number":7}', {"contentType": "application/json"})
    assert received(message).value == {"number": 7}


@pytest.mark.parametrize("serializer", [JSON, MSGPACK])
def test_models_of_pydantic_are_written_wherever_they_stand(serializer: Serializer) -> None:
    plate = {"number": 7, "parts": ["salad"]}
    assert received(Message.of("Orders", Plate.model_validate(plate), serializer)).value == plate
    assert received(Message.of("Orders", {"plates": [Plate(number=8)]}, serializer)).value == {
        "plates": [{"number": 8, "parts": []}]
    }


@pytest.mark.parametrize("kind", [Json, MsgPack])
def test_a_type_of_ones_own(kind: type[Json[Any]] | type[MsgPack[Any]]) -> None:
    orders = kind(Order)
    message = received(Message.of("Orders", Order(7, "green"), orders))
    assert message.value == {"number": 7, "salad": "green"}, "any value, as nobody said which type"
    assert message.value_by(orders) == Order(7, "green")
    with pytest.raises(BadBody, match=r"^The body cannot be read as application/.*Expected `int`.*number"):
        received(Message.of("Orders", {"number": "x", "salad": ""}, kind())).value_by(orders)


def test_a_body_without_a_type_is_bytes() -> None:
    assert received(Message("T", b"plain")).value == b"plain"


@pytest.mark.parametrize(
    ("content_type", "value"),
    [
        ("application/json; charset=utf-8", [1]),
        ("Application/JSON", [1]),
        ("text/plain", "[1]"),
        ('text/plain;charset="UTF-8"', "[1]"),
    ],
)
def test_a_type_as_others_write_it(content_type: str, value: object) -> None:
    assert received(Message("T", b"[1]", properties={"contentType": content_type})).value == value


def test_a_serializer_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    class Backwards:
        content_type = "text/backwards"

        def dumps(self, value: str) -> bytes:
            return value[::-1].encode()

        def loads(self, body: bytes) -> str:
            return body.decode()[::-1]

    message = received(Message.of("T", "abc", Backwards()))
    assert message.body == b"cba"
    with pytest.raises(BadBody, match=r'Nobody reads bodies of the content type "text/backwards" here'):
        _ = message.value
    monkeypatch.setattr(serializers, "_registered", dict(serializers._registered))
    serializers.register(Backwards())
    assert message.value == "abc"


@pytest.mark.parametrize(
    ("serializer", "value"), [(TEXT, b"bytes"), (BYTES, "text"), (BYTES, 5), (JSON, object()), (MSGPACK, {1, object()})]
)
def test_what_cannot_be_written(serializer: Serializer, value: object) -> None:
    with pytest.raises(BadMessage, match=rf"^a value of type {type(value).__name__} cannot be written as "):
        Message.of("T", value, serializer)


@pytest.mark.parametrize(
    ("content_type", "body"),
    [("text/plain", b"\xff"), ("application/json", b"{"), ("application/msgpack", b"\xc1")],
)
def test_what_cannot_be_read(content_type: str, body: bytes) -> None:
    with pytest.raises(BadBody, match=rf"^The body cannot be read as {content_type}") as raised:
        _ = received(Message("T", body, properties={"contentType": content_type})).value
    assert isinstance(raised.value, ClientError) and not raised.value.retriable


class Nameless:
    content_type = " "
    dumps = loads = repr


@pytest.mark.parametrize("thing", [object(), "json", Nameless()])
def test_what_is_no_serializer(thing: Any) -> None:
    with pytest.raises(UsageError, match=r"^A serializer has a content_type"):
        serializers.register(thing)


async def test_through_a_broker(lab: Lab) -> None:
    result = await lab.producer.send(Message.of("Orders", {"number": 7}, JSON))
    (record,) = (await lab.puller.pull(result.queue, 0)).records
    message = ReceivedMessage(record, result.queue)
    assert (message.value, message.properties["contentType"]) == ({"number": 7}, "application/json")
