"""The stored text of a message's properties: one property read, removed or set without parsing the others.

Owns edits of the text ``name 01 value`` joined by 02 (``message.encode_properties`` makes it from a mapping). Pure.
Where a name occurs twice the last one counts, as in Java's map (MessageDecoder.string2messageProperties in 4.9.7).
"""

from __future__ import annotations

from collections.abc import Mapping
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


def without(text: bytes, *names: str) -> bytes:
    """The text without these properties, without empty parts and without a separator at its end."""
    gone = {name.encode() for name in names}
    return b"\x02".join(part for part in text.split(b"\x02") if part and part.partition(b"\x01")[0] not in gone)


def with_(text: bytes, values: Mapping[str, str]) -> bytes:
    """The text with these properties at its end, in place of any of the same names.

    The length is not checked: a record takes ``message.PROPERTIES_MAX_LENGTH`` bytes.
    """
    rest = without(text, *values)
    added = b"\x02".join(f"{name}\x01{value}".encode() for name, value in values.items())
    return b"\x02".join(part for part in (rest, added) if part)
