"""How messages end: what acknowledgement, policies and exceptions of handlers mean in RocketMQ."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import pytest
from faststream import AckPolicy, Context
from faststream.exceptions import AckMessage, NackMessage, RejectMessage

from eruca.faststream import RocketMQBroker, RocketMQMessage, RocketMQRouter
from tests.faststream.conftest import Seen

End = Callable[[Any], Awaitable[None]]


def raising(error: Exception) -> End:
    async def end(message: Any) -> None:
        raise error

    return end


async def nothing(message: Any) -> None:
    """Leaves the message as it is."""


async def ack(message: Any) -> None:
    await message.ack()
    await message.nack()


async def nack(message: Any) -> None:
    await message.nack()


async def reject(message: Any) -> None:
    await message.reject()


FAIL = raising(ValueError("no salad"))
CONSUMED, RETRIED, DEAD = "consumed", "retried", "dead"
ENDS: list[tuple[str, AckPolicy, End, str]] = [
    ("success", AckPolicy.NACK_ON_ERROR, nothing, CONSUMED),
    ("error, ACK", AckPolicy.ACK, FAIL, CONSUMED),
    ("error, ACK_FIRST", AckPolicy.ACK_FIRST, FAIL, CONSUMED),
    ("error, NACK_ON_ERROR", AckPolicy.NACK_ON_ERROR, FAIL, RETRIED),
    ("error, REJECT_ON_ERROR", AckPolicy.REJECT_ON_ERROR, FAIL, DEAD),
    ("error, MANUAL", AckPolicy.MANUAL, FAIL, RETRIED),
    ("MANUAL without a word", AckPolicy.MANUAL, nothing, RETRIED),
    ("MANUAL with ack, the first word", AckPolicy.MANUAL, ack, CONSUMED),
    ("MANUAL with nack", AckPolicy.MANUAL, nack, RETRIED),
    ("MANUAL with reject", AckPolicy.MANUAL, reject, DEAD),
    ("AckMessage", AckPolicy.NACK_ON_ERROR, raising(AckMessage()), CONSUMED),
    ("NackMessage", AckPolicy.REJECT_ON_ERROR, raising(NackMessage(delay_level=2)), RETRIED),
    ("NackMessage in seconds", AckPolicy.REJECT_ON_ERROR, raising(NackMessage(delay=0.2)), RETRIED),
    ("RejectMessage", AckPolicy.NACK_ON_ERROR, raising(RejectMessage()), DEAD),
]


def declare(
    broker: RocketMQBroker, topic: str, group: str, policy: AckPolicy, end: End, batch: bool, seen: Seen
) -> None:
    """A handler that ends so at the first time, and says where a message comes again."""

    @broker.subscriber(topic, group=group, ack_policy=policy, batch=batch)
    async def take(message: Annotated[Any, Context("message")]) -> None:
        raw = message.raw_message[0] if batch else message.raw_message
        if raw.reconsume_times == 0:
            await end(message)
        else:
            seen(group)
            await message.ack()


@pytest.mark.parametrize("batch", [False, True], ids=["messages", "lists"])
async def test_every_end_of_a_handler(broker: RocketMQBroker, topic: str, seen: Seen, batch: bool) -> None:
    groups = {f"{topic}-{number}": outcome for number, (*_, outcome) in enumerate(ENDS)}
    for group, (_, policy, end, _) in zip(groups, ENDS, strict=True):
        declare(broker, topic, group, policy, end, batch, seen)
    dead = [group for group, outcome in groups.items() if outcome == DEAD]
    letters = broker.subscriber(*(f"%DLQ%{group}" for group in dead), group=f"{topic}-letters")
    async with broker:
        await broker.start()
        await broker.publish("x", topic)
        found = [await letters.get_one(timeout=20) for _ in dead]
        again = await seen.reaches(list(groups.values()).count(RETRIED))
    assert sorted(each.raw_message.queue.topic for each in found if each is not None) == [
        f"%DLQ%{each}" for each in sorted(dead)
    ]
    assert sorted(again) == sorted(group for group, outcome in groups.items() if outcome == RETRIED)


async def test_an_orderly_handler_keeps_its_message_until_it_is_acked(
    broker: RocketMQBroker, topic: str, seen: Seen
) -> None:
    @broker.subscriber(topic, orderly=True)
    async def take(text: str, message: RocketMQMessage) -> None:
        seen(text)
        if len(seen.values) == 1:
            raise NackMessage(delay=0.01)

    async with broker:
        await broker.start()
        for text in "ab":
            await broker.publish(text, topic)
        assert await seen.reaches(3) == ["a", "a", "b"]


async def test_a_rejected_message_says_why_in_order_too(broker: RocketMQBroker, topic: str, seen: Seen) -> None:
    @broker.subscriber(topic, group=topic, orderly=True)
    async def take(text: str) -> None:
        if text == "a":
            raise RejectMessage(reason="no salad")
        seen(text)

    letters = broker.subscriber(f"%DLQ%{topic}", group=f"{topic}-letters")
    async with broker:
        await broker.start()
        for text in "ab":
            await broker.publish(text, topic)
        assert await seen.reaches(1) == ["b"]
        letter = await letters.get_one(timeout=20)
    assert letter is not None and letter.raw_message.properties["DEAD_LETTER_TEXT"] == "no salad"


async def test_the_policy_of_a_broker_is_that_of_its_subscribers(address: str, topic: str) -> None:
    router = RocketMQRouter(ack_policy=AckPolicy.MANUAL)
    broker = RocketMQBroker(address, ack_policy=AckPolicy.ACK, routers=[router])
    assert broker.subscriber(topic).ack_policy is AckPolicy.ACK
    assert RocketMQBroker(address).subscriber(topic).ack_policy is AckPolicy.NACK_ON_ERROR


async def test_a_failed_message_comes_again_and_ends_among_the_dead_letters(
    broker: RocketMQBroker, topic: str, seen: Seen
) -> None:
    @broker.subscriber(topic, group=topic, max_reconsume_times=1)
    async def take(text: str, message: RocketMQMessage) -> None:
        seen((text, message.raw_message.topic, message.raw_message.reconsume_times))
        raise ValueError("no salad")

    letters = broker.subscriber(f"%DLQ%{topic}", group=f"{topic}-letters")
    async with broker:
        await broker.start()
        await broker.publish("x", topic)
        assert await seen.reaches(2) == [("x", topic, 0), ("x", topic, 1)]
        letter = await letters.get_one(timeout=20)
    assert letter is not None and letter.body == b"x"


def so(**options: Any) -> Any:
    return pytest.param(options, id=" ".join(options))


@pytest.mark.parametrize(
    "options",
    [
        so(max_reconsume_times=0),
        so(ack_policy=AckPolicy.REJECT_ON_ERROR),
        so(ack_policy=AckPolicy.MANUAL, max_reconsume_times=0),
        so(orderly=True, max_reconsume_times=0),
        so(orderly=True, ack_policy=AckPolicy.REJECT_ON_ERROR),
        so(batch=True, ack_policy=AckPolicy.REJECT_ON_ERROR),
    ],
)
async def test_a_dead_letter_has_the_error_of_the_handler(
    broker: RocketMQBroker, topic: str, caplog: pytest.LogCaptureFixture, options: Any
) -> None:
    @broker.subscriber(topic, group=topic, **options)
    async def take(text: Any) -> None:
        raise ValueError("no such street")

    letters = broker.subscriber(f"%DLQ%{topic}", group=f"{topic}-letters")
    async with broker:
        await broker.start()
        await broker.publish("x", topic)
        letter = await letters.get_one(timeout=20)
    assert letter is not None
    properties = letter.raw_message.properties
    assert (properties["DEAD_LETTER_ERROR"], properties["DEAD_LETTER_TEXT"]) == ("ValueError", "no such street")
    assert 'raise ValueError("no such street")' in properties["DEAD_LETTER_TRACEBACK"]
    [line] = [each for each in caplog.messages if "is a dead letter of" in each]
    assert line.endswith(": ValueError: no such street")
