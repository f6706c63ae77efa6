"""The lag of a group, by queue.

Owns what lag means: messages between the offset of the group and the end of the queue, and how long the first of them
has waited. What nobody can say is None, never 0: a broker that is away, a group without an offset, a message that is
gone. Offsets count messages, times are seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

from eruca.client.bounds import bounded
from eruca.client.checks import check_kind
from eruca.client.config import ClientSettings, check_group
from eruca.client.errors import ClientError
from eruca.client.network import brokers
from eruca.client.network.session import Session
from eruca.client.polling.pull_consumer import PullConsumer, PullStatus
from eruca.protocol import api
from eruca.protocol.bodies import ConsumeStats
from eruca.protocol.errors import ProtocolError
from eruca.protocol.headers.topics import ConsumeStatsOf
from eruca.protocol.names import is_dead_letter_topic
from eruca.protocol.queues import MessageQueue
from eruca.remoting.shared_tasks import SharedTasks

AT_ONCE = 32
"""Queues that are asked about at once."""


class QueueLag(NamedTuple):
    """The lag in one queue.

    ``broker_offset`` is the offset of the next message to be stored, ``consumer_offset`` that of the next one to be
    consumed; ``difference`` is negative where a group was set beyond the end. ``behind`` is how long the first message
    that waits has been there. ``error`` says why something is None.
    """

    queue: MessageQueue
    broker_offset: int | None
    consumer_offset: int | None
    behind: float | None
    error: str | None = None

    @property
    def difference(self) -> int | None:
        """Messages that wait; None when it is unknown."""
        if self.broker_offset is None or self.consumer_offset is None:
            return None
        return self.broker_offset - self.consumer_offset


def total_lag(rows: Iterable[QueueLag]) -> int | None:
    """Messages that wait in all these queues; None when one of them is unknown, or there is no queue."""
    differences = [row.difference for row in rows]
    known = [each for each in differences if each is not None]
    return sum(known) if known and len(known) == len(differences) else None


@bounded
async def lag(
    group: str,
    topics: str | Sequence[str] | None = None,
    *,
    nameserver: str | Sequence[str] | None = None,
    settings: ClientSettings | None = None,
    timeout: float | None = None,
) -> list[QueueLag]:
    """The lag of a consumer group in each queue of some topics.

    Args:
        topics: one or several; None takes those in which brokers know an offset of the group.
        nameserver: ``host:port`` addresses; default from the environment (see ClientSettings).
        settings: everything else that clients share.

    Asks about each queue at its broker and moves nothing. Raises UsageError, TopicNotFound and NameserverUnreachable.
    """
    check_group(group, "consumer")
    topics = [topics] if isinstance(topics, str) else topics
    check_kind("topics", topics, Iterable | None, "a topic, or a list of topics,")
    async with PullConsumer(nameserver=nameserver, settings=settings) as puller:
        if topics is None:
            topics = await _topics_of(puller, group)
        routes = await asyncio.gather(*(puller.fetch_queues(topic) for topic in topics))
        turns, offsets = asyncio.Semaphore(AT_ONCE), _Offsets(puller.session, group)

        async def one(queue: MessageQueue) -> QueueLag:
            async with turns:
                return await _lag_of(puller, group, queue, offsets)

        return await asyncio.gather(*(one(queue) for queues in routes for queue in sorted(queues)))


async def _topics_of(puller: PullConsumer, group: str) -> list[str]:
    """The topics in which a broker knows an offset of the group (208)."""
    session = puller.session
    cluster = await session.cluster()
    session.directory.learn(cluster)

    async def ask(broker: str) -> set[str]:
        address = await session.directory.reader(broker)
        answer = await session.call(address, api.GET_CONSUME_STATS, ConsumeStatsOf(consumer_group=group))
        return {queue.topic for queue in ConsumeStats.decode(answer.body).offset_table}

    found: set[str] = set()
    for result in await asyncio.gather(*(ask(name) for name in cluster.broker_addr_table), return_exceptions=True):
        if isinstance(result, BaseException):
            if not isinstance(result, ClientError | ProtocolError):
                raise result
        else:
            found |= result
    return sorted(session.names.from_broker(topic) for topic in found if not is_dead_letter_topic(topic))


class _Offsets:
    """Which offsets of a group the brokers really have: the answer for a single queue is 0 where it has none."""

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = session.names.to_broker(group)
        self._asking: SharedTasks[str, None] = SharedTasks()
        self._tables: dict[str, dict[str, dict[int, int]]] = {}

    async def has(self, queue: MessageQueue) -> bool:
        """Whether the group has one; each broker is asked once."""
        if queue.broker_name not in self._tables:
            await self._asking.result(queue.broker_name, partial(self._ask, queue))
        name = f"{self._session.names.to_broker(queue.topic)}@{self._group}"
        return queue.queue_id in self._tables[queue.broker_name].get(name, {})

    async def _ask(self, queue: MessageQueue) -> None:
        self._tables[queue.broker_name] = await brokers.all_group_offsets(self._session, queue)


async def _lag_of(puller: PullConsumer, group: str, queue: MessageQueue, offsets: _Offsets) -> QueueLag:
    end: int | None = None
    try:
        end = await puller.max_offset(queue)
        at = await puller.query_offset(queue, group=group)
        if at is None or (at == 0 and not await offsets.has(queue)):
            return QueueLag(queue, end, None, None, f"the group {group} has no offset of this queue")
        return QueueLag(queue, end, at, *(await _behind(puller, queue, at, end)))
    except ClientError as error:
        return QueueLag(queue, end, None, None, str(error))


async def _behind(puller: PullConsumer, queue: MessageQueue, at: int, end: int) -> tuple[float | None, str | None]:
    """How long the message at this offset, or the first one after it that is there, has waited; why nobody knows."""
    if at == end:
        return 0.0, None
    if at > end:
        return None, f"the offset {at} is beyond the end of the queue, {end}"
    try:
        result = await puller.pull(queue, at, 1)
        if result.status is PullStatus.OFFSET_MOVED:
            result = await puller.pull(queue, result.next_offset, 1)
        if result.status is PullStatus.FOUND:
            return max(time.time() - result.records[0].store_timestamp / 1000, 0.0), None
    except ClientError as error:
        return None, str(error)
    return None, "the message cannot be read"
