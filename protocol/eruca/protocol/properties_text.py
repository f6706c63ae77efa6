"""The stored text of a message's properties: one property read without parsing the others.

Reads the text ``name 01 value`` joined by 02 (``message.encode_properties`` makes it from a mapping). Pure.
Where a name occurs twice the last one counts, as in Java's map (MessageDecoder.string2messageProperties in 4.9.7).
"""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=256)
def _beginnings(name: str) -> tuple[bytes, bytes]:
    """How a property begins at the start of a text, and after another one."""
    first = name.encode() + b"\x01"
    return first, b"\x02" + first


def get(text: bytes, name: str) -> bytes:
    """The raw value of a property; empty where there is none."""
    first, later = _beginnings(name)
    _, found, rest = text.rpartition(later)
    if not found:
        if not text.startswith(first):
            return b""
        rest = text[len(first) :]
    return rest.partition(b"\x02")[0]
