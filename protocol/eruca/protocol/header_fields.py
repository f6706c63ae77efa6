"""Loose header fields read as typed headers, and as entries of a ROCKETMQ header.

Reading is lenient (numbers, nulls, unknown names). A value that does not fit raises ``Refused`` with code 1: the frame
around it is sound and gets an answer. Bytes that are no entries raise ``ProtocolError``.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import ProtocolError, Refused
from eruca.protocol.header import Field, Header, plan_of

H = TypeVar("H", bound=Header)

_length = struct.Struct(">i")
_unsigned = struct.Struct(">I").unpack_from
MAX_FIELDS: Final = 256
"""The most fields of a header. RocketMQ's longest has some 20."""
TOO_MANY: Final = (
    f"a header of more than {MAX_FIELDS} fields, or of too many brackets, quotation marks, commas, backslashes or "
    "blanks, is refused"
)
_FEW: Final = 4096
"""Bytes of entries that need no counting."""
_TOO_LONG = "a header entry is longer than the header that holds it"


def from_fields(kind: type[H], fields: Mapping[str, Any]) -> H:
    """Read a header from loose fields.

    Any scalar is accepted for its text; nulls are dropped. A boolean is true for the word ``true`` in any case, and
    for the ``1`` of the C++ client; every other text is false.

    Raises Refused(1) for a missing required field or a number that cannot be read.
    """
    try:
        return msgspec.convert(fields, kind, strict=False)
    except msgspec.ValidationError:
        return _from_loose_fields(kind, fields)


def _from_loose_fields(kind: type[H], fields: Mapping[str, Any]) -> H:
    values: dict[str, Any] = {}
    for field in plan_of(kind):
        value = fields.get(field.wire)
        if value is not None:
            values[field.wire] = _read_value(kind, field, value)
        elif field.required:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{kind.__name__} needs the custom field <{field.wire}>")
    try:
        return msgspec.convert(values, kind, strict=True)
    except msgspec.ValidationError as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"{kind.__name__}: {error}") from None


def _read_value(kind: type[Header], field: Field, value: object) -> Any:
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


def write_binary_fields(fields: Mapping[str, str]) -> bytes:
    """Loose fields as entries of a ROCKETMQ header."""
    parts = []
    for name, text in fields.items():
        key, value = name.encode(), text.encode()
        parts.append(len(key).to_bytes(2, "big") + key + _length.pack(len(value)) + value)
    return b"".join(parts)


def _check_count(data: bytes) -> None:
    at, end = 0, len(data)
    for _ in range(MAX_FIELDS):
        if at + 6 > end:
            return
        split = at + 2 + (data[at] << 8 | data[at + 1])
        at = split + 4 + (_unsigned(data, split)[0] if split + 4 <= end else 0)
    if at < end:
        raise ProtocolError(TOO_MANY)


def read_binary_fields(data: bytes, *, empty: bool = False) -> dict[str, str]:
    """The entries of a ROCKETMQ header; an empty name counts as absent, and so does an empty value unless ``empty``.

    Raises ProtocolError.
    """
    fields: dict[str, str] = {}
    at, end = 0, len(data)
    if end > _FEW:
        _check_count(data)
    text = data.decode("latin-1")  # a part of it is the entry, if that is ASCII, as nearly all are
    try:
        while at < end:
            split = at + 2 + (data[at] << 8 | data[at + 1])
            start = split + 4
            stop = start + _unsigned(data, split)[0]
            if stop > end:
                raise ProtocolError(_TOO_LONG)
            if split > at + 2 and (stop > start or empty):
                name, value = text[at + 2 : split], text[start:stop]
                if not name.isascii():
                    name = data[at + 2 : split].decode()
                fields[name] = value if value.isascii() else data[start:stop].decode()
            at = stop
    except (IndexError, struct.error):
        raise ProtocolError(_TOO_LONG) from None
    except UnicodeDecodeError as error:
        raise ProtocolError(f"a header entry is not UTF-8: {error}") from None
    return fields
