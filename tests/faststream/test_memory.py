"""TestRocketMQBroker: handlers without a cluster, and over a real one."""

from __future__ import annotations

import pytest
from faststream import FastStream, TestApp
from faststream.exceptions import FeatureNotSupportedException, SubscriberNotFound

from eruca.client.errors import BadMessage
from eruca.faststream import RocketMQBroker, RocketMQPublishMessage, TestRocketMQBroker
from tests.faststream.conftest import Seen


async def test_handlers_and_publishers_have_mocks() -> None:
    broker = RocketMQBroker()
    bills = broker.publisher("bills")

    @broker.subscriber("orders", expression="new || paid")
    @bills
    async def cook(number: int) -> dict[str, int]:
        return {"bill": number}

    async with TestRocketMQBroker(broker) as test:
        await test.publish(7, "orders", tags="new")
        await test.publish(8, "orders", tags="old")
        await test.publish(9, "Others")
        cook.mock.assert_called_once_with(7)
        bills.mock.assert_called_once_with({"bill": 7})


async def test_what_a_handler_raises_is_raised_where_it_was_published() -> None:
    broker = RocketMQBroker()

    @broker.subscriber("orders")
    async def cook(number: int) -> None:
        raise ValueError("no salad")

    async with TestRocketMQBroker(broker) as test:
        with pytest.raises(ValueError, match="no salad"):
            await test.publish(7, "orders")


async def test_lists_and_groups(seen: Seen) -> None:
    one, two = RocketMQBroker(group="one"), RocketMQBroker(group="two")
    for broker in (one, two):

        @broker.subscriber("orders", group="shared")
        async def take(value: int) -> None:
            seen(("shared", value))

        @broker.subscriber("orders", batch=True)
        async def take_all(values: list[int]) -> None:
            seen(values)

    async with TestRocketMQBroker(one, two) as (first, _):
        sent = await first.publish_batch(1, RocketMQPublishMessage(2, tags="t"), topic="orders")
    assert [each.queue.topic for each in sent] == ["orders", "orders"]
    assert sorted(seen.values, key=str) == [("shared", 1), ("shared", 2), [1, 2], [1, 2]]


async def test_questions_are_answered() -> None:
    broker = RocketMQBroker()

    @broker.subscriber("sums")
    async def add(a: int, b: int) -> int:
        return a + b

    async with TestRocketMQBroker(broker) as test:
        answer = await test.request({"a": 1, "b": 2}, "sums")
        assert await answer.decode() == 3
        with pytest.raises(SubscriberNotFound):
            await test.request("x", "Nowhere")


async def test_a_message_that_rocketmq_refuses_is_refused() -> None:
    async with TestRocketMQBroker(RocketMQBroker()) as test:
        with pytest.raises(BadMessage, match="is used by system"):
            await test.publish("x", "orders", headers={"KEYS": "x"})


async def test_there_is_nothing_to_pull() -> None:
    broker = RocketMQBroker()
    subscriber = broker.subscriber("orders")
    async with TestRocketMQBroker(broker):
        with pytest.raises(FeatureNotSupportedException, match="with_real=True"):
            await subscriber.get_one(timeout=0.01)


async def test_the_same_test_runs_over_a_real_broker(address: str, topic: str) -> None:
    broker = RocketMQBroker(address)
    bills = broker.publisher(f"{topic}-bills")

    @broker.subscriber(topic)
    async def cook(number: int) -> None:
        await bills.publish(number + 1)

    async with TestRocketMQBroker(broker, with_real=True) as test:
        await test.publish(7, topic)
        await cook.wait_call(timeout=20)
        cook.mock.assert_called_once_with(7)


async def test_an_application_is_tested_whole(seen: Seen) -> None:
    broker = RocketMQBroker()
    app = FastStream(broker)

    @app.after_startup
    async def begin() -> None:
        await broker.publish(1, "orders")

    @broker.subscriber("orders")
    async def cook(number: int) -> None:
        seen(number)

    async with TestRocketMQBroker(broker), TestApp(app):
        assert seen.values == [1]
