"""What has arrived of something that is not complete.

Owns where it is kept. Invariant: ``taken`` is the memory that it takes, little more than its bytes however small the
pieces are in which they came, and it is given back at once, but for a few blocks. What is long is in mappings of its
own: in the heap, buffers of all sizes that come and go leave holes which nobody else fits into.
"""

from __future__ import annotations

import mmap
from typing import Any

BLOCK = 64 << 10
_SHORT = 16 << 10
_KEPT = 64
"""Blocks that are kept for what comes next; the pages of a new one cost more than what is written into them."""
_PRIVATE: dict[str, Any] = (
    {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}  # not on Windows
)
_free: list[mmap.mmap] = []


def _block() -> mmap.mmap:
    try:
        return _free.pop()
    except IndexError:
        return mmap.mmap(-1, BLOCK, **_PRIVATE)


class Pieces:
    """Bytes in their order; ``size`` is their number."""

    __slots__ = ("_blocks", "_room", "_start", "size")

    def __init__(self) -> None:
        self.size = 0
        self._start = bytearray()
        self._blocks: list[mmap.mmap] = []
        """What follows the start."""
        self._room = 0
        """Bytes that are free in the last block."""

    @property
    def taken(self) -> int:
        """Bytes of memory, whole blocks counted."""
        return len(self._start) + BLOCK * len(self._blocks)

    def add(self, data: bytes) -> None:
        """Add what has arrived."""
        self.size += len(data)
        if self.size <= _SHORT:
            self._start += data
            return
        at = 0
        while at < len(data):
            if not self._room:
                self._blocks.append(_block())
                self._room = BLOCK
            piece = data[at : at + self._room]
            begin = BLOCK - self._room
            self._blocks[-1][begin : begin + len(piece)] = piece
            self._room -= len(piece)
            at += len(piece)

    def take(self) -> bytes:
        """All of it; nothing is left here."""
        parts: list[Any] = [self._start, *self._blocks]
        if self._room:
            parts[-1] = self._blocks[-1][: BLOCK - self._room]
        whole = b"".join(parts)
        self.clear()
        return whole

    def clear(self) -> None:
        """Drop all of it."""
        self.size = self._room = 0
        self._start = bytearray()
        for block in self._blocks:
            if len(_free) < _KEPT:
                _free.append(block)
            else:
                block.close()
        self._blocks = []
