"""Handlers over a real broker: what they get, and how many of them at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from faststream import Context, Depends
from faststream.exceptions import NackMessage, SetupError
from pydantic import BaseModel

from eruca.client import Message, Producer
from eruca.client.serializers import MSGPACK, TEXT
from eruca.faststream import RocketMQBroker, RocketMQMessage, RocketMQRouter
from eruca.faststream.annotations import RocketMQBatchMessage
from tests.faststream.conftest import Seen


class Order(BaseModel):
    number: int
    dish: str


async def test_a_handler_gets_a_value_of_its_type(broker: RocketMQBroker, topic: str, seen: Seen) -> None:
    @broker.subscriber(topic)
    async def cook(order: Order, tip: Annotated[str, Depends(lambda: "a tip")]) -> None:
        seen((order, tip))

    async with broker:
        await broker.start()
        await broker.publish(Order(number=7, dish="salad"), topic)
        assert await seen.reaches(1) == [(Order(number=7, dish="salad"), "a tip")]


@pytest.mark.parametrize("value", [{"n": 1}, [1, 2], "a text", "Grüße", b"\x00\xff", 7, None, "", b""])
async def test_values_arrive_as_they_were_sent(broker: RocketMQBroker, topic: str, seen: Seen, value: Any) -> None:
    @broker.subscriber(topic)
    async def take(value: Any) -> None:
        seen(value)

    async with broker:
        await broker.start()
        await broker.publish(value, topic)
        assert await seen.reaches(1) == [b"" if value is None else value]


async def test_bodies_of_other_clients_are_read_by_their_content_type(
    broker: RocketMQBroker, address: str, topic: str, seen: Seen
) -> None:
    @broker.subscriber(topic)
    async def take(value: Any) -> None:
        seen(value)

    async with broker, Producer("others", nameserver=address) as producer:
        await broker.start()
        await producer.send(Message.of(topic, {"n": 1}, MSGPACK))
        await producer.send(Message.of(topic, "plain", TEXT))
        await producer.send(Message(topic, b'{"guessed": true}'))
        await producer.send(Message(topic, b"no JSON"))
        assert await seen.reaches(4) == [{"n": 1}, "plain", {"guessed": True}, b"no JSON"]


async def test_a_message_has_its_headers_and_ids(broker: RocketMQBroker, topic: str, seen: Seen) -> None:
    @broker.subscriber(topic)
    async def take(message: RocketMQMessage, trace: str = Context("message.headers.trace")) -> None:
        seen((message, trace))

    async with broker:
        await broker.start()
        sent = await broker.publish(
            "x", topic, tags="new", keys=["k1", "k2"], headers={"trace": "t"}, correlation_id="c"
        )
        [(message, trace)] = await seen.reaches(1)
    assert sent is not None
    assert (message.message_id, message.correlation_id, trace) == (sent.message_id, "c", "t")
    assert message.headers == {"trace": "t", "correlation_id": "c", "contentType": "text/plain"}
    assert (message.raw_message.tags, message.raw_message.keys) == ("new", ["k1", "k2"])


async def test_tags_and_conditions_choose_messages(broker: RocketMQBroker, topic: str, seen: Seen) -> None:
    @broker.subscriber(topic, group="of-tags", expression="new || paid")
    async def of_tags(text: str) -> None:
        seen(f"tag {text}")

    @broker.subscriber(topic, group="of-prices", expression="price > 10", expression_type="SQL92")
    async def of_prices(text: str) -> None:
        seen(f"price {text}")

    async with broker:
        await broker.start()
        await broker.publish("a", topic, tags="new", headers={"price": "5"})
        await broker.publish("b", topic, tags="old", headers={"price": "50"})
        await broker.publish("c", topic, tags="paid", headers={"price": "20"})
        assert sorted(await seen.reaches(4)) == ["price b", "price c", "tag a", "tag c"]


async def test_several_topics_go_to_one_group(broker: RocketMQBroker, topics: Callable[[int], str], seen: Seen) -> None:
    one, two = topics(1), topics(1)
    subscriber = broker.subscriber(one, two)
    assert subscriber.group == f"shop-{one}-{two}"

    @subscriber
    async def take(text: str, topic: str = Context("message.raw_message.topic")) -> None:
        seen((topic, text))

    async with broker:
        await broker.start()
        await broker.publish("first", one)
        await broker.publish("second", two)
        assert sorted(await seen.reaches(2)) == sorted([(one, "first"), (two, "second")])


async def test_a_batch_is_a_list(broker: RocketMQBroker, topic: str, seen: Seen) -> None:
    @broker.subscriber(topic, batch=True, max_records=3, pull_batch_size=32)
    async def take(numbers: list[int], message: RocketMQBatchMessage) -> None:
        seen((numbers, len(message.batch_headers)))

    async with broker:
        await broker.publish_batch(*range(5), topic=topic)
        await broker.start()
        assert await seen.reaches(2) == [([0, 1, 2], 3), ([3, 4], 2)]


async def test_handlers_run_side_by_side_as_many_as_workers(broker: RocketMQBroker, topic: str, seen: Seen) -> None:
    together = asyncio.Barrier(3)

    @broker.subscriber(topic, max_workers=3)
    async def take(text: str) -> None:
        await together.wait()
        seen(text)

    async with broker:
        await broker.start()
        for text in "abc":
            await broker.publish(text, topic)
        assert sorted(await seen.reaches(3)) == ["a", "b", "c"]


async def test_a_plain_function_is_a_handler(broker: RocketMQBroker, topic: str, seen: Seen) -> None:
    loop = asyncio.get_running_loop()

    @broker.subscriber(topic)
    def take(text: str) -> None:
        loop.call_soon_threadsafe(seen, text)

    async with broker:
        await broker.start()
        await broker.publish("x", topic)
        assert await seen.reaches(1) == ["x"]


async def test_messages_of_a_key_are_handled_in_their_order(
    broker: RocketMQBroker, topics: Callable[[int], str], seen: Seen
) -> None:
    topic = topics(4)

    @broker.subscriber(topic, orderly=True, max_workers=4)
    async def take(step: list[int]) -> None:
        seen(tuple(step))

    async with broker:
        await broker.start()
        for step in range(5):
            for key in range(6):
                await broker.publish([key, step], topic, ordered_by=key)
        steps = await seen.reaches(30)
    for key in range(6):
        assert [step for of, step in steps if of == key] == [0, 1, 2, 3, 4]


async def test_a_message_that_waits_holds_up_its_key_only(broker: RocketMQBroker, topic: str, seen: Seen) -> None:
    @broker.subscriber(topic, ordered_by=lambda message: message.keys[0], max_workers=4)
    async def take(text: str, message: RocketMQMessage) -> None:
        if text == "a1" and len(seen.values) < 2:
            raise NackMessage(delay=0.01)
        seen(text)

    async with broker:
        await broker.start()
        for text in ("a1", "a2", "b1", "b2"):
            await broker.publish(text, topic, keys=text[0])
        assert await seen.reaches(4) == ["b1", "b2", "a1", "a2"]


async def test_broadcasting_reaches_every_program(address: str, topic: str, tmp_path: Path, seen: Seen) -> None:
    brokers = [RocketMQBroker(address, group=f"program-{name}", logger=None) for name in "ab"]
    for each in brokers:

        @each.subscriber(topic, group="news", broadcast=True, offset_folder=tmp_path / each.config.group)
        async def take(text: str, name: str = Context("broker.config.group")) -> None:
            seen((name, text))

    async with brokers[0], brokers[1]:
        for each in brokers:
            await each.start()
        await brokers[0].publish("x", topic)
        assert sorted(await seen.reaches(2)) == [("program-a", "x"), ("program-b", "x")]


async def test_routers_have_prefixes(broker: RocketMQBroker, topic: str, seen: Seen) -> None:
    router = RocketMQRouter(prefix=topic[:1])
    answers = router.publisher(topic[1:])

    @router.subscriber(topic[1:])
    async def take(text: str) -> None:
        seen(text)

    broker.include_router(router)
    async with broker:
        await broker.start()
        await answers.publish("x")
        assert await seen.reaches(1) == ["x"]


async def test_two_subscribers_of_a_group_are_refused(broker: RocketMQBroker, topic: str) -> None:
    for expression in ("new", "paid"):

        @broker.subscriber(topic, expression=expression)
        async def take(text: str) -> None: ...

    with pytest.raises(SetupError, match=f"2 subscribers are in the consumer group shop-{topic}, .* its own group="):
        await broker.start()


def test_a_subscriber_needs_a_topic() -> None:
    with pytest.raises(SetupError, match="A subscriber needs a topic"):
        RocketMQBroker().subscriber()


async def test_a_stop_waits_for_handlers_and_loses_nothing(address: str, topic: str, seen: Seen) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    def program() -> RocketMQBroker:
        broker = RocketMQBroker(address, group="shop", logger=None)

        @broker.subscriber(topic)
        async def take(number: int, message: RocketMQMessage) -> None:
            begun.set()
            await may_end.wait()
            seen((number, message.raw_message.reconsume_times))

        return broker

    async with program() as broker:
        await broker.publish_batch(*range(20), topic=topic)
        await broker.start()
        await begun.wait()
        stop = asyncio.ensure_future(broker.stop())
        await asyncio.sleep(0)
        assert not stop.done()
        may_end.set()
        await stop
        before = len(seen.values)
    async with program() as broker:
        await broker.start()
        assert await seen.reaches(20) == [(number, 0) for number in range(20)]
    assert 1 <= before < 20
