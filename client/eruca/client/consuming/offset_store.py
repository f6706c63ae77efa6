"""OffsetStore: where the offsets of a group are stored: at the brokers or, of a broadcasting member, in a local file.

Owns what both stores do, and the one at the brokers; ``local_offsets`` has the file. An offset is that of the next
message. Facts: OffsetStore and RemoteBrokerOffsetStore in 4.9.7.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from eruca.client.network import brokers
from eruca.client.network.session import Session
from eruca.protocol import api, names
from eruca.protocol.headers.offsets import UpdateConsumerOffset
from eruca.protocol.queues import MessageQueue


async def initial_offset(session: Session, group: str, queue: MessageQueue, start: str | int) -> int:
    """Where a group begins in a queue in which it has no offset (computePullFromWhere in 4.9.7). Raises ClientError.

    A time means the first message since then; Java's client begins at its neighbour, which may be older.
    """
    if start == "first" or (names.is_retry_topic(queue.topic) and start in ("last", "end")):
        return await brokers.min_offset(session, queue)
    if isinstance(start, int) and not names.is_retry_topic(queue.topic):
        return await brokers.offset_since(session, group, queue, start)
    return await brokers.max_offset(session, queue)


Place = tuple[str, str]
"""A broker and a topic."""


def place_of(queue: MessageQueue) -> Place:
    """Where a group has one table for this queue and others."""
    return queue.broker_name, queue.topic


class OffsetStore(Protocol):
    """Stores the offsets of a group."""

    async def load(self, queue: MessageQueue) -> int | None:
        """The stored offset; None if there is none. Raises ClientError if it cannot be determined."""

    async def has(self, queue: MessageQueue) -> bool:
        """Whether an offset is stored if ``load`` returns 0, as brokers do for young queues. Raises ClientError."""

    async def save(self, queue: MessageQueue, offset: int) -> None:
        """Store an offset; returns when it is durable. Raises ClientError."""

    def report(self, queue: MessageQueue, offset: int) -> bool:
        """Store an offset without waiting; False if that is impossible now."""

    def flush(self) -> None:
        """Store all reported offsets in the background; failures are logged, and the next call tries again."""

    async def settle(self) -> None:
        """Wait for what is being stored."""

    async def close(self) -> None:
        """Wait for what is being stored, and let another member have the place. The store is not used after that."""


class RemoteBrokerOffsetStore:
    """At the brokers: the members of a group share the offsets.

    The first offset of a topic at a broker goes alone. Apache's broker makes the group's table of the topic for it, and
    of several that come at once it loses one (ConsumerOffsetManager.commitOffset in 4.9.7).
    """

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group
        self._has_table: set[Place] = set()
        self._first: dict[Place, asyncio.Event] = {}
        """Set when the first offset is stored, or could not be."""
        self._reported: set[Place] = set()
        """Where the first offset was reported since the last ``flush``."""

    async def load(self, queue: MessageQueue) -> int | None:
        """The stored offset."""
        offset = await brokers.group_offset(self._session, self._group, queue)
        if offset:  # 0 may mean that there is none
            self._has_table.add(place_of(queue))
        return offset

    async def has(self, queue: MessageQueue) -> bool:
        """Whether the broker has an offset."""
        return await brokers.has_group_offset(self._session, self._group, queue)

    async def save(self, queue: MessageQueue, offset: int) -> None:
        """Store an offset; returns when the broker has confirmed."""
        place = place_of(queue)
        if place in self._first:
            await self._first[place].wait()
        elif place not in self._has_table:
            self._first[place] = asyncio.Event()
            try:
                await brokers.store_group_offset(self._session, self._group, queue, offset)
                self._has_table.add(place)
            finally:
                self._first.pop(place).set()
            return
        await brokers.store_group_offset(self._session, self._group, queue, offset)

    def report(self, queue: MessageQueue, offset: int) -> bool:
        """Send an offset one way; beside the first of a topic none, until ``flush``."""
        place = place_of(queue)
        if place not in self._has_table and (place in self._first or place in self._reported):
            return False
        address = self._session.directory.masters.get(queue.broker_name)
        connection = None if address is None else self._session.ready(address)
        if connection is None:
            return False
        ask = UpdateConsumerOffset(
            consumer_group=self._group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
        )
        connection.oneway(api.UPDATE_CONSUMER_OFFSET, ask)
        if place not in self._has_table:
            self._reported.add(place)
        return True

    def flush(self) -> None:
        """Reported offsets were sent; when the next ones come, those are stored."""
        self._has_table |= self._reported
        self._reported.clear()

    async def settle(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """Nothing to do."""
