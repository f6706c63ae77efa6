"""Values in place of bytes: how a body is written and read, and the property that says which way.

Owns the serializers that come with the client, the register of content types, and the error of a misfit. A message
carries the content type as a user property, so that any client of RocketMQ can see it; bodies without one are bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar, overload

import msgspec

from eruca.client.errors import BadBody, BadMessage, UsageError

CONTENT_TYPE: Final = "contentType"
"""The property with the type of the body, such as ``application/json``."""


T = TypeVar("T")
V = TypeVar("V", covariant=True)


class Reader(Protocol[V]):
    """The half of a serializer that reads; what it gives is the type of ``ReceivedMessage.value_by``."""

    @property
    def content_type(self) -> str:
        """What it reads."""

    def loads(self, body: bytes, /) -> V:
        """The value."""


class Serializer(Protocol):
    """Writes values as bodies and reads them again; ``dumps`` and ``loads`` may raise what they like."""

    @property
    def content_type(self) -> str:
        """What travels in the property."""

    def dumps(self, value: Any, /) -> bytes:
        """The body."""

    def loads(self, body: bytes, /) -> Any:
        """The value."""


class Bytes:
    """Bytes as they are."""

    content_type = "application/octet-stream"

    def dumps(self, value: Any) -> bytes:
        """The same bytes. Raises TypeError for anything else."""
        return memoryview(value).tobytes()

    def loads(self, body: bytes) -> bytes:
        """The same bytes."""
        return body


class Text:
    """Text in UTF-8."""

    content_type = "text/plain; charset=utf-8"

    def dumps(self, value: Any) -> bytes:
        """The text's UTF-8. Raises TypeError for what is no text."""
        return str.encode(value)

    def loads(self, body: bytes) -> str:
        """The text. Raises UnicodeDecodeError."""
        return body.decode()


def _fields(value: Any) -> Any:
    """The plain fields of a model of pydantic, which msgspec does not know. Raises TypeError for any other value."""
    if not hasattr(value, "model_dump"):
        raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")
    return value.model_dump(mode="json")


class _Typed(Generic[T]):
    """What the formats of msgspec have in common: plain values, dataclasses, msgspec structs, models of pydantic.

    Args:
        type: what ``loads`` gives and checks, such as a dataclass or ``list[int]``; default any value. Each format
            declares it itself, since a type checker infers Any for its own class only.
    """

    _format: Any
    """The module of msgspec with its Encoder and Decoder."""

    def __init__(self, type: Any) -> None:
        self._encode: Callable[[Any], bytes] = self._format.Encoder(enc_hook=_fields).encode
        self._decode: Callable[[bytes], T] = self._format.Decoder(type).decode

    def dumps(self, value: Any) -> bytes:
        """The value in this format. Raises TypeError."""
        return self._encode(value)

    def loads(self, body: bytes) -> T:
        """The value, of the type. Raises msgspec.DecodeError."""
        return self._decode(body)


class Json(_Typed[T]):
    """JSON, of plain values, dataclasses, msgspec structs and models of pydantic; ``Json(list[int])`` reads and checks
    this type, which is no model of pydantic.
    """

    content_type = "application/json"
    _format = msgspec.json

    @overload
    def __init__(self: Json[Any]) -> None: ...
    @overload
    def __init__(self, type: type[T]) -> None: ...
    @overload
    def __init__(self: Json[Any], type: Any) -> None: ...
    def __init__(self, type: Any = Any) -> None:
        super().__init__(type)


class MsgPack(_Typed[T]):
    """MessagePack, of the same values as ``Json``; ``MsgPack(Order)`` reads and checks this type."""

    content_type = "application/msgpack"
    _format = msgspec.msgpack

    @overload
    def __init__(self: MsgPack[Any]) -> None: ...
    @overload
    def __init__(self, type: type[T]) -> None: ...
    @overload
    def __init__(self: MsgPack[Any], type: Any) -> None: ...
    def __init__(self, type: Any = Any) -> None:
        super().__init__(type)


BYTES: Final = Bytes()
TEXT: Final = Text()
JSON: Final[Json[Any]] = Json()
MSGPACK: Final[MsgPack[Any]] = MsgPack()

_registered: dict[str, Serializer] = {each.content_type: each for each in (BYTES, TEXT, JSON, MSGPACK)}


def register(serializer: Serializer) -> None:
    """Let ``ReceivedMessage.value`` read this serializer's content type with it, in this process.

    Raises UsageError unless it has a content type, ``dumps`` and ``loads``.
    """
    check(serializer)
    _registered[serializer.content_type] = serializer


def check(serializer: object) -> None:
    """Raise UsageError unless this is a serializer: an object with a content type, ``dumps`` and ``loads``."""
    _check_made(serializer)
    fits = all(callable(getattr(serializer, name, None)) for name in ("dumps", "loads"))
    kind = getattr(serializer, "content_type", None)
    if not fits or not isinstance(kind, str) or not kind.strip():
        raise UsageError("A serializer has a content_type, which is a text, and the functions dumps and loads.")


def _check_made(serializer: object) -> None:
    if isinstance(serializer, type):
        raise UsageError(f"{serializer.__name__} is a class: make a serializer of it, {serializer.__name__}(...).")


def dump(serializer: Serializer, value: object) -> bytes:
    """The body for a value. Raises BadMessage when the serializer cannot write it."""
    try:
        return serializer.dumps(value)
    except Exception as error:
        raise BadMessage(
            f"a value of type {type(value).__name__} cannot be written as {serializer.content_type}: {error}"
        ) from error


def load(content_type: str | None, body: bytes) -> Any:
    """The value of a body of this content type; the body itself where there is none. Raises BadBody."""
    if content_type is None:
        return body
    serializer = _registered.get(content_type) or _registered.get(plain(content_type))
    if serializer is None:
        raise BadBody(
            f'Nobody reads bodies of the content type "{content_type}" here: give serializers.register(...) one that '
            "does, or take message.body."
        )
    return load_by(serializer, body)


def load_by(serializer: Reader[T], body: bytes) -> T:
    """The value of a body, by this serializer. Raises BadBody, and UsageError for a class in place of a serializer."""
    try:
        return serializer.loads(body)
    except Exception as error:
        _check_made(serializer)
        raise BadBody(f"The body cannot be read as {serializer.content_type}: {error}") from error


def plain(content_type: str) -> str:
    """``application/json; charset=utf-8`` is ``application/json``; texts are UTF-8 unless they say otherwise."""
    kind, _, parameters = content_type.partition(";")
    kind = kind.strip().lower()
    charset = parameters.lower().replace(" ", "").replace('"', "")
    if kind == "text/plain" and charset in ("", "charset=utf-8", "charset=us-ascii"):
        return Text.content_type
    return kind
