"""A lite pull consumer on the lab, and what it polled."""

from __future__ import annotations

import asyncio
from typing import Any

from eruca.client import LitePullConsumer, Message, MessageQueue, ReceivedMessage
from eruca.client.polling.lite_pull_consumer import membership_of
from tests.client.conftest import Lab

QUEUES = [MessageQueue("T", "broker-a", number) for number in range(4)]
ONE = QUEUES[0]


def lite(lab: Lab, group: str = "g", **options: Any) -> LitePullConsumer:
    return LitePullConsumer(group, nameserver=lab.address, **{"start_from": "first", **options})


async def fill(lab: Lab, count: int, queue: MessageQueue = ONE, start: int = 0, **fields: Any) -> None:
    for number in range(start, start + count):
        await lab.producer.send(Message("T", b"m%d" % number, **fields), queue=queue)


async def poll(consumer: LitePullConsumer, count: int) -> list[ReceivedMessage]:
    """So many messages, by as many polls as it takes."""
    got: list[ReceivedMessage] = []
    async with asyncio.timeout(20):
        while len(got) < count:
            got += await consumer.poll(0.5)
    return got


def bodies(messages: list[ReceivedMessage]) -> list[int]:
    return [int(message.body[1:]) for message in messages]


def waiting(consumer: LitePullConsumer) -> int:
    """How many messages were pulled and wait to be polled."""
    rebalance = membership_of(consumer).rebalance
    return 0 if rebalance is None else sum(len(each.process_queue) for each in rebalance.readers.values())
