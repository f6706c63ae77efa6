"""Subscribers without handlers: messages one by one, and in lists."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from faststream.exceptions import FeatureNotSupportedException

from eruca.faststream import RocketMQBroker


async def test_get_one_waits_for_a_message(broker: RocketMQBroker, topic: str) -> None:
    subscriber = broker.subscriber(topic, start_from="first")
    async with broker:
        await broker.start()
        assert await subscriber.get_one(timeout=0.05) is None
        await broker.publish({"n": 1}, topic, correlation_id="c")
        message = await subscriber.get_one(timeout=20)
    assert message is not None
    assert (await message.decode(), message.correlation_id) == ({"n": 1}, "c")


async def test_messages_are_iterated_and_the_next_program_goes_on(address: str, topic: str) -> None:
    texts: list[object] = []
    for _ in range(2):
        broker = RocketMQBroker(address, logger=None)
        subscriber = broker.subscriber(topic)
        async with broker:
            await broker.start()
            if not texts:
                await broker.publish_batch("a", "b", "c", "d", topic=topic)
            async for message in subscriber:
                texts.append(await message.decode())
                if len(texts) % 2 == 0:
                    await message.ack()
                    break
    assert texts == ["a", "b", "c", "d"]


async def test_lists_are_pulled_too(broker: RocketMQBroker, topics: Callable[[int], str]) -> None:
    topic = topics(1)
    subscriber = broker.subscriber(topic, batch=True, pull_batch_size=3)
    async with broker:
        await broker.start()
        await broker.publish_batch(*range(6), topic=topic)
        lists = [await subscriber.get_one(timeout=20) for _ in range(2)]
        async for more in broker.subscriber(topic, group="again", batch=True, pull_batch_size=3):
            assert await more.decode() == [0, 1, 2]
            break
    assert [await each.decode() for each in lists if each is not None] == [[0, 1, 2], [3, 4, 5]]


async def test_a_pulled_message_is_not_given_back(broker: RocketMQBroker, topic: str) -> None:
    subscriber = broker.subscriber(topic)
    async with broker:
        await broker.publish("x", topic)
        message = await subscriber.get_one(timeout=20)
        assert message is not None
        for end in (message.nack, message.reject):
            with pytest.raises(FeatureNotSupportedException, match="give the subscriber a handler"):
                await end()
