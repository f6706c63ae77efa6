"""Unpacking: large compressed bodies are decompressed in a thread, just before their messages are handed over.

Owns which bodies that are, so that ``body`` finds them unpacked and the event loop goes on meanwhile. Others are
decompressed by ``body`` itself, when it is asked. Invariant: one body of each call is being unpacked at a time, and
none of the messages that wait. A body that cannot be read is left to ``body``, which says why.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from eruca.client.compression import LARGE, in_thread
from eruca.client.errors import BadAnswer
from eruca.client.message import ReceivedMessage
from eruca.protocol.message import COMPRESSED

PACKED_FROM: Final = 1024
"""Stored bytes of a compressed body from which on it may be large; ZLIB makes at most 1 MiB of fewer."""


def is_packed(message: ReceivedMessage) -> bool:
    """Whether the body is compressed, and may be large."""
    head = message._head
    return bool(head[3] & COMPRESSED) and head[4] >= PACKED_FROM


def are_packed(messages: Iterable[ReceivedMessage]) -> bool:
    """Whether one of the bodies is compressed, and may be large."""
    for each in messages:
        head = each._head  # as ``is_packed``, without a call for each message
        if head[3] & COMPRESSED and head[4] >= PACKED_FROM:
            return True
    return False


async def unpack(messages: Iterable[ReceivedMessage]) -> None:
    """Unpack what is large in a thread, one body after the other."""
    for message in messages:
        if is_packed(message) and not _read(message, LARGE):
            await in_thread(_read, message, message._max_body)


def _read(message: ReceivedMessage, most: int) -> bool:
    """Whether the body is unpacked now; not where it cannot be read, or has more than ``most`` bytes."""
    if message._body is None:
        try:
            message._decompress(min(most, message._max_body))
        except BadAnswer:
            return False
    return True
