"""Publishers over a real broker: topics, batches, delays, orders, answers and questions."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from faststream import Response
from faststream.exceptions import IncorrectState

from eruca.client import Message, Producer, ReceivedMessage
from eruca.client.errors import BadMessage, CallTimeout
from eruca.faststream import RocketMQBroker, RocketMQMessage, RocketMQPublishMessage, RocketMQResponse
from tests.faststream.conftest import Seen


async def test_what_a_handler_returns_is_published(
    broker: RocketMQBroker, topics: Callable[[int], str], seen: Seen
) -> None:
    orders, bills, notes = topics(1), topics(1), topics(1)

    @broker.subscriber(orders)
    @broker.publisher(bills, tags="bill", headers={"by": "cashier"})
    @broker.publisher(notes)
    async def cook(number: int) -> Any:
        return RocketMQResponse({"bill": number}, keys=f"order-{number}", headers={"of": "cook"})

    for each in (bills, notes):

        @broker.subscriber(each)
        async def collect(value: dict[str, int], message: RocketMQMessage) -> None:
            raw = message.raw_message
            own = {name: message.headers[name] for name in ("by", "of") if name in message.headers}
            seen((raw.topic, value, raw.tags, raw.keys, own, message.correlation_id))

    async with broker:
        await broker.start()
        await broker.publish(7, orders, correlation_id="c")
        assert sorted(await seen.reaches(2)) == sorted(
            [
                (bills, {"bill": 7}, "bill", ["order-7"], {"by": "cashier", "of": "cook"}, "c"),
                (notes, {"bill": 7}, None, ["order-7"], {"of": "cook"}, "c"),
            ]
        )


async def test_a_batch_lies_in_one_queue(broker: RocketMQBroker, topics: Callable[[int], str], seen: Seen) -> None:
    topic = topics(4)

    @broker.subscriber(topic)
    async def take(value: Any, message: RocketMQMessage) -> None:
        seen((value, message.raw_message.tags, message.headers.get("h"), message.raw_message.queue.queue_id))

    async with broker:
        await broker.start()
        [result] = await broker.publish_batch(
            "a", RocketMQPublishMessage({"n": 1}, tags="own", headers={"h": "2"}), topic=topic, headers={"h": "1"}
        )
        queue = result.queue.queue_id
        assert await seen.reaches(2) == [("a", None, "1", queue), ({"n": 1}, "own", "2", queue)]


async def test_a_list_that_a_handler_returns_can_be_a_batch(
    broker: RocketMQBroker, topics: Callable[[int], str], seen: Seen
) -> None:
    orders, parts = topics(1), topics(1)

    @broker.subscriber(orders)
    @broker.publisher(parts, batch=True)
    async def split(numbers: list[int]) -> list[int]:
        return numbers

    @broker.subscriber(parts, batch=True)
    async def take(numbers: list[int]) -> None:
        seen(numbers)

    async with broker:
        await broker.start()
        await broker.publish([1, 2, 3], orders)
        assert await seen.reaches(1) == [[1, 2, 3]]


async def test_equal_keys_take_equal_queues(broker: RocketMQBroker, topics: Callable[[int], str]) -> None:
    topic = topics(8)
    async with broker:
        sent = [await broker.publish("x", topic, ordered_by="order-7") for _ in range(3)]
        chosen = await broker.publish("x", topic, ordered_by=5, selector=lambda queues, message, arg: queues[5])
    assert len({each.queue for each in sent if each is not None}) == 1
    assert chosen is not None and chosen.queue.queue_id == 5


async def test_a_delayed_message_comes_later(broker: RocketMQBroker, topic: str, seen: Seen) -> None:
    @broker.subscriber(topic)
    async def take(text: str) -> None:
        seen((text, time.monotonic()))

    async with broker:
        await broker.start()
        begun = time.monotonic()
        await broker.publish("later", topic, delay=0.3)
        await broker.publish("now", topic)
        [(first, _), (second, at)] = await seen.reaches(2)
    assert (first, second) == ("now", "later")
    assert at - begun >= 0.3


async def test_a_send_may_go_without_an_answer(broker: RocketMQBroker, topic: str, seen: Seen) -> None:
    @broker.subscriber(topic)
    async def take(text: str) -> None:
        seen(text)

    async with broker:
        await broker.start()
        assert await broker.publish("x", topic, no_confirm=True) is None
        assert await seen.reaches(1) == ["x"]


async def test_an_answer_goes_to_the_topic_that_the_message_names(
    broker: RocketMQBroker, topics: Callable[[int], str], seen: Seen
) -> None:
    questions, answers = topics(1), topics(1)

    @broker.subscriber(questions)
    async def answer(number: int) -> int:
        return number + 1

    @broker.subscriber(answers)
    async def collect(number: int, message: RocketMQMessage) -> None:
        seen((number, message.correlation_id))

    async with broker:
        await broker.start()
        await broker.publish(1, questions, reply_to=answers, correlation_id="c")
        assert await seen.reaches(1) == [(2, "c")]


async def test_a_question_gets_its_answer(broker: RocketMQBroker, topic: str) -> None:
    publisher = broker.publisher(topic)

    @broker.subscriber(topic)
    async def add(a: int, b: int) -> Response:
        return Response({"sum": a + b}, headers={"by": "add"})

    async with broker:
        await broker.start()
        answer = await broker.request({"a": 1, "b": 2}, topic, correlation_id="c", timeout=20)
        assert (await answer.decode(), answer.correlation_id, answer.headers["by"]) == ({"sum": 3}, "c", "add")
        again = await publisher.request({"a": 2, "b": 2}, timeout=20)
        assert await again.decode() == {"sum": 4}


async def test_nobody_answers(broker: RocketMQBroker, topic: str) -> None:
    async with broker:
        with pytest.raises(CallTimeout, match="wait reply message timeout"):
            await broker.request("x", topic, timeout=0.05)


async def test_another_client_asks_and_is_answered(broker: RocketMQBroker, address: str, topic: str) -> None:
    @broker.subscriber(topic)
    async def shout(text: str) -> str:
        return text.upper()

    async with broker, Producer("others", nameserver=address) as producer:
        await broker.start()
        answer: ReceivedMessage = await producer.request(Message(topic, b'"salad"'), timeout=20)
    assert (answer.body, answer.value) == (b"SALAD", "SALAD")


async def test_a_header_is_none_of_rocketmqs_own_names(broker: RocketMQBroker, topic: str) -> None:
    async with broker:
        with pytest.raises(BadMessage, match="The Property<KEYS> is used by system"):
            await broker.publish("x", topic, headers={"KEYS": "x"})


async def test_nothing_is_published_before_the_start_and_after_the_stop(broker: RocketMQBroker, topic: str) -> None:
    with pytest.raises(IncorrectState, match="The broker is not connected"):
        await broker.publish("x", topic)
    assert not await broker.ping()
    async with broker:
        assert await broker.ping(timeout=10)
    with pytest.raises(IncorrectState, match="The broker is not connected"):
        await broker.publish("x", topic)
