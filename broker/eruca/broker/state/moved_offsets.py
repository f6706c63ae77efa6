"""Which groups were lately notified that their offset of a queue was out of range.

Owns how often that is reported, so that pulls of wrong offsets fill neither the store nor the log. Must not know
messages. Invariant: the table has at most ``MOST`` entries; beyond them nothing is reported until older ones expired.
"""

from __future__ import annotations

from typing import Final

EVERY: Final = 10_000
"""ms between two reports of one group and queue."""
MOST: Final = 10_000

_Key = tuple[str, str, int]


class MovedOffsets:
    """The last report of each group, topic and queue id; times are monotonic ms."""

    def __init__(self) -> None:
        self._reported: dict[_Key, int] = {}
        """In the order of their times."""

    def is_due(self, group: str, topic: str, queue_id: int, now: int) -> bool:
        """Whether this is to be reported at ``now``; then it counts as reported."""
        reported = self._reported
        while reported and now - reported[first := next(iter(reported))] >= EVERY:
            del reported[first]
        key = (group, topic, queue_id)
        if key in reported or len(reported) >= MOST:
            return False
        reported[key] = now
        return True
