"""Questions about a queue that any replica of its broker may answer: the master first, else a slave.

Owns which replica is asked. A slave may be behind its master, so every answer says whose it is. A group's offsets are
not among these questions: they are the master's to keep.
"""

from __future__ import annotations

from typing import TypeVar

from eruca.client import MessageQueue, PullConsumer, PullResult
from eruca.client.errors import BrokerUnreachable, CallTimeout
from eruca.protocol import api
from eruca.protocol.header import Header
from eruca.protocol.headers import offsets
from eruca.remoting import Answer

A = TypeVar("A", bound=Header)
R = TypeVar("R", bound=Header)

MASTER = 0
SLAVE = 1
AWAY = (BrokerUnreachable, CallTimeout)
"""What makes it worth while to ask another replica."""


class Chosen:
    """Which replica of each broker a task reads from: the master, until an answer suggests another one.

    A replica that was turned to since another one did not answer is kept for the rest of the task.
    """

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._turned: set[str] = set()

    def of(self, broker: str) -> int:
        """The id of the replica to ask."""
        return self._ids.get(broker, MASTER)

    def suggest(self, broker: str, broker_id: int) -> None:
        """An answer says whom to ask next."""
        if broker not in self._turned:
            self._ids[broker] = broker_id

    def turn(self, broker: str, broker_id: int) -> None:
        """This one answered when another one did not."""
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
    except AWAY:
        if not await differ(consumer, queue):
            raise
        address = await session.directory.reader(queue.broker_name, queue.topic, SLAVE)
        answer = await session.call(address, endpoint, header, body)
    return answer, address != session.directory.master_now(queue.broker_name)


async def differ(consumer: PullConsumer, queue: MessageQueue) -> bool:
    """Whether there is a slave to turn to, or a master to turn to from it."""
    reader = consumer.session.directory.reader
    master = await reader(queue.broker_name, queue.topic, MASTER)
    return await reader(queue.broker_name, queue.topic, SLAVE) != master


async def end(consumer: PullConsumer, queue: MessageQueue) -> tuple[int, bool]:
    """The offset that the next message will get, as far as who answers knows; and whether that is a slave."""
    answer, by_slave = await ask(consumer, queue, api.GET_MAX_OFFSET, _queue_of(queue))
    return answer.header.offset, by_slave


async def max_offset(consumer: PullConsumer, queue: MessageQueue) -> int:
    """``end`` alone."""
    return (await end(consumer, queue))[0]


async def min_offset(consumer: PullConsumer, queue: MessageQueue) -> int:
    """The offset of the oldest message that is there."""
    answer, _ = await ask(consumer, queue, api.GET_MIN_OFFSET, _queue_of(queue))
    return answer.header.offset


async def offset_by_time(consumer: PullConsumer, queue: MessageQueue, timestamp: int) -> int:
    """The offset at a time (ms since 1970), by the broker's rule: of two neighbours, the nearer."""
    header = offsets.SearchOffset(topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp)
    answer, _ = await ask(consumer, queue, api.SEARCH_OFFSET_BY_TIMESTAMP, header)
    return answer.header.offset


async def pull_one(consumer: PullConsumer, queue: MessageQueue, offset: int) -> PullResult:
    """One message."""
    try:
        return await consumer.pull(queue, offset, 1, broker_id=MASTER)
    except AWAY:
        if not await differ(consumer, queue):
            raise
        return await consumer.pull(queue, offset, 1, broker_id=SLAVE)


def _queue_of(queue: MessageQueue) -> offsets.QueueOf:
    return offsets.QueueOf(topic=queue.topic, queue_id=queue.queue_id)
