"""Selectors: which queue a message is sent to, in turn or by a rule of the user.

Pure. Owns the round robin that passes over the broker that failed, and RocketMQ's selectors, which choose the same
queue for the same argument as Java's do. Facts: TopicPublishInfo and SelectMessageQueueByHash in 4.9.7.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence

from eruca.client.assign import room_of
from eruca.client.errors import UsageError
from eruca.client.message import Message
from eruca.protocol.message import java_hash
from eruca.protocol.queues import MessageQueue

Selector = Callable[[Sequence[MessageQueue], Message, object], MessageQueue]
"""Returns the queue, given the queues of a topic, the message and the argument of the send."""


class RoundRobin:
    """One queue after the other, from a random start."""

    def __init__(self) -> None:
        self.last = random.randrange(1 << 30)
        """The number of the last turn."""

    def step(self) -> int:
        """The next number."""
        self.last += 1
        return self.last

    def choose(self, queues: Sequence[MessageQueue], avoid: Collection[str] = ()) -> MessageQueue:
        """The next queue; if there is a choice, of none of the brokers ``avoid``."""
        self.last = start = self.last + 1
        count = len(queues)
        chosen = queues[start % count]
        if chosen.broker_name not in avoid:
            return chosen
        for step in range(1, count):
            other = queues[(start + step) % count]
            if other.broker_name not in avoid:
                self.last = start + step
                return other
        return chosen


def by_hash(queues: Sequence[MessageQueue], message: Message, arg: object) -> MessageQueue:
    """By the Java hash of ``arg``: equal arguments, such as order ids, get the same queue. None raises UsageError."""
    if arg is None:
        raise UsageError("by_hash needs an argument: give arg=key, or ordered_by=key in place of both.")
    return queues[abs(_hash(arg)) % len(queues)]


def at_random(queues: Sequence[MessageQueue], message: Message, arg: object) -> MessageQueue:
    """Any queue."""
    return random.choice(queues)


def by_machine_room(rooms: Collection[str]) -> Selector:
    """Queues of brokers in these rooms, in turn; a broker named ``north@a`` is in the room ``north``.

    Raises UsageError at the send when the topic has no queue there. Java's SelectMessageQueueByMachineRoom takes the
    rooms and never chose by them.
    """
    wanted, turn = frozenset(rooms), RoundRobin()

    def choose(queues: Sequence[MessageQueue], message: Message, arg: object) -> MessageQueue:
        inside = [queue for queue in queues if room_of(queue.broker_name) in wanted]
        if not inside:
            raise UsageError(
                f"The topic {message.topic} has no queue in the machine rooms {', '.join(sorted(wanted))}: "
                "brokers there are named like north@a."
            )
        return turn.choose(inside)

    return choose


def _hash(arg: object) -> int:
    """``hashCode()`` of the Java object that ``arg`` would be: String, Integer or, beyond 32 bits, Long."""
    if isinstance(arg, int) and not isinstance(arg, bool):
        if -(2**31) <= arg < 2**31:
            return arg
        mixed = (arg ^ (arg >> 32)) & 0xFFFFFFFF
        return mixed - 2**32 if mixed & 0x80000000 else mixed
    return java_hash(str(arg))
