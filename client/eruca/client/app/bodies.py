"""Bodies as values of the type that a handler asks for, and values as bodies.

Owns which reader serves which type: bytes and text as they are, models of pydantic by pydantic, everything else
(dataclasses, msgspec structs, plain types) by msgspec. The content type of a message says how its body is written; one
without is JSON, unless bytes or text are asked for. Knows pydantic only where it is loaded already.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, get_args

import msgspec
import msgspec.inspect

from eruca.client import serializers
from eruca.client.errors import BadBody, UsageError
from eruca.client.message import Message, ReceivedMessage
from eruca.client.serializers import CONTENT_TYPE, JSON, MSGPACK, TEXT

BodyReader = Callable[[ReceivedMessage], Any]
"""Makes the value of a message; raises BadBody."""


def reader_of(hint: Any) -> BodyReader:
    """The reader of bodies as values of a type. Raises UsageError for a type that nobody reads."""
    if hint is bytes:
        return lambda message: message.body
    if hint is str:
        return _text
    if hint is Any or hint is object:
        return lambda message: message.value
    if _is_of_pydantic(hint):
        return _reader_by_pydantic(hint)
    try:
        if isinstance(msgspec.inspect.type_info(hint), msgspec.inspect.CustomType):
            raise TypeError("it is a class without fields")
        by_type = {
            JSON.content_type: msgspec.json.Decoder(hint).decode,
            MSGPACK.content_type: msgspec.msgpack.Decoder(hint).decode,
        }
    except TypeError as error:
        raise UsageError(
            f"Bodies cannot be read as {hint!r}: {error}. Use a dataclass, a msgspec struct, a pydantic model, dict, "
            "list, str, bytes or ReceivedMessage."
        ) from None
    return _reader(by_type, lambda value: msgspec.convert(value, hint))


def _reader(by_type: Mapping[str, Callable[[bytes], Any]], convert: Callable[[Any], Any]) -> BodyReader:
    def read(message: ReceivedMessage) -> Any:
        kind = message.properties.get(CONTENT_TYPE)
        decode = by_type[JSON.content_type] if kind is None else by_type.get(serializers.plain(kind))
        body = message.body
        try:
            return decode(body) if decode is not None else convert(serializers.load(kind, body))
        except BadBody:
            raise
        except Exception as error:  # a validator may raise anything
            raise BadBody(f"The body cannot be read as this handler wants it: {error}") from error

    return read


def _text(message: ReceivedMessage) -> str:
    """The text that a body is; that of a JSON or msgpack text if the content type says that it is one."""
    kind = message.properties.get(CONTENT_TYPE)
    if kind is not None and serializers.plain(kind) in (JSON.content_type, MSGPACK.content_type):
        value = serializers.load(kind, message.body)
        if isinstance(value, str):
            return value
    return serializers.load_by(TEXT, message.body)


def _is_of_pydantic(hint: Any) -> bool:
    """Whether a type is a model of pydantic, or has one in it."""
    pydantic = sys.modules.get("pydantic")
    if pydantic is None:
        return False
    is_model = isinstance(hint, type) and issubclass(hint, pydantic.BaseModel)
    return is_model or hasattr(hint, "__pydantic_validator__") or any(map(_is_of_pydantic, get_args(hint)))


def _reader_by_pydantic(hint: Any) -> BodyReader:
    import pydantic

    adapter: Any = pydantic.TypeAdapter(hint)
    by_type = {
        JSON.content_type: adapter.validate_json,
        MSGPACK.content_type: lambda body: adapter.validate_python(msgspec.msgpack.decode(body)),
    }
    return _reader(by_type, adapter.validate_python)


def message_of(topic: str, value: Any) -> Message:
    """The message that carries a value: a Message is sent as it is, bytes and text as such, the rest as JSON.

    Raises BadMessage.
    """
    if isinstance(value, Message):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return Message(topic, bytes(value))
    if isinstance(value, str):
        return Message.of(topic, value, TEXT)
    return Message.of(topic, value, JSON)
