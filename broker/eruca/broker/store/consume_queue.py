"""One consume queue: its units in memory and its counters.

Owns the form of the 20-byte unit. Knows nothing of files (see ``queue_table``) nor of records.
Invariant: ``tail`` holds the units from index ``tail_start`` on without a gap.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from pathlib import Path

from eruca.broker.store.config import CONSUME_QUEUE_UNIT as UNIT
from eruca.protocol.message import java_hash

UNIT_FORM = struct.Struct(">qiq")
BLANK_SIZE_MARK = 0x7FFFFFFF
BLANK_UNIT = UNIT_FORM.pack(0, BLANK_SIZE_MARK, 0)
"""Fills the head of a file whose queue begins later than the file."""


def place_of(unit: tuple[int, int, int] | None) -> int | None:
    """Where in the log the record of a unit lies; None for one that can lead to no record: it is not there, is blank,
    has no size, as one that is zero, or a negative place."""
    if unit is None or unit[1] <= 0 or unit[1] == BLANK_SIZE_MARK or unit[0] < 0:
        return None
    return unit[0]


@lru_cache(maxsize=4096)
def tag_code(tags: bytes) -> int:
    """What a unit stores of a message's tag: its hash code; 0 without a tag."""
    return java_hash(tags.decode("utf-8", "replace"))


class ConsumeQueue:
    """One queue: its counters and the units that are in memory."""

    __slots__ = (
        "arrived",
        "cache",
        "checked_from",
        "folder",
        "index_prefix",
        "lost",
        "min_offset",
        "next_offset",
        "queue_id",
        "tail",
        "tail_start",
        "topic",
        "topic_tail",
        "written",
    )

    def __init__(self, topic: str, queue_id: int, folder: str) -> None:
        name = topic.encode()
        self.topic = topic
        self.queue_id = queue_id
        self.folder = folder
        """Where its files are."""
        self.topic_tail = bytes((len(name),)) + name
        self.index_prefix = java_hash(f"{topic}#") & 0xFFFFFFFF
        """Hash code of ``topic#``, which precedes each key in the index, as an unsigned number."""
        self.next_offset = 0
        """The queue offset that the next message gets; ahead of ``max_offset`` by what is not dispatched."""
        self.min_offset = 0
        self.tail = bytearray()
        self.tail_start = 0
        self.written = 0
        self.checked_from = 0
        """Units below this index come from files of an earlier run: their records are checked when read."""
        self.lost: set[int] = set()
        """Units filled in this run because their record was lost."""
        self.cache: tuple[int, bytes] = (0, b"")
        self.arrived: list[int] = []
        """Tag codes of the messages of the dispatch round going on."""

    @property
    def path(self) -> Path:
        """The folder of its files."""
        return Path(self.folder)

    @property
    def max_offset(self) -> int:
        """One after the newest readable message."""
        return self.tail_start + len(self.tail) // UNIT

    def begin_at(self, offset: int) -> None:
        """Let an empty queue begin at ``offset``."""
        self.tail_start = self.written = self.min_offset = self.checked_from = offset
        self.tail.clear()
        self.cache = (0, b"")
