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

    def natives(self) -> dict[str, Any]:
        """The fields as numbers, booleans and texts by wire name."""
        return _codec(type(self)).natives(self)

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
    natives: Callable[[Any], dict[str, Any]]
    json: Callable[[Any], bytes]
    binary: Callable[[Any], bytes]


_codecs: dict[type[Header], _Codec] = {}


def _codec(kind: type[Header]) -> _Codec:
    codec = _codecs.get(kind)
    if codec is None:
        codec = _codecs[kind] = _compile(_plan(kind))
    return codec


def _compile(plan: tuple[_Field, ...]) -> _Codec:
    """Write the writers of a header type: straight-line code, one template for all fields that are always sent."""
    always = [field for field in plan if not field.optional]
    perhaps = [field for field in plan if field.optional]
    dicts = []
    for writer, forms in (("texts", _TEXT), ("natives", _NATIVE)):
        dicts += [f"def {writer}(h):", " out = {" + ", ".join(f"{f.wire!r}: {_as(forms, f)}" for f in always) + "}"]
        dicts += [f" if h.{f.name} is not None: out[{f.wire!r}] = {_as(forms, f)}" for f in perhaps]
        dicts.append(" return out")
    json = ["def json(h):", f" out = {b''.join(map(_in_json, always))!r}"]
    json[-1] += " % (" + "".join(f"{_as(_JSON, f)}," for f in always) + ")"
    json += [f" if h.{f.name} is not None: out += {_in_json(f)!r} % ({_as(_JSON, f)},)" for f in perhaps]
    binary = ["def binary(h):", " out = []"]
    for f in plan:
        name = len(f.wire.encode()).to_bytes(2, "big") + f.wire.encode()
        write = f"t = {_as(_BINARY, f)}; out += ({name!r}, pack(len(t)), t)"
        binary.append(f" if h.{f.name} is not None: {write}" if f.optional else f" {write}")
    lines = [*dicts, *json, " return b'{' + out[1:] + b'}'", *binary, " return b''.join(out)"]
    scope: dict[str, Any] = {"encode": _encode_json, "pack": _length.pack}
    exec("\n".join(lines), scope)  # the text is made of field names of this package's own types
    return _Codec(scope["texts"], scope["natives"], scope["json"], scope["binary"])


# How a value is written, by its type: an expression of the value.
_NATIVE = {str: "{}", int: "{}", bool: "{}"}
_TEXT = {str: "{}", int: "str({})", bool: "('true' if {} else 'false')"}
_JSON = {str: "encode({})", int: "{}", bool: "(b'true' if {} else b'false')"}
_BINARY = {str: "{}.encode()", int: "b'%d' % {}", bool: "(b'true' if {} else b'false')"}
# And what stands in its place in a template: texts bring their own quotation marks.
_PLACES = {str: b"%b", int: b'"%d"', bool: b'"%b"'}


def _as(forms: Mapping[type, str], field: _Field) -> str:
    return forms[field.base].format(f"h.{field.name}")


def _in_json(field: _Field) -> bytes:
    return b',"%b":%b' % (field.wire.encode(), _PLACES[field.base])


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
