"""The fast path of commits: real messages and op messages of many transactions are written at once.

Owns the commit of a half message that is undecided, at the named offsets, and in memory. ``halves`` does every other
end of a transaction. Knows no requests. Invariant: what is stored is, byte for byte, what ``halves`` would have stored.
"""

from __future__ import annotations

from collections.abc import Iterable

from eruca.broker.services.given_up import OP
from eruca.broker.services.halves import HALF, OP_PROPERTIES, Halves
from eruca.broker.store import Store
from eruca.broker.store.layout import HalfPlace

End = tuple[int, int, str]
"""The offsets of a half message in the half queue and in the log, and the producer group that ends its transaction."""


class Commits:
    """The commits of one broker."""

    def __init__(self, halves: Halves, store: Store) -> None:
        self._halves = halves
        self._store = store

    def commit(self, ends: Iterable[End]) -> int:
        """Commit transactions, from the first one on; returns how many. ``Halves.decide`` has to do the next one."""
        if self._halves.settling:
            return 0
        get = self._halves.undecided.get
        places: dict[int, HalfPlace] = {}
        for offset, physical_offset, group in ends:
            half = get(offset)
            if half is None or half.physical_offset != physical_offset or half.group != group or not group:
                break
            if offset in places:
                break
            places[offset] = (offset, physical_offset, half.size)
        if not places:
            return 0
        stored = self._store.appender.put_commits(
            list(places.values()), (HALF, 0), (OP, 0), OP_PROPERTIES, **self._halves.op_fields()
        )
        for offset, (real, op) in zip(places, stored, strict=False):
            self._halves.committed(offset, real, op)
        return len(stored)
