"""Sends beyond the bound wait for their turn, and a broker that does not read is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from eruca.client import Hook, Message, MessageQueue, Producer
from eruca.client.errors import BadConfig, CallTimeout
from eruca.client.hooks import SendContext
from tests.support.scripted import SILENT, Scripted

QUEUE = MessageQueue("T", "broker-a", 0)


class Looking(Hook):
    """Sees every send, so that sends take the way of those that hooks see."""

    def after_send(self, context: SendContext) -> None:
        assert context.error is None


class Lab:
    """A nameserver, a broker, and what a producer with these settings does."""

    def __init__(self, names: Scripted, broker: Scripted) -> None:
        self.names, self.broker = names, broker

    def producer(self, **settings: object) -> Producer:
        return Producer("g", nameserver=self.names.address, **settings)  # type: ignore[arg-type]


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with Scripted("names") as names, Scripted("broker-a") as broker:
        names.knows("T", broker)
        yield Lab(names, broker)


def hello(number: int = 0) -> Message:
    return Message("T", b"%03d" % number)


async def test_a_tight_loop_sends_everything_in_order_with_few_under_way(lab: Lab) -> None:
    async with lab.producer(max_in_flight=4) as producer:
        sends = [producer.start_send(hello(number), queue=QUEUE) for number in range(100)]
        await asyncio.gather(*sends)
    assert lab.broker.bodies == [b"%03d" % number for number in range(100)]


async def test_nothing_beyond_the_bound_is_sent_before_there_is_room(lab: Lab) -> None:
    async with lab.producer(max_in_flight=2, send_timeout=0.2) as producer:
        await producer.send(hello(0), queue=QUEUE, timeout=30)  # asks for the route and connects, too
        lab.broker.answers += [SILENT, SILENT]
        stuck = [producer.start_send(hello(number), queue=QUEUE) for number in (1, 2)]
        third = producer.start_send(hello(3), queue=QUEUE, timeout=30)
        for each in stuck:
            with pytest.raises(CallTimeout):
                await each
        assert not third.done()
        assert (await third).queue == QUEUE
    assert lab.broker.bodies == [b"000", b"001", b"002", b"003"]


async def test_bytes_are_bounded_too_and_a_large_message_goes_alone(lab: Lab) -> None:
    async with lab.producer(max_in_flight_size=10) as producer:
        sends = [producer.start_send(Message("T", b"x" * size), queue=QUEUE) for size in (4, 4, 4, 100, 4)]
        await asyncio.gather(*sends)
    assert [len(body) for body in lab.broker.bodies] == [4, 4, 4, 100, 4]


async def test_who_waits_may_give_up(lab: Lab) -> None:
    async with lab.producer(max_in_flight=1) as producer:
        first, second, third = (producer.start_send(hello(number), queue=QUEUE) for number in range(3))
        second.cancel()
        await asyncio.gather(first, third)
    assert lab.broker.bodies == [b"000", b"002"]


async def test_many_that_fail_at_once_make_room_for_one_another(lab: Lab) -> None:
    def nowhere(*_: object) -> MessageQueue:
        raise LookupError("no queue is good enough")

    async with lab.producer(max_in_flight=1) as producer:
        first = producer.start_send(hello())
        failing = [producer.start_send(hello(), selector=nowhere) for _ in range(5000)]
        await first
        found = await asyncio.gather(*failing, return_exceptions=True)
        assert all(isinstance(each, LookupError) for each in found)
        await producer.send(hello())


async def test_stop_waits_for_those_that_wait(lab: Lab) -> None:
    producer = lab.producer(max_in_flight=2)
    await producer.start()
    sends = [producer.start_send(hello(number), queue=QUEUE) for number in range(20)]
    await producer.stop()
    assert all(each.done() and each.exception() is None for each in sends)


async def test_bounds_are_numbers_above_0(lab: Lab) -> None:
    for name in ("max_in_flight", "max_in_flight_size"):
        with pytest.raises(BadConfig, match=name):
            lab.producer(**{name: 0})


@pytest.mark.parametrize("hooks", [[], [Looking()]], ids=["alone", "with a hook"])
async def test_one_way_sends_of_a_tight_loop_leave_while_it_runs(lab: Lab, hooks: list[Hook]) -> None:
    async with lab.producer(hooks=hooks) as producer:
        await producer.send(hello())
        connection = producer.session.ready(lab.broker.address)
        assert connection is not None
        most = 0
        for _ in range(500):
            await producer.send_oneway(Message("T", b"x" * 1000))
            most = max(most, connection.unsent)
        assert most < 70_000
        await producer.send(hello())
    assert len(lab.broker.bodies) == 502


@pytest.mark.parametrize("hooks", [[], [Looking()]], ids=["alone", "with a hook"])
async def test_one_way_sends_wait_for_a_broker_that_does_not_read(lab: Lab, hooks: list[Hook]) -> None:
    async with lab.producer(hooks=hooks) as producer:
        await producer.send(hello())
        connection = producer.session.ready(lab.broker.address)
        assert connection is not None
        connection.pause_writing()  # as the event loop tells it
        sending = asyncio.ensure_future(producer.send_oneway(hello(1)))
        done, _ = await asyncio.wait({sending}, timeout=0.05)
        assert not done
        connection.resume_writing()
        await sending
