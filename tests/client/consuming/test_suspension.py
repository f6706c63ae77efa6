"""A consumer that is suspended reads nothing more until it is resumed, and loses nothing by it."""

from __future__ import annotations

import asyncio
import threading

import pytest

from eruca.client import Message, MessageQueue, PushConsumer, ReceivedMessage, sync
from tests.client.conftest import Lab, Seen, eventually

QUEUE = MessageQueue("T", "broker-a", 0)


async def send(lab: Lab, *bodies: bytes) -> None:
    for body in bodies:
        await lab.producer.send(Message("T", body), queue=QUEUE)


async def everybody_else_has(lab: Lab, count: int) -> None:
    """Wait until a consumer of another group got so many: this one could have had them, too."""
    others = Seen()
    async with PushConsumer("others", others.coroutine, nameserver=lab.address, start_from="first").subscribe("T"):
        await others.reaches(count)


@pytest.mark.parametrize("orderly", [False, True])
async def test_nothing_is_pulled_until_it_is_resumed(lab: Lab, seen: Seen, orderly: bool) -> None:
    await send(lab, b"1")
    consumer = PushConsumer("g", seen.coroutine, nameserver=lab.address, start_from="first", orderly=orderly)
    async with consumer.subscribe("T"):
        await seen.reaches(1)
        assert not consumer.suspended
        consumer.suspend()
        await send(lab, b"2")  # for the pull that is under way
        await seen.reaches(2)
        await send(lab, b"3", b"4")
        await everybody_else_has(lab, 4)
        assert seen.bodies == [b"1", b"2"] and consumer.suspended
        assert QUEUE in consumer.queues, "it stays a member, and keeps its queues"
        consumer.resume()
        await seen.reaches(4)
    assert seen.bodies == [b"1", b"2", b"3", b"4"]


async def test_it_may_begin_suspended_and_be_resumed_by_a_listener_of_another(lab: Lab, seen: Seen) -> None:
    await send(lab, b"1")
    held = PushConsumer("g", seen.coroutine, nameserver=lab.address, start_from="first").subscribe("T")
    held.suspend()

    def wake(message: ReceivedMessage) -> None:
        assert threading.current_thread() is not threading.main_thread()
        held.resume()

    async with held:
        await everybody_else_has(lab, 1)
        assert seen.bodies == [] and held.queues
        async with PushConsumer("waking", wake, nameserver=lab.address, start_from="first").subscribe("T"):
            await seen.reaches(1)


async def test_a_suspended_consumer_stops_in_order_and_goes_on_later(lab: Lab, seen: Seen) -> None:
    await send(lab, b"1")
    consumer = PushConsumer("g", seen.coroutine, nameserver=lab.address, start_from="first").subscribe("T")
    async with consumer:
        await seen.reaches(1)
        consumer.suspend()
    assert (await lab.offsets("g", "T"))[0] == 1
    await send(lab, b"2")
    async with PushConsumer("g", seen.coroutine, nameserver=lab.address).subscribe("T"):
        await seen.reaches(2)
    assert seen.bodies == [b"1", b"2"]


async def test_the_blocking_consumer_has_it_too(lab: Lab, seen: Seen) -> None:
    def use() -> None:
        consumer = sync.PushConsumer("g", seen.function, nameserver=lab.address, start_from="first").subscribe("T")
        consumer.suspend()
        with consumer:
            assert consumer.suspended and QUEUE in consumer.queues
            asyncio.run_coroutine_threadsafe(everybody_else_has(lab, 1), loop).result(60)
            assert seen.bodies == []
            consumer.resume()
            asyncio.run_coroutine_threadsafe(seen.reaches(1), loop).result(60)

    loop = asyncio.get_running_loop()
    await send(lab, b"1")
    await asyncio.to_thread(use)
    await eventually(lambda: seen.bodies == [b"1"])
