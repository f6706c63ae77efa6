"""A dictionary of bounded size, for what can be computed again.

Owns which entries are evicted. Pure.
"""

from __future__ import annotations

from itertools import islice
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Memo(dict[K, V]):
    """A dictionary that ``remember`` keeps at ``limit`` entries at most.

    A full memo evicts the oldest quarter of its entries. The others stay, so that users whose working set is a little
    larger than the limit do not compute everything again.
    """

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def remember(self, key: K, value: V) -> V:
        """Add an entry and return its value; evict old entries first when the memo is full."""
        if len(self) >= self.limit and key not in self:
            for old in list(islice(self, max(len(self) // 4, 1))):
                del self[old]
        self[key] = value
        return value
