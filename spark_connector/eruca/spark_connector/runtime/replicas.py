"""Calls that any replica of a broker may answer: the master first, else a slave.

Owns which replica is called. A slave may be behind its master, so ``ask`` also returns whether a slave answered. The
offsets of groups are not read this way: only the master has them.
"""

from __future__ import annotations

from typing import TypeVar

from eruca.client import MessageQueue, PullConsumer
from eruca.client.errors import BrokerUnreachable, CallTimeout
from eruca.protocol import api
from eruca.protocol.header import Header
from eruca.remoting import Answer

A = TypeVar("A", bound=Header)
R = TypeVar("R", bound=Header)

MASTER = 0
SLAVE = 1
UNREACHABLE = (BrokerUnreachable, CallTimeout)
"""Errors after which another replica is tried."""


class ReplicaChoice:
    """Which replica of each broker a task reads from: the master, until an answer suggests another one.

    A replica that answered when another one did not stays chosen for the rest of the task.
    """

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._turned: set[str] = set()

    def of(self, broker: str) -> int:
        """The id of the replica to ask."""
        return self._ids.get(broker, MASTER)

    def suggest(self, broker: str, broker_id: int) -> None:
        """An answer names the replica to ask next (suggestWhichBrokerId)."""
        if broker not in self._turned:
            self._ids[broker] = broker_id

    def turn(self, broker: str, broker_id: int) -> None:
        """Choose the replica that answered when another one did not."""
        self._ids[broker] = broker_id
        self._turned.add(broker)

    def forget(self, broker: str) -> None:
        """Ask the master again."""
        self._ids.pop(broker, None)


async def ask(
    consumer: PullConsumer,
    queue: MessageQueue,
    endpoint: api.Endpoint[A, R],
    header: A | None = None,
    body: bytes = b"",
) -> tuple[Answer[R], bool]:
    """The answer, and whether it is a slave's. Raises ClientError."""
    session = consumer.session
    address = await session.directory.reader(queue.broker_name, queue.topic, MASTER)
    try:
        answer = await session.call(address, endpoint, header, body)
    except UNREACHABLE:
        if not await has_other_replica(consumer, queue):
            raise
        address = await session.directory.reader(queue.broker_name, queue.topic, SLAVE)
        answer = await session.call(address, endpoint, header, body)
    return answer, address != session.directory.masters.get(queue.broker_name)


async def has_other_replica(consumer: PullConsumer, queue: MessageQueue) -> bool:
    """Whether there is a slave to turn to, or a master to turn to from it."""
    reader = consumer.session.directory.reader
    master = await reader(queue.broker_name, queue.topic, MASTER)
    return await reader(queue.broker_name, queue.topic, SLAVE) != master
