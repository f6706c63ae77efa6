"""The offsets of the group in the option commitGroup, which tools show.

Owns how a query reports them, and how the group becomes visible to tools that list the groups of a topic.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial

from eruca.client import MessageQueue, PullConsumer
from eruca.client.errors import BrokerRefused, TopicNotFound
from eruca.protocol import api, names
from eruca.protocol.bodies import PERM_READ, PERM_WRITE, ConsumerOffsets
from eruca.protocol.headers.topics import CreateTopic
from eruca.spark_connector.offsets.positions import Positions
from eruca.spark_connector.runtime import replicas
from eruca.spark_connector.runtime.retry import ask_each

log = logging.getLogger("eruca.spark")


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


async def stored(consumer: PullConsumer, group: str, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int | None]:
    """The same for a query that begins there, with retries.

    Of a group without an offset a broker says 0 as long as the queue is young (ConsumerManageProcessor in 4.9.7). So
    what a 0 means is looked up in its table of all offsets (43).
    """
    found = await ask_each(consumer, queues, lambda queue: consumer.query_offset(queue, group=group))
    to_broker = consumer.session.names.to_broker
    for broker, one in {queue.broker_name: queue for queue, offset in found.items() if offset == 0}.items():
        try:
            ask = partial(replicas.ask, consumer, endpoint=api.GET_ALL_CONSUMER_OFFSET)
            answer, _ = (await ask_each(consumer, [one], ask))[one]
        except BrokerRefused as error:
            log.warning("%s does not say whether group %s has an offset, so that 0 counts: %s", broker, group, error)
            continue
        table = ConsumerOffsets.decode(answer.body).offset_table
        for queue in found:
            there = table.get(f"{to_broker(queue.topic)}@{to_broker(group)}", {})
            if queue.broker_name == broker and found[queue] == 0 and queue.queue_id not in there:
                found[queue] = None
    return found
