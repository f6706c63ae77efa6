"""What a message carries beside its body: properties, tag hash, flag bits and ids.

Owns the text form of properties, Java's String.hashCode, the sysFlag bits and both kinds of
message id. Pure: the clock, the process id and the address are arguments.
Facts: MessageDecoder, MessageSysFlag, MessageId and MessageClientIDSetter in 4.9.7.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping
from itertools import accumulate, repeat
from operator import mul
from typing import Final

from eruca.protocol.errors import ProtocolError

NAME_VALUE_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"
PROPERTIES_MAX_LENGTH: Final = 32767

COMPRESSED: Final = 0x1
MULTI_TAGS: Final = 0x2
TRANSACTION_NONE: Final = 0x0
TRANSACTION_PREPARED: Final = 0x4
TRANSACTION_COMMIT: Final = 0x8
TRANSACTION_ROLLBACK: Final = 0xC
TRANSACTION_MASK: Final = 0xC
BORN_HOST_V6: Final = 0x10
STORE_HOST_V6: Final = 0x20
NEED_UNWRAP: Final = 0x40
INNER_BATCH: Final = 0x80
COMPRESSION_MASK: Final = 0x700
COMPRESSION_LZ4: Final = 0x100
COMPRESSION_ZSTD: Final = 0x200
COMPRESSION_ZLIB: Final = 0x300


def encode_properties(properties: Mapping[str, str | None]) -> bytes:
    """The stored text of ``properties``: ``name 01 value`` joined by 02, none at the end.

    A value of None is left out, and half of a surrogate pair is written as ``?``, as in Java
    (MessageDecoder.messageProperties2String and String.getBytes in 4.9.7).

    Raises:
        ProtocolError: the text is longer than 32767 bytes or a part holds 01 or 02.
    """
    parts = []
    for name, value in properties.items():
        if value is None:
            continue
        pair = name + NAME_VALUE_SEPARATOR + value
        if pair.count(NAME_VALUE_SEPARATOR) != 1 or PROPERTY_SEPARATOR in pair:
            raise ProtocolError(f"property {name!r} holds a separator character (0x01 or 0x02)")
        parts.append(pair)
    data = PROPERTY_SEPARATOR.join(parts).encode("utf-8", "replace")
    if len(data) > PROPERTIES_MAX_LENGTH:
        raise ProtocolError(f"properties take {len(data)} bytes, at most 32767 are allowed")
    return data


def decode_properties(data: bytes) -> dict[str, str]:
    """The properties of a stored text; a broken or empty pair is left out, as Java does.

    Bytes that are not UTF-8 become U+FFFD.
    """
    result: dict[str, str] = {}
    for pair in data.decode("utf-8", "replace").split(PROPERTY_SEPARATOR):
        name, _, value = pair.partition(NAME_VALUE_SEPARATOR)
        if name and value:
            result[name] = value
    return result


_UTF_16: Final = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"
_CHUNK: Final = 256
_POWERS: Final = tuple(accumulate(repeat(31, 2 * _CHUNK), lambda power, base: power * base & 0xFFFFFFFF, initial=1))


def java_hash(text: str, before: int = 0) -> int:
    """Java's ``String.hashCode()`` of ``text``: a signed 32-bit number over UTF-16 code units.

    With ``before``, the hash code of another text: that of both texts joined.
    """
    if len(text) > _CHUNK:
        for begin in range(0, len(text), _CHUNK):
            before = java_hash(text[begin : begin + _CHUNK], before)
        return before
    if text.isascii():
        return units_hash(text.encode("ascii"), before)
    return units_hash(memoryview(text.encode(_UTF_16, "surrogatepass")).cast("H").tolist(), before)


def units_hash(units: bytes | list[int], before: int = 0) -> int:
    """``java_hash`` of at most 512 UTF-16 code units; those of ASCII text are its bytes."""
    value: int = (before * _POWERS[len(units)] + sum(map(mul, reversed(units), _POWERS))) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


def tags_code(tags: str | None) -> int:
    """What the consume queue stores for a tag: its hash code; 0 where there is no tag."""
    return java_hash(tags) if tags else 0


def is_compressed(sys_flag: int) -> bool:
    """Whether the body is stored compressed."""
    return sys_flag & COMPRESSED != 0


def compression_type(sys_flag: int) -> int:
    """One of the ``COMPRESSION_…`` values; old clients set none, which means ZLIB."""
    return (sys_flag & COMPRESSION_MASK) or COMPRESSION_ZLIB


def offset_message_id(host: bytes, offset: int) -> str:
    """The id a broker gives: ``host`` (address and 4-byte port) and commit log offset in hex."""
    return (host + offset.to_bytes(8, "big")).hex().upper()


def parse_offset_message_id(text: str) -> tuple[bytes, int]:
    """Host (address and 4-byte port, 8 or 20 bytes) and commit log offset of a broker's id.

    Raises:
        ProtocolError: the text is not 32 or 56 hexadecimal digits.
    """
    try:
        data = bytes.fromhex(text) if text.isalnum() else b""
    except ValueError:
        data = b""
    if len(data) not in (16, 28):
        raise ProtocolError(f"a message id has 32 or 56 hexadecimal digits, not {text!r}")
    return data[:-8], int.from_bytes(data[-8:], "big")


def unique_key(address: bytes, process: int, loader: int, elapsed: int, counter: int) -> str:
    """A client's message id: address (4 or 16 bytes), low 16 bits of the process id, a number
    that is constant in the process, ms since the month began, and a counter that wraps."""
    tail = struct.pack(">HIIH", process & 0xFFFF, loader & 0xFFFFFFFF, elapsed & 0xFFFFFFFF, counter & 0xFFFF)
    return (address + tail).hex().upper()
