"""Tuples that the native step reads by position, with the names of their fields.

``LAYOUTS`` says which field stands where; ``native`` compares it with what the C was compiled for (``c/parts.h``).
"""

from __future__ import annotations

from typing import Final

from eruca.broker.store.consume_queue import ConsumeQueue

Request = tuple[ConsumeQueue, int, int, bytes, int, int, int]
"""One record to dispatch (DispatchRequest in RocketMQ): queue, commit log offset, size, properties text, queue offset,
store time in ms, sysFlag."""

IndexEntry = tuple[int, int, int]
"""Index hash of a key, commit log offset and store time in ms of the message."""

LAYOUTS: Final = {
    "Request": ("queue", "position", "size", "properties", "queue_offset", "store_time", "sys_flag"),
    "IndexEntry": ("hash", "position", "store_time"),
}


def index_hash(code: int) -> int:
    """The hash that an index stores for a key's ``String.hashCode``: its absolute value, 0 for the one number that
    has none (IndexFile.indexKeyHashMethod in 4.9.7)."""
    return abs(code) & 0x7FFFFFFF
