"""The new offsets of a group that an operator resets to a time.

Owns the rule (Broker2Client.resetOffset in 4.9.7) and nothing else. Pure: knows neither the store, nor who is online,
nor the wire. A reset does not change the broker's own table; the members commit the new offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import Refused

END = -1
"""The time that means the end of every queue."""


class QueueOffsets(NamedTuple):
    """The offsets of one write queue: the committed one (-1 if there is none) and the one at the given time."""

    committed: int
    at_time: int


def plan(group: str, queues: Sequence[QueueOffsets], force: bool) -> list[int]:
    """The new offset of each queue, in the order of ``queues``.

    That is the offset at the time; without ``force`` only where it is below the committed one. An offset below 0 counts
    as 0. Raises Refused(1), in RocketMQ's words, if the group has no committed offset in one of the queues: it is new,
    it broadcasts (its members keep their own offsets), or it does not exist.
    """
    if any(queue.committed == -1 for queue in queues):
        raise Refused(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{group}> not exist")
    return [_target(queue, force) for queue in queues]


def _target(queue: QueueOffsets, force: bool) -> int:
    at_time = max(queue.at_time, 0)
    return at_time if force or at_time < queue.committed else queue.committed
