"""The transactions that nobody has decided yet, and how far both of RocketMQ's transaction queues are done with.

Owns the table of undecided half messages by their offset in the half queue, and which op messages must still be
read at the next start. Knows neither messages' bytes nor the store. Offsets are added in ascending order. Invariant:
of one transaction at most one half message is undecided, the newest.
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
    """When it came, in ms: what its age counts from."""
    stored: int
    """When this copy was stored, in ms."""
    immunity: int | None
    """The age in ms before which its sender does not want to be asked; None leaves that to the configuration."""
    group: str
    """The producer group that knows what became of the transaction."""
    identity: Identity | None
    """None where its sender gave it no unique key: then it is known by its offset alone."""
    copied: bool = False
    """Whether the broker put it back: then ends that name an older copy are meant for it."""
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
        """Where the transaction, of which a copy is or was at ``offset``, is undecided now; None when it is not."""
        if offset in self._open:
            return offset
        copy = None if identity is None else self._offsets.get(identity)
        return copy if copy is not None and self._open[copy].copied else None

    def items(self) -> list[tuple[int, Half]]:
        """All of them by offset, oldest copy first; a copy of the list."""
        return list(self._open.items())

    def first(self) -> int | None:
        """The least offset, None when all is decided."""
        return next(iter(self._open), None)

    def add(self, offset: int, half: Half) -> int | None:
        """A half message came; where it was put back, the offset of the older copy whose place it takes.

        Two that came from a producer are two transactions, however alike they are.
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
        """A half message is undecided no more; one that is not there is no error."""
        half = self._open.pop(offset, None)
        if half is not None and half.identity is not None and self._offsets.get(half.identity) == offset:
            del self._offsets[half.identity]

    def op(self, op_offset: int, offset: int) -> None:
        """The op message at ``op_offset`` says that the half message at ``offset`` is done with."""
        self._ops.append((op_offset, offset))
        self.close(offset)

    def progress(self, half_end: int, op_end: int) -> tuple[int, int]:
        """From where on half queue and op queue, which end there, must be read to know all of this again."""
        first = min(next(iter(self._open), half_end), half_end)
        ops = self._ops
        while ops and ops[0][1] < first:
            ops.popleft()
        return first, min(ops[0][0] if ops else op_end, op_end)
