"""The offsets of the group in the option commitGroup, which tools show.

Owns how a query reports them, and how the group becomes visible to tools that list the groups of a topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from eruca.client import MessageQueue, PullConsumer
from eruca.client.errors import TopicNotFound
from eruca.protocol import api, names
from eruca.protocol.bodies import PERM_READ, PERM_WRITE
from eruca.protocol.headers.topics import CreateTopic
from eruca.spark_connector.offsets.positions import Positions


async def announce(consumer: PullConsumer, group: str, queues: Iterable[MessageQueue]) -> None:
    """Make a group without members visible to tools: they look at the brokers that have its retry topic.

    Raises ClientError.
    """
    topic = names.retry_topic(group)
    try:
        known = {each.broker_name for each in await consumer.fetch_queues(topic)}
    except TopicNotFound:
        known = set()
    ask = CreateTopic(topic=topic, read_queue_nums=1, write_queue_nums=1, perm=PERM_READ | PERM_WRITE)
    for queue in {each.broker_name: each for each in queues if each.broker_name not in known}.values():
        address = await consumer.session.master(queue.broker_name, queue.topic)
        await consumer.session.call(address, api.UPDATE_AND_CREATE_TOPIC, ask)


async def commit(consumer: PullConsumer, group: str, positions: Positions) -> None:
    """Commit these offsets of the group. Raises ClientError when one of the brokers fails."""
    await asyncio.gather(*(consumer.update_offset(queue, offset, group=group) for queue, offset in positions.items()))


async def fetch(consumer: PullConsumer, group: str, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int | None]:
    """The offset of the group in each queue; None where it has none. Raises ClientError."""
    chosen = list(queues)
    found = await asyncio.gather(*(consumer.query_offset(queue, group=group) for queue in chosen))
    return dict(zip(chosen, found, strict=True))
