"""Dead letters made by a consumer that fails on everything and gives up at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from eruca.client import Message, Producer, PullConsumer, PushConsumer, ReceivedMessage
from eruca.client.errors import TopicNotFound
from eruca.protocol import names
from tests.support.spark import Topic


async def give_up(topic: Topic, group: str, messages: Sequence[Message]) -> None:
    """Send messages to a topic and wait until all are dead letters of the group."""

    async def fail(message: ReceivedMessage) -> None:
        raise ValueError("this consumer takes nothing")

    consumer = PushConsumer(group, fail, nameserver=topic.name_server, start_from="first", max_reconsume_times=0)
    consumer.subscribe(topic.name)
    async with (
        Producer("letters", nameserver=topic.name_server) as producer,
        PullConsumer(nameserver=topic.name_server) as puller,
        consumer,
    ):
        for message in messages:
            await producer.send(message)
        for _ in range(1200):
            if await _dead(puller, group) >= len(messages):
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"{group} has {await _dead(puller, group)} dead letters, {len(messages)} were expected")


async def _dead(puller: PullConsumer, group: str) -> int:
    try:
        queues = await puller.fetch_queues(names.dead_letter_topic(group))
    except TopicNotFound:
        return 0
    return sum([await puller.max_offset(queue) for queue in queues])
