"""A consumer that is stopped in odd ways leaves its group whole: nobody waits for its queues or locks afterwards."""

from __future__ import annotations

import asyncio
import threading

import pytest

from eruca.client import MessageQueue, PushConsumer, ReceivedMessage, sync
from eruca.client.consuming.orderly import Orderly
from eruca.client.consuming.push_consumer import engine_of
from eruca.client.errors import StateError
from tests.client.conftest import HASTY, Lab, Seen, eventually
from tests.support.scripted import Scripted


async def test_a_listener_stops_its_consumer(lab: Lab, seen: Seen) -> None:
    """The stop waits for the listener, so the listener does not wait for the stop; its message is consumed."""

    async def listener(message: ReceivedMessage) -> None:
        seen.add(message)
        await consumer.stop()

    await lab.send("T", b"m")
    consumer = PushConsumer("g", listener, nameserver=lab.address).subscribe("T")
    async with asyncio.timeout(20), consumer:
        await seen.reaches(1)
    assert consumer.queues == [] and sum(offset or 0 for offset in await lab.offsets("g", "T")) == 1


async def test_what_a_listener_began_waits_for_the_stop_when_that_listener_has_ended(lab: Lab, seen: Seen) -> None:
    later, tasks = asyncio.Event(), list[asyncio.Task[list[MessageQueue]]]()

    async def stop() -> list[MessageQueue]:
        await later.wait()
        await consumer.stop()
        return consumer.queues

    async def listener(message: ReceivedMessage) -> None:
        tasks.append(asyncio.create_task(stop()))
        seen.add(message)

    await lab.send("T", b"m")
    consumer = PushConsumer("g", listener, nameserver=lab.address).subscribe("T")
    await consumer.start()
    await seen.reaches(1)
    await eventually(lambda: engine_of(consumer).stats.consumed == 1)
    later.set()
    assert await tasks[0] == [] and sum(offset or 0 for offset in await lab.offsets("g", "T")) == 1


async def test_a_listener_in_a_thread_stops_its_consumer(lab: Lab) -> None:
    stopped = threading.Event()

    def listener(message: ReceivedMessage) -> None:
        consumer.stop()
        stopped.set()

    def serve() -> None:
        with consumer.subscribe("T"):
            assert stopped.wait(20)

    await lab.send("T", b"m")
    consumer = await asyncio.to_thread(lambda: sync.PushConsumer("g", listener, nameserver=lab.address))
    await asyncio.to_thread(serve)
    assert sum(offset or 0 for offset in await lab.offsets("g", "T")) == 1


@pytest.mark.parametrize("kind", ["coroutine", "function"])
async def test_a_stop_that_is_cancelled_leaves_all_the_same(lab: Lab, seen: Seen, kind: str) -> None:
    release = threading.Event()
    other = Seen()

    async def coroutine(message: ReceivedMessage) -> None:
        seen.add(message)
        await asyncio.Event().wait()

    def function(message: ReceivedMessage) -> None:
        seen.function(message)
        release.wait(60)

    await lab.send("T", b"m")
    listener = coroutine if kind == "coroutine" else function
    consumer = PushConsumer("g", listener, nameserver=lab.address, stop_timeout=60).subscribe("T")
    await consumer.start()
    await seen.reaches(1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await consumer.stop()
    async with PushConsumer("g", other.coroutine, nameserver=lab.address).subscribe("T"):
        await other.reaches(1)  # the queues are another member's now
    await consumer.stop()
    release.set()


@pytest.mark.parametrize("stubborn", [False, True])
async def test_a_listener_that_will_not_be_cancelled(lab: Lab, seen: Seen, stubborn: bool) -> None:
    """One that takes the cancellation for its end, and one that goes on: the stop ends."""
    release = asyncio.Event()

    async def listener(message: ReceivedMessage) -> None:
        seen.add(message)
        try:
            await release.wait()
        except asyncio.CancelledError:
            if stubborn:
                await release.wait()

    await lab.send("T", b"m")
    async with asyncio.timeout(20):
        async with PushConsumer("g", listener, nameserver=lab.address, stop_timeout=0.1).subscribe("T"):
            await seen.reaches(1)
    release.set()


async def test_a_start_that_is_cancelled_gives_its_locks_back(server: Scripted, seen: Seen) -> None:
    """Another member need not wait until they end at the broker, after a minute."""
    server.offsets_answered.clear()
    consumer = PushConsumer("g", seen.coroutine, nameserver=server.address, orderly=True).subscribe("T")
    starting = asyncio.create_task(consumer.start())
    await asyncio.wait_for(server.offsets_asked.wait(), 10)
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    assert server.locked == server.unlocked == [[MessageQueue("T", "broker-a", 0)]]


async def test_a_topic_is_unsubscribed_while_its_listener_is_at_work(lab: Lab, seen: Seen) -> None:
    """In order: its queues are kept for the listener at work, and no longer."""
    release, other = asyncio.Event(), Seen()

    async def listener(message: ReceivedMessage) -> None:
        seen.add(message)
        await release.wait()

    await lab.send("T", b"1", b"2", b"3", b"4")
    await lab.send("U", b"m")
    consumer = PushConsumer("g", listener, nameserver=lab.address, settings=HASTY, orderly=True)
    consumer.subscribe("T").subscribe("U")
    async with consumer:
        await seen.reaches(5)
        consumer.unsubscribe("T")
        member, queue = engine_of(consumer).membership, MessageQueue("T", "broker-a", 0)
        processing, rebalance = member.processing, member.rebalance
        assert isinstance(processing, Orderly) and rebalance is not None
        await eventually(lambda: processing.queues[queue].closed)
        async with rebalance.turn:  # which has given up by now
            assert any(queue.topic == "T" for queue in consumer.queues)
        release.set()
        await eventually(lambda: not any(queue.topic == "T" for queue in consumer.queues))
        async with PushConsumer("g", other.coroutine, nameserver=lab.address, orderly=True).subscribe("T"):
            await lab.send("T", *[b"later"] * 4)
            await other.reaches(2)  # of half of the queues: brokers count all members of the group for each topic
    assert other.bodies == [b"later"] * 2


async def test_a_stop_while_it_starts_wins(server: Scripted, seen: Seen) -> None:
    server.offsets_answered.clear()
    consumer = PushConsumer("g", seen.coroutine, nameserver=server.address).subscribe("T")
    starting = asyncio.create_task(consumer.start())
    await asyncio.wait_for(server.offsets_asked.wait(), 10)
    stopping = asyncio.create_task(consumer.stop())
    await asyncio.sleep(0)
    server.offsets_answered.set()
    await asyncio.gather(starting, stopping)
    assert consumer.queues == [] and not server.pulls
    assert [header.consumer_group for header in server.unregistered] == ["g"]


@pytest.mark.parametrize("kind", ["listener", "loop"])
async def test_a_queue_whose_listener_was_cut_short_is_free_at_once(lab: Lab, seen: Seen, kind: str) -> None:
    """In order: the lock is given back although the message was not consumed, so the next member gets it now."""

    async def listener(message: ReceivedMessage) -> None:
        seen.add(message)
        await asyncio.Event().wait()

    await lab.send("T", b"m")
    consumer = PushConsumer(
        "g", listener if kind == "listener" else None, nameserver=lab.address, orderly=True, stop_timeout=0.1
    ).subscribe("T")
    async with consumer:
        if kind == "listener":
            await seen.reaches(1)
        else:
            async for message in consumer:
                seen.add(message)
                break
    async with PushConsumer("g", seen.coroutine, nameserver=lab.address, orderly=True).subscribe("T"):
        await seen.reaches(2)
    assert seen.bodies == [b"m", b"m"]


async def test_waiting_ends_with_the_consumer(lab: Lab) -> None:
    consumer = PushConsumer("g", lambda message: None, nameserver=lab.address, settings=HASTY).subscribe("T")
    with pytest.raises(StateError, match="please start it first"):
        await consumer.wait()
    await consumer.start()
    assert not await consumer.wait(0.01)
    waiting = asyncio.create_task(consumer.wait())
    await consumer.stop()
    assert await waiting and await consumer.wait()
