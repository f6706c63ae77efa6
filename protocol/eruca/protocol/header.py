"""Typed header fields: the ``extFields`` of a frame, and how they are written.

A subclass of ``Header`` names the fields of one request or reply; this module turns its values into the three wire
forms (``header_fields`` reads them). All fields travel as strings. Codecs are compiled once per type. Knows nothing of
frames, codes or sockets.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

import msgspec

Int = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""A 32-bit field."""
Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A 64-bit field."""

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
    """The header of requests and replies without fields."""


class Field(NamedTuple):
    """One field of a header type: its attribute, its name on the wire, its scalar type."""

    name: str
    wire: str
    base: type
    optional: bool
    required: bool


@cache
def plan_of(kind: type[Header]) -> tuple[Field, ...]:
    """The fields of a header type, in their order."""
    return tuple(
        Field(field.name, field.encode_name, *_base_of(field.type), field.required)
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
        codec = _codecs[kind] = _compile(plan_of(kind))
    return codec


def _compile(plan: tuple[Field, ...]) -> _Codec:
    """Generate the writers of a header type: straight-line code, one template for all fields that are always sent."""
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
    exec("\n".join(lines), scope)  # noqa: S102 - made of field names of this package's own types
    return _Codec(scope["texts"], scope["natives"], scope["json"], scope["binary"])


# How a value is written, by its type: an expression of the value.
_NATIVE = {str: "{}", int: "{}", bool: "{}"}
_TEXT = {str: "{}", int: "str({})", bool: "('true' if {} else 'false')"}
_JSON = {str: "encode({})", int: "{}", bool: "(b'true' if {} else b'false')"}
_BINARY = {str: "{}.encode()", int: "b'%d' % {}", bool: "(b'true' if {} else b'false')"}
# And its placeholder in a template: texts bring their own quotation marks.
_PLACES = {str: b"%b", int: b'"%d"', bool: b'"%b"'}


def _as(forms: Mapping[type, str], field: Field) -> str:
    return forms[field.base].format(f"h.{field.name}")


def _in_json(field: Field) -> bytes:
    return b',"%b":%b' % (field.wire.encode(), _PLACES[field.base])
