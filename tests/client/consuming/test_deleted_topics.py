"""A topic that is deleted and made again while members consume it: they begin the new one at its beginning."""

from __future__ import annotations

from collections import Counter

from eruca.client import LitePullConsumer, Message, PushConsumer
from eruca.protocol import api
from eruca.protocol.headers.topics import OfTopic
from tests.client.conftest import Lab, Seen, eventually


async def delete(lab: Lab, topic: str) -> None:
    await lab.producer.session.call(lab.cluster.broker.address, api.DELETE_TOPIC_IN_BROKER, OfTopic(topic=topic))


async def test_members_miss_nothing_of_a_topic_that_is_made_again(lab: Lab, seen: Seen) -> None:
    await lab.producer.create_topic("T", 4)
    queues = await lab.producer.fetch_queues("T")
    holds = lab.cluster.broker.broker.holds
    async with (
        PushConsumer("push", seen.coroutine, nameserver=lab.address, start_from="first").subscribe("T"),
        LitePullConsumer("lite", nameserver=lab.address, start_from="first").subscribe("T") as lite,
    ):
        for queue in queues * 3:
            await lab.producer.send(Message("T", b"old"), queue=queue)
        await seen.reaches(12)
        polled = 0
        while polled < 12:
            polled += len(await lite.poll(10))
        await eventually(lambda: len(holds) == 9)  # one of them waits for retries

        await delete(lab, "T")
        await lab.producer.create_topic("T", 4)
        for queue in queues:
            await lab.producer.send(Message("T", b"new"), queue=queue)

        await seen.reaches(16)
        again: list[bytes] = []
        while len(again) < 4:
            again += [message.body for message in await lite.poll(10)]
    assert Counter(message.body for message in seen.messages) == {b"old": 12, b"new": 4}
    assert again == [b"new"] * 4
