"""Answers to sends, read in one go: what nearly every one of them says, and nothing else.

``read_json`` and ``read_binary`` take a header in JSON and in the ROCKETMQ serialization, as Apache's brokers and
Eruca's write it. Whatever they do not know, refusals among it, they leave (by UNREADABLE, and by None) to the ordinary
way (``frame.read`` and ``frame.typed``), which reads it or tells what is wrong. Invariant: where one gives something,
the ordinary way gives the same; only that damage in texts which are of no use here, such as a region that is not
UTF-8, is not seen.
Facts: SendMessageResponseHeader and RocketMQSerializable in 4.9.7. Pure.
"""

from __future__ import annotations

import struct
from typing import Final, Literal

import msgspec

from eruca.protocol import frame
from eruca.protocol.errors import ProtocolError
from eruca.protocol.header import Int, Long, read_binary_fields


class Stored(msgspec.Struct, gc=False, rename="camel"):
    """Where the message is, or the first one of a batch."""

    msg_id: str
    queue_id: Int
    queue_offset: Long
    transaction_id: str | None = None


class StoredAnswer(msgspec.Struct, gc=False):
    """The header of an answer to a send."""

    code: Literal[0]
    flag: Literal[1]
    opaque: int
    stored: Stored = msgspec.field(name="extFields")


read_json = msgspec.json.Decoder(StoredAnswer, strict=False).decode
"""The answer of a broker that stored what was sent (code 0). Raises one of ``frame.UNREADABLE`` for any other."""
_start = struct.Struct(">hBHiiii7si").unpack_from
"""Code, language, version, opaque, flag, length of the remark, length of the fields; the first name, and how long."""
_ID: Final = b"\0\5msgId"
_QUEUE: Final = b"\0\7queueId\0\0\0"
_OFFSET: Final = b"\0\x0bqueueOffset\0\0\0"
_TRANSACTION: Final = b"\0\x0dtransactionId\0\0\0"
_ID_AT: Final = 32
_REMEMBERED: Final = 64
_harmless: set[bytes] = set()
"""Ends of headers in which nothing changes what was read before them."""


def read_binary(header: bytes) -> StoredAnswer | None:
    """The same; None for any other."""
    try:
        code, _, _, opaque, flag, remark, size, name, length = _start(header)
        queue_at = _ID_AT + length
        queue, offset_at = _field(header, _QUEUE, queue_at)
        offset, end_at = _field(header, _OFFSET, offset_at)
        if code or flag != frame.RESPONSE_FLAG or remark or name != _ID or length <= 0 or size != len(header) - 21:
            return None
        transaction = None
        if header.startswith(_TRANSACTION, end_at):
            text, end_at = _field(header, _TRANSACTION, end_at)
            if not text:
                return None
            transaction = text.decode()
        end = header[end_at:]
        if not (end in _harmless or _adds_nothing(end)) or not _are_numbers(queue, offset):
            return None
        stored = Stored(header[_ID_AT:queue_at].decode(), int(queue), int(offset), transaction)
    except (struct.error, IndexError, UnicodeDecodeError):
        return None
    return StoredAnswer(0, 1, opaque, stored)


def _are_numbers(queue: bytes, offset: bytes) -> bool:
    return queue.isdigit() and offset.isdigit() and len(queue) < 10 and len(offset) < 19


def _field(header: bytes, name: bytes, at: int) -> tuple[bytes, int]:
    """The value of a field of up to 255 bytes that is to stand here, and where it ends; nothing where it does not."""
    start = at + len(name) + 1
    if not header.startswith(name, at):
        return b"", at
    end = start + header[start - 1]
    return header[start:end] if end <= len(header) else b"", end


def _adds_nothing(end: bytes) -> bool:
    """Whether what follows in a header is fields, and none of those that were read."""
    try:
        if not frozenset(read_binary_fields(end)).isdisjoint(Stored.__struct_encode_fields__):
            return False
    except ProtocolError:
        return False
    if len(_harmless) >= _REMEMBERED:
        _harmless.clear()
    _harmless.add(end)
    return True
