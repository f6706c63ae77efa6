"""ProcessQueue: the messages of one queue that were pulled and are not consumed yet.

Pure. Computes the offset that may be stored and whether there is room for another pull. A process queue lives from the
assignment or reset of its queue until it is dropped. Invariant: ``position`` never passes a message that is not
consumed, and after ``drop`` nothing counts: a listener that finishes late for a dropped process queue changes no
offset. Facts: ProcessQueue in 4.9.7.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from eruca.client.checks import check_least
from eruca.protocol.queues import MessageQueue


class QueueLimits(msgspec.Struct, frozen=True):
    """How much of one queue may wait in memory: messages, bytes, and offsets from the first to the last message."""

    count: int
    size: int
    span: int


class PullThresholds(msgspec.Struct, frozen=True, kw_only=True):
    """Flow control of a consumer: how much may wait in memory before it pauses its pulls.

    The fields are the options of the consumers: messages and MiB of one queue, offsets from the first to the last
    waiting message of one queue, messages and MiB of all queues of one topic. The thresholds of a topic are divided
    evenly among its queues and then replace those of a queue; None disables them. Raises BadConfig.
    """

    pull_threshold_for_queue: int = 1000
    pull_threshold_size_for_queue: int = 100
    consume_max_span: int = 2000
    pull_threshold_for_topic: int | None = None
    pull_threshold_size_for_topic: int | None = None

    def __post_init__(self) -> None:
        check_least(
            1,
            pull_threshold_for_queue=self.pull_threshold_for_queue,
            pull_threshold_size_for_queue=self.pull_threshold_size_for_queue,
            consume_max_span=self.consume_max_span,
        )
        if self.pull_threshold_for_topic is not None:
            check_least(1, pull_threshold_for_topic=self.pull_threshold_for_topic)
        if self.pull_threshold_size_for_topic is not None:
            check_least(1, pull_threshold_size_for_topic=self.pull_threshold_size_for_topic)

    def of_queue(self, queues: int = 1) -> QueueLimits:
        """The limits of each queue of a topic of which the consumer has ``queues`` queues."""
        count, size = self.pull_threshold_for_queue, self.pull_threshold_size_for_queue << 20
        if queues and self.pull_threshold_for_topic is not None:
            count = max(1, self.pull_threshold_for_topic // queues)
        if queues and self.pull_threshold_size_for_topic is not None:
            size = max(1, (self.pull_threshold_size_for_topic << 20) // queues)
        return QueueLimits(count, size, self.consume_max_span)


class ProcessQueue:
    """The pulled messages of ``queue``. ``next_offset`` is the offset of the next pull."""

    __slots__ = (
        "_pending",
        "consumed_at",
        "dropped",
        "made_room",
        "next_offset",
        "queue",
        "size",
    )

    def __init__(self, queue: MessageQueue, start: int) -> None:
        self.queue = queue
        self.next_offset = start
        self.dropped = False
        self.size = 0
        """Bytes of the messages that wait."""
        self.consumed_at = 0.0
        """When a listener last finished, or the process queue was opened, in seconds of the owner's clock."""
        self.made_room: Callable[[], None] | None = None
        """Called when there is room again; set while a puller waits for room."""
        self._pending: dict[int, int] = {}
        """Bytes by offset, in the order of the queue."""

    def __len__(self) -> int:
        return len(self._pending)

    def put(self, sizes: Mapping[int, int], next_offset: int) -> None:
        """Add pulled messages, given as bytes by offset in queue order; the next pull starts at ``next_offset``."""
        self._pending.update(sizes)
        self.size += sum(sizes.values())
        self.next_offset = next_offset

    def done(self, offset: int) -> None:
        """Remove a message that is consumed or was sent back to the broker."""
        self.size -= self._pending.pop(offset, 0)

    @property
    def position(self) -> int:
        """The first offset that is not consumed."""
        return next(iter(self._pending), self.next_offset)

    @property
    def to_store(self) -> int | None:
        """The offset that may be stored for the group; None if nothing may be stored yet."""
        return self.position

    @property
    def span(self) -> int:
        """Offsets between the first and the last waiting message."""
        pending = self._pending
        return next(reversed(pending)) - next(iter(pending)) if pending else 0

    def has_room(self, limits: QueueLimits) -> bool:
        """Whether more messages may be pulled."""
        pending = self._pending
        return (
            len(pending) <= limits.count and self.size <= limits.size and (len(pending) < 2 or self.span <= limits.span)
        )

    def room(self, limits: QueueLimits) -> int:
        """How many messages may be pulled before the limit on their count is exceeded."""
        return limits.count + 1 - len(self._pending)

    def drop(self) -> None:
        """Close: the queue belongs to another member now, or continues from another offset."""
        self.dropped = True
        self._pending.clear()
        self.size = 0
