"""The messages of one queue that were pulled and are not yet consumed.

Pure: told what comes and what is done, it says which offset may be stored and whether there is room. Owns one run of a
queue, from the time it was assigned or reset to the time it is dropped; each run has a ``generation`` of its own.
Invariant: ``position`` never passes a message that is not done, and nothing counts any more after ``drop``: whoever
finishes late, for a run that was dropped, changes no offset. Facts: ProcessQueue in 4.9.7.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from eruca.client.config import check_positive
from eruca.protocol.queues import MessageQueue

_generations = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much may wait in memory.

    Args:
        count: messages of one queue.
        size: bytes of one queue.
        span: offsets from the first to the last that waits of one queue.
        topic_count: messages of all queues of one topic, shared evenly by those that a consumer has; then ``count`` is
            of no account. None: no such limit (pullThresholdForTopic).
        topic_size: the same in bytes (pullThresholdSizeForTopic).

    Raises BadConfig.
    """

    count: int = 1000
    size: int = 100 * 1024 * 1024
    span: int = 2000
    topic_count: int | None = None
    topic_size: int | None = None

    def __post_init__(self) -> None:
        check_positive(count=self.count, size=self.size, span=self.span)
        for name, limit in (("topic_count", self.topic_count), ("topic_size", self.topic_size)):
            if limit is not None:
                check_positive(**{name: limit})

    def of_one(self, queues: int) -> Limits:
        """The limits of each of the ``queues`` of a topic that a consumer has."""
        if queues == 0 or (self.topic_count is None and self.topic_size is None):
            return self
        count = self.count if self.topic_count is None else max(1, self.topic_count // queues)
        size = self.size if self.topic_size is None else max(1, self.topic_size // queues)
        return Limits(count=count, size=size, span=self.span)


class ProcessQueue:
    """The messages of ``queue`` under way; reading went up to ``next_offset``."""

    __slots__ = (
        "_pending",
        "consumed_at",
        "dropped",
        "generation",
        "made_room",
        "next_offset",
        "queue",
        "size",
    )

    def __init__(self, queue: MessageQueue, start: int) -> None:
        self.queue = queue
        self.generation = next(_generations)
        self.next_offset = start
        self.dropped = False
        self.size = 0
        self.consumed_at = 0.0
        """When a listener ended last, or the run began, as whoever owns the run says."""
        self.made_room: Callable[[], None] | None = None
        """Whom to call when there is room again; set while somebody waits for it."""
        self._pending: dict[int, int] = {}
        """Bytes by offset, in the order of the queue."""

    def __len__(self) -> int:
        return len(self._pending)

    def put(self, sizes: Mapping[int, int], next_offset: int) -> None:
        """Messages were pulled, of so many bytes by offset in their order; reading goes on at ``next_offset``."""
        self._pending.update(sizes)
        self.size += sum(sizes.values())
        self.next_offset = next_offset

    def done(self, offset: int) -> None:
        """A message is consumed, or the broker has it again."""
        self.size -= self._pending.pop(offset, 0)

    @property
    def position(self) -> int:
        """The offset to store: everything before it is done."""
        return next(iter(self._pending), self.next_offset)

    @property
    def to_store(self) -> int | None:
        """The offset that may be stored as the group's; None where nothing is to be stored yet."""
        return self.position

    @property
    def span(self) -> int:
        """Offsets between the first and the last message that wait."""
        pending = self._pending
        return next(reversed(pending)) - next(iter(pending)) if pending else 0

    def has_room(self, limits: Limits) -> bool:
        """Whether more may be pulled."""
        pending = self._pending
        return (
            len(pending) <= limits.count and self.size <= limits.size and (len(pending) < 2 or self.span <= limits.span)
        )

    def room(self, limits: Limits) -> int:
        """How many messages may be pulled before the limit of their count is passed."""
        return limits.count + 1 - len(self._pending)

    def drop(self) -> None:
        """The queue is not this member's any more, or it goes on from elsewhere."""
        self.dropped = True
        self._pending.clear()
        self.size = 0
