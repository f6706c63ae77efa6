"""Where a group goes when an operator puts it back, or forward, to a time.

Owns the rule (Broker2Client.resetOffset in 4.9.7) and nothing else: pure, it knows neither the store, nor who is
online, nor the wire. The broker's own offsets are not changed by a reset; the members store the new ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import Refused

END = -1
"""The time that means the end of every queue."""


class QueueOffsets(NamedTuple):
    """One write queue: where the group is (-1: it has committed nothing) and where the time is."""

    committed: int
    at_time: int


def plan(group: str, queues: Sequence[QueueOffsets], force: bool) -> list[int]:
    """The new offset of each queue, in the order of ``queues``.

    With ``force`` that is the offset at the time, without it only where that goes back. An offset below 0 counts as 0.
    Raises Refused(1), in RocketMQ's words, when the group has no committed offset for one of the queues: it is young,
    broadcasting (its members keep their own offsets), or not there at all.
    """
    if any(queue.committed == -1 for queue in queues):
        raise Refused(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{group}> not exist")
    return [_target(queue, force) for queue in queues]


def _target(queue: QueueOffsets, force: bool) -> int:
    at_time = max(queue.at_time, 0)
    return at_time if force or at_time < queue.committed else queue.committed
