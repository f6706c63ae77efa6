"""The header of a send (310, 320), cut into what its sender repeats from message to message, and what it does not.

Owns where born timestamp, properties and opaque stand in a header, and nothing of their meaning: a server that has
read one header whole may take those three from every other that is equal to it everywhere else, byte for byte. Pure;
a header in any other form is simply not cut. Invariant: what ``take`` accepts differs from the header that was cut in
these three values only.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

BORN_LENGTH: Final = 13
"""Digits of a born timestamp, from 2001 to 2286."""

_JSON_BORN: Final = b'","g":"'
_JSON_PROPERTIES: Final = b'","i":"'
_JSON_OPAQUE: Final = b'"opaque":'
_BINARY_BORN: Final = b"\0\1g\0\0\0\x0d"
_BINARY_PROPERTIES: Final = b"\0\1i"

Values = tuple[bytes, str, bytes]
"""Born timestamp in digits, the text of the properties, opaque as it came."""

_read_text = msgspec.json.Decoder(str).decode


class Json(NamedTuple):
    """A JSON header: everything before the born timestamp is ``head`` (see ``json_head``)."""

    head: bytes
    before_text: bytes
    before_opaque: bytes
    end: bytes

    def take(self, header: bytes) -> Values | None:
        """The three values of a header with this ``head``; None when it differs elsewhere."""
        born_at = len(self.head)
        born_end = born_at + BORN_LENGTH
        before_text, before_opaque, end = self[1:]
        text_at = born_end + len(before_text)
        text_end = header.find(b'"', text_at)
        opaque_at = text_end + len(before_opaque)
        if not (
            header.startswith(before_text, born_end)
            and header.startswith(before_opaque, text_end)
            and header.endswith(end, opaque_at)
        ):
            return None
        born = header[born_at:born_end]
        opaque = header[opaque_at : -len(end)]
        if not (born.isdigit() and opaque.isdigit()):
            return None
        try:
            return born, _read_text(header[text_at - 1 : text_end + 1]), opaque
        except (msgspec.DecodeError, UnicodeDecodeError):  # or a quotation mark within the properties
            return None


class Binary(NamedTuple):
    """A ROCKETMQ header without a remark: its code and the fields before the born timestamp are ``head`` (see
    ``binary_head``)."""

    head: bytes
    before_text: bytes
    end: bytes
    kind: bytes
    """Code, language and version."""
    flag: bytes
    """Flag, and the length of a remark: none."""

    def take(self, header: bytes) -> Values | None:
        """The three values of a header with this ``head``; None when it differs elsewhere."""
        born_at = 19 + len(self.head)
        born_end = born_at + BORN_LENGTH
        _, before_text, end, kind, flag = self
        length_at = born_end + len(before_text)
        text_at = length_at + 4
        text_end = text_at + int.from_bytes(header[length_at:text_at], "big")
        size = len(header)
        if not (
            header[text_end:] == end
            and header.startswith(before_text, born_end)
            and header.startswith(kind)
            and header.startswith(flag, 9)
            and size - 21 == int.from_bytes(header[17:21], "big")
            and text_end + len(end) == size
        ):
            return None
        born = header[born_at:born_end]
        if not born.isdigit():
            return None
        try:
            return born, header[text_at:text_end].decode(), header[5:9]
        except UnicodeDecodeError:
            return None


def json_head(header: bytes) -> bytes:
    """Everything of a JSON header before the born timestamp; something useless where it has none."""
    return header[: header.find(_JSON_BORN) + 7]


def binary_head(header: bytes) -> bytes:
    """Code, and fields before the born timestamp, of a ROCKETMQ header; something useless where it has none."""
    return header[:2] + header[21 : header.find(_BINARY_BORN, 21) + 7]


def cut_json(header: bytes) -> Json | None:
    """Cut a JSON header whose fields come in an order like Java's."""
    head = json_head(header)
    born_end = len(head) + BORN_LENGTH
    text_at = header.find(_JSON_PROPERTIES, born_end) + 7
    text_end = header.find(b'"', text_at)
    opaque_at = header.find(_JSON_OPAQUE, text_end) + 9
    opaque_end = header.find(b",", opaque_at)
    if not head.endswith(_JSON_BORN) or text_at < 7 or text_end < 0 or opaque_at < 9 or opaque_end < 0:
        return None
    return Json(head, header[born_end:text_at], header[text_end:opaque_at], header[opaque_end:])


def cut_binary(header: bytes) -> Binary | None:
    """Cut a ROCKETMQ header without a remark whose fields come in an order like Java's."""
    head = binary_head(header)
    born_end = 19 + len(head) + BORN_LENGTH
    length_at = header.find(_BINARY_PROPERTIES, born_end) + 3
    text_end = length_at + 4 + int.from_bytes(header[length_at : length_at + 4], "big")
    if not head.endswith(_BINARY_BORN) or length_at < 3 or text_end > len(header) or header[13:17] != bytes(4):
        return None
    return Binary(head, header[born_end:length_at], header[text_end:], header[:5], header[9:17])
