"""The undecided transactions, and the progress in RocketMQ's two transaction queues (TransactionalMessageServiceImpl).

Owns the table of undecided half messages by their offset in the half queue, and which op messages the next start must
read. Knows neither the bytes of messages nor the store. Offsets are added in ascending order. Invariant: of one
transaction at most one half message is undecided, the newest. Facts: 4.9.7.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

Identity = tuple[str, int, int]
"""What all copies of one half message have in common: unique key, the producer's time in ms, CRC of the body."""


class Half(NamedTuple):
    """One undecided half message."""

    physical_offset: int
    begun: int
    """When the first copy arrived, in ms of the monotonic clock: its age counts from here."""
    stored: int
    """When this copy was stored, in ms of the monotonic clock."""
    immunity: int | None
    """The age in ms of the first check, as its sender set it; None uses the configuration."""
    group: str
    """The producer group that can decide the transaction."""
    identity: Identity | None
    """None if its sender set no unique key: then only its offset identifies it."""
    copied: bool = False
    """Whether the broker put it back: then an end that names an older copy decides it."""
    size: int = 0
    """Bytes of its record."""


class Undecided:
    """All undecided half messages."""

    def __init__(self) -> None:
        self._open: dict[int, Half] = {}
        self._offsets: dict[Identity, int] = {}
        self._ops: deque[tuple[int, int]] = deque()

    def __len__(self) -> int:
        return len(self._open)

    def get(self, offset: int) -> Half | None:
        """The undecided half message at this offset, None where there is none."""
        return self._open.get(offset)

    def find(self, offset: int, identity: Identity | None) -> int | None:
        """The offset of the undecided copy of the transaction with a copy at ``offset``; None if it is decided."""
        if offset in self._open:
            return offset
        copy = None if identity is None else self._offsets.get(identity)
        return copy if copy is not None and self._open[copy].copied else None

    def items(self) -> list[tuple[int, Half]]:
        """All of them with their offsets, in ascending order; a copy."""
        return list(self._open.items())

    def first(self) -> int | None:
        """The least offset, None if all are decided."""
        return next(iter(self._open), None)

    def add(self, offset: int, half: Half) -> int | None:
        """Add a half message. If the broker put it back, returns the offset of the older copy that it replaces.

        Two half messages from a producer are two transactions, even if they are equal.
        """
        former = None if half.identity is None else self._offsets.get(half.identity)
        if former is not None and not half.copied:
            self._open[offset] = half._replace(identity=None)
            return None
        if former is not None:
            del self._open[former]
        if half.identity is not None:
            self._offsets[half.identity] = offset
        self._open[offset] = half
        return former

    def close(self, offset: int) -> None:
        """Remove a decided half message; one that is not in the table is ignored."""
        half = self._open.pop(offset, None)
        if half is not None and half.identity is not None and self._offsets.get(half.identity) == offset:
            del self._offsets[half.identity]

    def op(self, op_offset: int, offset: int) -> None:
        """Record that the op message at ``op_offset`` decides the half message at ``offset``."""
        self._ops.append((op_offset, offset))
        self.close(offset)

    def progress(self, half_end: int, op_end: int) -> tuple[int, int]:
        """The offsets from which half queue and op queue, with these ends, must be read to rebuild this table."""
        first = min(next(iter(self._open), half_end), half_end)
        ops = self._ops
        while ops and ops[0][1] < first:
            ops.popleft()
        return first, min(ops[0][0] if ops else op_end, op_end)
