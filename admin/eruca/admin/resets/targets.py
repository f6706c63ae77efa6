"""Where a reset leads: the offset that one asks for in each queue.

Owns the rule of each target, and the requests that it needs (29; a pull for the time of a message). Changes nothing.
A target that a broker of 4.9 can set by itself for all its queues has a ``timestamp`` (222).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from eruca.admin.client import Admin
from eruca.admin.errors import AdminError, BadValue
from eruca.admin.lookups import END, offset_at
from eruca.admin.messages import first_since
from eruca.admin.resets.survey import QueueSeen, Survey
from eruca.protocol.queues import MessageQueue

BEGINNING = 0
"""The timestamp before every message: a broker answers with the first offset."""


class Target(Protocol):
    """What a reset leads to."""

    @property
    def timestamp(self) -> int | None:
        """The time in ms for which a broker itself finds these offsets; None if there is none."""

    @property
    def is_near(self) -> bool:
        """Whether a broker finds for ``timestamp`` only something near to these offsets."""

    @property
    def text(self) -> str:
        """The target in words."""

    async def offset(self, admin: Admin, address: str, seen: QueueSeen) -> int | None:
        """The offset in one queue; None if the reset leaves this queue alone. Raises AdminError."""


@dataclass(frozen=True, slots=True)
class Nearest:
    """The message that is nearest to a time, as every RocketMQ broker finds it; END is the end of each queue."""

    timestamp: int
    text: str
    is_near: bool = False

    async def offset(self, admin: Admin, address: str, seen: QueueSeen) -> int:
        """Asks the broker (29); the end of an empty queue is its first offset too."""
        if self.timestamp == END:
            return seen.end
        return max(0, await offset_at(admin, address, seen.queue, self.timestamp))


@dataclass(frozen=True, slots=True)
class First:
    """The first message of each queue."""

    timestamp: int = BEGINNING
    is_near: bool = False
    text: str = "the first message"

    async def offset(self, admin: Admin, address: str, seen: QueueSeen) -> int:
        """The first offset."""
        return seen.first


@dataclass(frozen=True, slots=True)
class Since:
    """The first message at or after a time in ms; the end of a queue that has none."""

    time: int
    text: str
    is_near: bool = True

    @property
    def timestamp(self) -> int:
        """A broker of 4.9 finds the nearest message for it, which may be an older one."""
        return self.time

    async def offset(self, admin: Admin, address: str, seen: QueueSeen) -> int:
        """Asks the broker (29), and for the times of messages (11)."""
        return await first_since(admin, address, seen.queue, (seen.first, seen.end), self.time)


@dataclass(frozen=True, slots=True)
class Shift:
    """N messages forth or back from where the group stands, within the queue."""

    by: int
    timestamp: None = None
    is_near: bool = False

    @property
    def text(self) -> str:
        """``+10`` or ``-10``."""
        return f"{self.by:+d} message{'' if self.by in (1, -1) else 's'}"

    async def offset(self, admin: Admin, address: str, seen: QueueSeen) -> int:
        """Raises AdminError if the group has no offset there."""
        if seen.stored is None:
            raise AdminError(
                f"the group has no offset in {shown(seen.queue)}, so nothing can be counted from it: give first, last, "
                "a time or an offset"
            )
        return min(max(seen.stored + self.by, seen.first), seen.end)


@dataclass(frozen=True, slots=True)
class Exact:
    """One offset, which must lie within each queue."""

    at: int
    timestamp: None = None
    is_near: bool = False

    @property
    def text(self) -> str:
        """The offset."""
        return f"offset {self.at}"

    async def offset(self, admin: Admin, address: str, seen: QueueSeen) -> int:
        """Raises BadValue if the queue has no such offset."""
        if not seen.first <= self.at <= seen.end:
            raise BadValue(f"{shown(seen.queue)} has the offsets {seen.first} to {seen.end}, not {self.at}")
        return self.at


@dataclass(frozen=True, slots=True)
class Table:
    """An offset for each queue, from a file or from another group. Queues that it lacks stay where they are.

    An offset outside of a queue, whose messages are gone or not there yet, counts as its nearest end.
    """

    offsets: Mapping[MessageQueue, int]
    text: str
    timestamp: None = None
    is_near: bool = False

    def lacking(self, survey: Survey) -> list[str]:
        """The queues of the topic for which there is an offset, but that no broker has of those that answered."""
        known = {seen.queue for seen in survey.queues}
        return [
            shown(queue)
            for queue in sorted(self.offsets)
            if queue.topic == survey.topic and queue not in known and queue.broker_name not in survey.missing
        ]

    async def offset(self, admin: Admin, address: str, seen: QueueSeen) -> int | None:
        """Asks nobody."""
        wanted = self.offsets.get(seen.queue)
        return None if wanted is None else min(max(wanted, seen.first), seen.end)


@dataclass(frozen=True, slots=True)
class Only:
    """Another target, for some queues alone."""

    target: Target
    queues: frozenset[tuple[str, int]]
    """Broker and queue id of each."""
    timestamp: None = None
    is_near: bool = False

    @property
    def text(self) -> str:
        """The other one's."""
        return self.target.text

    async def offset(self, admin: Admin, address: str, seen: QueueSeen) -> int | None:
        """The other one's, for these queues."""
        if (seen.queue.broker_name, seen.queue.queue_id) not in self.queues:
            return None
        return await self.target.offset(admin, address, seen)


def shown(queue: MessageQueue) -> str:
    """``broker-a:3``."""
    return f"{queue.broker_name}:{queue.queue_id}"
