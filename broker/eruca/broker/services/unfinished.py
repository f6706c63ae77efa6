"""What a former broker had begun with half messages, and did not bring to an end before it was killed.

Owns the list of it, as the two transaction queues show it when they are read. ``halves`` ends it. Knows neither the
store nor records.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field


@dataclass(eq=False)
class Unfinished:
    """Offsets of half messages, in the order in which these are ended: all of one list before the first of the next."""

    doubtful: dict[int, None] = field(default_factory=dict)
    """They are undecided, and their transactions may have been given up: before or after the copy there."""
    prepared: deque[int] = field(default_factory=deque)
    """Copies that RocketMQ would take for done by an op message of the copy before them."""
    replaced: deque[int] = field(default_factory=deque)
    """Of these there is a younger copy, and no op message."""

    def __bool__(self) -> bool:
        return bool(self.doubtful or self.prepared or self.replaced)
