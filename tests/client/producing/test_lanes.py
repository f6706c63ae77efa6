"""Where sends of the short way go: to the queue of the user's choice, past brokers that failed, in their order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from eruca.client import Message, MessageQueue, Producer, SendResult
from eruca.client.errors import BadMessage, BrokerRefused, CallTimeout, UsageError
from eruca.client.selectors import by_hash
from tests.client.two_ways import TwoWays, bytes_of_both
from tests.support.scripted import SILENT, Scripted

SECOND = MessageQueue("T", "broker-a", 2)


@pytest.fixture
async def two() -> AsyncIterator[tuple[TwoWays, Scripted]]:
    """A producer with fault tolerance, at broker-a and broker-b, which have a queue each."""
    async with Scripted("names") as names, Scripted("broker-a") as broker, Scripted("broker-b") as other:
        names.knows("T", broker, other)
        async with Producer("g", nameserver=names.address, fault_tolerance=True) as producer:
            for _ in range(2):
                await producer.send(Message("T", b"first"))
            yield TwoWays(names, broker, producer), other


@pytest.mark.usefixtures("still")
async def test_both_ways_send_the_same_bytes_to_a_chosen_queue(both: TwoWays) -> None:
    def start() -> list[asyncio.Future[SendResult]]:
        sends = [both.producer.start_send(Message("T", b"hello"), queue=SECOND)]
        sends += [both.producer.start_send(Message("T", b"hello"), selector=by_hash, arg=arg) for arg in range(5)]
        sends += [both.producer.start_send(Message("T", b"hello", keys=["k"]))]
        batch = both.producer.send_batch([Message("T", b"hello")] * 3, queue=SECOND)
        return [*sends, asyncio.ensure_future(batch)]

    short, ordinary = await bytes_of_both(both, start)
    assert short == ordinary and short.count(b"hello") == 7 + 3
    assert both.short == 8


async def test_equal_arguments_meet_in_one_queue_and_turns_go_on_between(both: TwoWays) -> None:
    both.producer._turns["T"].last = 3
    orders = [both.producer.start_send(Message("T", b"x"), selector=by_hash, arg="order-7") for _ in range(3)]
    others = [both.producer.start_send(Message("T", b"x")) for _ in range(4)]
    assert len({result.queue for result in await asyncio.gather(*orders)}) == 1
    assert [result.queue.queue_id for result in await asyncio.gather(*others)] == [0, 1, 2, 3]
    assert both.short == 7


def raises(queues: Sequence[MessageQueue], message: Message, arg: object) -> MessageQueue:
    raise KeyError("no such customer")


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"selector": raises}, KeyError, "no such customer"),
    ({"selector": lambda queues, message, arg: None}, UsageError, "select message queue return null"),
    ({"selector": lambda *what: MessageQueue("U", "broker-a", 0)}, UsageError, "topic not equal"),
    ({"selector": 7}, UsageError, "a function is expected"),
    ({"queue": "broker-a:2"}, UsageError, "a MessageQueue is expected"),
    ({"queue": MessageQueue("U", "broker-a", 0)}, BadMessage, "topic not equal"),
    ({"queue": SECOND, "selector": by_hash}, UsageError, "not both"),
]


@pytest.mark.parametrize("way", ["short", "ordinary"])
@pytest.mark.parametrize(("chosen", "error", "text"), WRONG)
async def test_a_choice_that_fails_is_told_and_nothing_is_sent(
    both: TwoWays, way: str, chosen: dict[str, Any], error: type[Exception], text: str
) -> None:
    both.choose(way)
    with pytest.raises(error, match=text):
        await both.producer.send(Message("T", b"x"), **chosen)
    assert both.broker.bodies == [b"first"] and both.producer.window._count == 0


@pytest.mark.parametrize("way", ["short", "ordinary"])
async def test_a_chosen_queue_is_tried_once(two: tuple[TwoWays, Scripted], way: str) -> None:
    both, _ = two
    both.choose(way)
    both.broker.answers.extend([1, 2])
    for chosen in ({"queue": MessageQueue("T", "broker-a", 0)}, {"selector": lambda queues, message, arg: queues[0]}):
        with pytest.raises(BrokerRefused):
            await both.producer.send(Message("T", b"x"), **chosen)
    assert len(both.broker.sends) == 1 + 2


async def test_a_queue_that_the_route_does_not_name_is_asked_the_ordinary_way(both: TwoWays) -> None:
    hidden = MessageQueue("T", "broker-a", 9)
    results = [await both.producer.send(Message("T", b"x"), queue=hidden)]
    results += [await both.producer.send_batch([Message("T", b"x")], queue=hidden)]
    assert [result.queue for result in results] == [hidden] * 2 and both.short == 0


async def test_what_was_started_first_leaves_first_whichever_way_it_takes(both: TwoWays) -> None:
    """Plain, compressed, flagged, one-way and batches, to one queue."""
    producer = both.producer
    single = [b"%d" % number for number in range(4)]
    sends = [producer.start_send(Message("T", single[0]), queue=SECOND)]
    sends += [producer.start_send(Message("T", b"z" * 5000), queue=SECOND)]
    sends += [producer.start_send(Message("T", single[1]), queue=SECOND)]
    sends += [producer.start_send(Message("T", single[2], flag=1), queue=SECOND)]
    sends += [producer.start_send(Message("T", single[3]), queue=SECOND)]
    await producer.send_oneway(Message("T", b"one-way"), queue=SECOND)
    sends += [producer.start_send(Message("T", b"last"), queue=SECOND)]
    batch = await producer.send_batch([Message("T", b"in a batch")], queue=SECOND)
    await asyncio.gather(*sends)
    assert batch.queue == SECOND
    came = [body for body in both.broker.bodies[1:] if len(body) < 10]
    assert came == [b"0", b"1", b"2", b"3", b"one-way", b"last"]
    assert [number for number, body in enumerate(both.broker.bodies) if len(body) >= 10] == [2, 8]
    assert both.short == 5


@pytest.mark.parametrize("way", ["short", "ordinary"])
async def test_a_broker_that_fell_silent_is_passed_over(two: tuple[TwoWays, Scripted], way: str) -> None:
    both, _ = two
    both.choose(way)
    both.broker.answers.append(SILENT)
    with pytest.raises(CallTimeout):
        for _ in range(2):
            await both.producer.send(Message("T", b"x"), timeout=0.2)
    results = await asyncio.gather(*(both.producer.send(Message("T", b"x")) for _ in range(4)))
    results += [await both.producer.send_batch([Message("T", b"x")]) for _ in range(2)]
    assert {result.queue.broker_name for result in results} == {"broker-b"}
    assert (both.short > 6) is (way == "short")


async def test_sends_to_a_chosen_queue_say_nothing_of_their_brokers(two: tuple[TwoWays, Scripted]) -> None:
    both, _ = two
    queue = MessageQueue("T", "broker-a", 0)
    both.broker.answers.append(SILENT)
    with pytest.raises(CallTimeout):
        await both.producer.send(Message("T", b"x"), queue=queue, timeout=0.2)
    results = await asyncio.gather(*(both.producer.send(Message("T", b"x")) for _ in range(4)))
    assert {result.queue.broker_name for result in results} == {"broker-a", "broker-b"}
    assert both.short == 5


async def test_a_late_answer_counts_as_its_latency(two: tuple[TwoWays, Scripted]) -> None:
    both, _ = two
    faults = both.producer._faults
    assert faults is not None
    await asyncio.gather(*(both.producer.send(Message("T", b"x")) for _ in range(2)))
    assert both.short == 2 and faults._table.keys() == {"broker-a", "broker-b"}
    faults._table.clear()
    send = both.producer.start_send(Message("T", b"x"))
    (quick,) = both.producer._quick._singles["T"].pending  # type: ignore[union-attr]
    await asyncio.sleep(0)  # it leaves at the end of this turn
    quick.start -= 0.6
    broker = (await send).queue.broker_name
    assert 600 <= faults._table[broker].latency < 2000
    results = await asyncio.gather(*(both.producer.send(Message("T", b"x")) for _ in range(4)))
    assert broker not in {result.queue.broker_name for result in results}
