"""Typed header fields: the ``extFields`` of a frame, and their codecs.

A subclass of ``Header`` names the fields of one request or reply; this module turns values of it into the three wire
forms and back. All fields travel as strings; reading is lenient (numbers, nulls, unknown names), writing is exact.
Codecs are compiled once a type. Knows nothing of frames, codes or sockets. A value that does not fit raises
``Refused`` with code 1, since the frame around it may be answered.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin

import msgspec

from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import ProtocolError, Refused

Int = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""A 32-bit field."""
Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A 64-bit field."""

H = TypeVar("H", bound="Header")

_encode_json = msgspec.json.Encoder().encode
_length = struct.Struct(">i")


class Header(msgspec.Struct, kw_only=True, rename="camel"):
    """Base of all header types; a field without a default is required, one that is None is not sent."""

    def fields(self) -> dict[str, str]:
        """The fields as they travel: text by wire name."""
        return _codec(type(self)).texts(self)

    def as_json(self) -> bytes:
        """The fields as a JSON object of strings."""
        return _codec(type(self)).json(self)

    def as_binary(self) -> bytes:
        """The fields as entries of a ROCKETMQ header (RocketMQSerializable in 4.9.7)."""
        return _codec(type(self)).binary(self)


class Empty(Header):
    """The header of requests and replies that have none."""


def from_fields(kind: type[H], fields: Mapping[str, Any]) -> H:
    """Read a header from loose fields.

    Any scalar is accepted for its text, nulls are dropped. A boolean is true for the word ``true`` in any case, and
    for the ``1`` of the C++ client; everything else is false.
    Raises Refused(1) for a missing required field or a number that cannot be read.
    """
    try:
        return msgspec.convert(fields, kind, strict=False)
    except msgspec.ValidationError:
        return _from_loose_fields(kind, fields)


def _from_loose_fields(kind: type[H], fields: Mapping[str, Any]) -> H:
    values: dict[str, Any] = {}
    for field in _plan(kind):
        value = fields.get(field.wire)
        if value is not None:
            values[field.wire] = _read_value(kind, field, value)
        elif field.required:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{kind.__name__} needs the custom field <{field.wire}>")
    try:
        return msgspec.convert(values, kind, strict=True)
    except msgspec.ValidationError as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"{kind.__name__}: {error}") from None


def _read_value(kind: type[Header], field: _Field, value: object) -> Any:
    text = value if isinstance(value, str) else "true" if value is True else "false" if value is False else str(value)
    if field.base is bool:
        return text.lower() in ("true", "1")
    if field.base is int:
        try:
            return int(text)
        except ValueError:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f'{kind.__name__}: the field {field.wire} is no number: "{text[:64]}"'
            ) from None
    return text


class _Field(NamedTuple):
    name: str
    wire: str
    base: type
    optional: bool
    required: bool


@cache
def _plan(kind: type[Header]) -> tuple[_Field, ...]:
    return tuple(
        _Field(field.name, field.encode_name, *_base_of(field.type), field.required)
        for field in msgspec.structs.fields(kind)
    )


def _base_of(declared: Any) -> tuple[type, bool]:
    """The scalar type of a field and whether it may be None."""
    if get_origin(declared) is Annotated:
        return _base_of(get_args(declared)[0])
    if get_origin(declared) in (Union, UnionType):
        (inner,) = [part for part in get_args(declared) if part is not type(None)]
        return _base_of(inner)[0], True
    return declared, False


class _Codec(NamedTuple):
    texts: Callable[[Any], dict[str, str]]
    json: Callable[[Any], bytes]
    binary: Callable[[Any], bytes]


@cache
def _codec(kind: type[Header]) -> _Codec:
    """Compile the writers of a header type: straight-line code without a loop over fields."""
    plan = _plan(kind)
    lines = ["def texts(h):", " out = {}"]
    lines += _guarded(plan, {str: "v", int: "str(v)", bool: "'true' if v else 'false'"}, "out[{wire!r}] = {value}")
    lines += [" return out", "def json(h):", " out = b''"]
    lines += _guarded(
        plan,
        {str: "encode(v)", int: "b'\"%d\"' % v", bool: "b'\"true\"' if v else b'\"false\"'"},
        "out += {json_name!r} + ({value})",
    )
    lines += [" return b'{' + out[1:] + b'}'", "def binary(h):", " out = b''"]
    lines += _guarded(
        plan,
        {str: "v.encode()", int: "b'%d' % v", bool: "b'true' if v else b'false'"},
        "t = {value}; out += {binary_name!r} + pack(len(t)) + t",
    )
    lines += [" return out"]
    scope: dict[str, Any] = {"encode": _encode_json, "pack": _length.pack}
    exec("\n".join(lines), scope)  # the text is made of field names of this package's own types
    return _Codec(scope["texts"], scope["json"], scope["binary"])


def _guarded(plan: tuple[_Field, ...], forms: Mapping[type, str], statement: str) -> list[str]:
    lines = []
    for field in plan:
        name = field.wire.encode()
        text = statement.format(
            wire=field.wire,
            json_name=b',"%b":' % name,
            binary_name=len(name).to_bytes(2, "big") + name,
            value=forms[field.base],
        )
        lines.append(f" v = h.{field.name}")
        lines.append(f" if v is not None: {text}" if field.optional else f" {text}")
    return lines


def write_binary_fields(fields: Mapping[str, str]) -> bytes:
    """Loose fields as entries of a ROCKETMQ header."""
    parts = []
    for name, text in fields.items():
        key, value = name.encode(), text.encode()
        parts.append(len(key).to_bytes(2, "big") + key + _length.pack(len(value)) + value)
    return b"".join(parts)


def read_binary_fields(data: bytes) -> dict[str, str]:
    """The entries of a ROCKETMQ header; an empty name or value counts as absent. Raises ProtocolError."""
    fields: dict[str, str] = {}
    at, end = 0, len(data)
    try:
        while at < end:
            split = at + 2 + int.from_bytes(data[at : at + 2], "big")
            start = split + 4
            stop = start + int.from_bytes(data[split:start], "big")
            if start > end or stop > end:
                raise ProtocolError("a header entry is longer than the header that holds it")
            if split > at + 2 and stop > start:
                fields[data[at + 2 : split].decode()] = data[start:stop].decode()
            at = stop
    except UnicodeDecodeError as error:
        raise ProtocolError(f"a header entry is not UTF-8: {error}") from None
    return fields
