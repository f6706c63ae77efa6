"""A reset (220) that reaches consumers which are online: exact counts, no stale offset, no message lost."""

from __future__ import annotations

import asyncio
import time

from eruca.client import Message, MessageQueue, PushConsumer, ReceivedMessage
from eruca.client.consuming import rebalance
from eruca.client.consuming.push_consumer import engine_of
from eruca.protocol import api
from eruca.protocol.bodies import ResetOffsetBody
from eruca.protocol.headers.offsets import ResetOffset
from tests.client.conftest import Lab, Seen

BODIES = [b"m%d" % number for number in range(40)]
ONE = MessageQueue("T", "broker-a", 0)


async def reset(lab: Lab, group: str, timestamp: int) -> dict[MessageQueue, int]:
    """What mqadmin resetOffsetByTime asks of the broker (222); the offsets it prints."""
    session = lab.puller.session
    answer = await session.call(
        await session.master("broker-a", "T"),
        api.INVOKE_BROKER_TO_RESET_OFFSET,
        ResetOffset(topic="T", group=group, timestamp=timestamp, is_force=True),
    )
    return dict(ResetOffsetBody.decode(answer.body).offset_table)


async def test_an_interval_is_consumed_again_exactly(lab: Lab, seen: Seen) -> None:
    await lab.send("T", *BODIES[:20])
    await asyncio.sleep(0.005)  # a moment that lies between two store times
    middle = time.time_ns() // 1_000_000
    await asyncio.sleep(0.005)
    await lab.send("T", *BODIES[20:])
    async with PushConsumer("g", seen.coroutine, nameserver=lab.address).subscribe("T"):
        await seen.reaches(40)
        table = await reset(lab, "g", middle)
        promised = sum(10 - offset for offset in table.values())
        assert 20 <= promised <= 24  # the broker takes the nearer neighbour of the moment, in each queue
        await seen.reaches(40 + promised, within=5.0)  # at once: a pull that waits would be answered after 15 s
    assert len(seen.messages) == 40 + promised
    expected = {(queue.queue_id, offset) for queue, start in table.items() for offset in range(start, 10)}
    assert {(each.queue.queue_id, each.queue_offset) for each in seen.messages[40:]} == expected
    assert await lab.offsets("g", "T") == [10, 10, 10, 10]


async def test_to_the_start_and_again(lab: Lab, seen: Seen) -> None:
    await lab.send("T", *BODIES)
    async with PushConsumer("g", seen.coroutine, nameserver=lab.address).subscribe("T"):
        for round in range(1, 4):
            await seen.reaches(40 * round)
            table = await reset(lab, "g", 0)
            assert set(table.values()) == {0}
        await seen.reaches(160)
    assert sorted(seen.bodies) == sorted(BODIES * 4)


async def test_to_the_end_skips_what_waits(lab: Lab, seen: Seen) -> None:
    gate, working = asyncio.Event(), asyncio.Event()

    async def listener(message: ReceivedMessage) -> None:
        working.set()
        await gate.wait()
        seen.add(message)

    await lab.send("T", b"first")
    for body in BODIES:
        await lab.producer.send(Message("T", body), queue=ONE)
    async with PushConsumer("g", listener, nameserver=lab.address, concurrency=1).subscribe("T") as consumer:
        await working.wait()
        table = await reset(lab, "g", -1)
        assert sum(table.values()) == 41
        await lab.stores("g", "T", [table[MessageQueue("T", "broker-a", number)] for number in range(4)])
        gate.set()
        await lab.send("T", b"after")
        await seen.reaches(2)
        assert engine_of(consumer).stats.consumed == 1
    assert seen.bodies[-1] == b"after" and len(seen.messages) == 2  # the one at work, and the new one


async def test_who_ends_late_does_not_move_the_new_offset(lab: Lab) -> None:
    gates = [asyncio.Event(), asyncio.Event()]
    started = asyncio.Event()
    runs = 0

    async def listener(message: ReceivedMessage) -> None:
        nonlocal runs
        number, runs = runs, runs + 1
        started.set()
        await gates[min(number, 1)].wait()

    await lab.send("T", b"x")
    async with PushConsumer("g", listener, nameserver=lab.address).subscribe("T") as consumer:
        await started.wait()
        started.clear()
        (queue,) = [each for each, end in zip(consumer.queues[1:], await lab.ends("T"), strict=True) if end]
        await reset(lab, "g", 0)
        await started.wait()  # the message is consumed again, while the first listener has not ended
        gates[0].set()
        await asyncio.sleep(0)
        assert consumer.positions("T")[queue] == 0
        assert set(await lab.offsets("g", "T")) == {0}
        gates[1].set()
    assert await lab.offsets("g", "T") == await lab.ends("T")


async def test_both_members_follow(lab: Lab) -> None:
    await lab.send("T", *BODIES)
    both = Seen()
    a = PushConsumer("g", both.coroutine, nameserver=lab.address).subscribe("T")
    b = PushConsumer("g", both.coroutine, nameserver=lab.address).subscribe("T")
    async with a:
        await both.reaches(40)
        await lab.stores("g", "T", [10] * 4)
        async with b:
            async with asyncio.timeout(5):
                while len(b.queues) + len(a.queues) != 5 or not b.positions("T"):  # noqa: ASYNC110
                    await asyncio.sleep(0.002)
            await reset(lab, "g", 0)
            await both.reaches(80)
    assert sorted(both.bodies) == sorted(BODIES * 2)


async def test_other_topics_of_the_group_stay_where_they_are(lab: Lab, seen: Seen) -> None:
    await lab.send("T", *BODIES)
    await lab.send("U", *BODIES)
    async with PushConsumer("g", seen.coroutine, nameserver=lab.address).subscribe("T").subscribe("U"):
        await seen.reaches(80)
        await reset(lab, "g", 0)
        await seen.reaches(120)
    assert [message.topic for message in seen.messages[80:]] == ["T"] * 40


async def test_a_queue_that_is_given_up_at_that_moment_is_reset_all_the_same(lab: Lab, seen: Seen) -> None:
    """The reset comes while the last position of the queue is on its way to the broker."""
    await lab.send("T", *BODIES)
    async with PushConsumer("g", seen.coroutine, nameserver=lab.address).subscribe("T") as consumer:
        await seen.reaches(40)
        owner = engine_of(consumer).membership.rebalance
        assert owner is not None
        del engine_of(consumer).subscriptions["T"]
        leaving = asyncio.create_task(owner.give_up_unsubscribed())
        await asyncio.sleep(0)
        engine_of(consumer).membership.reset("T", {ONE: 3})
        await leaving
        assert (await lab.offsets("g", "T"))[0] == 3


async def test_a_stale_offset_that_overtakes_the_reset_is_overwritten(lab: Lab, seen: Seen) -> None:
    """A store that was on its way before the reset arrives at the broker after it."""
    await lab.send("T", *BODIES)
    async with PushConsumer("g", seen.coroutine, nameserver=lab.address).subscribe("T") as consumer:
        await seen.reaches(40)
        owner = engine_of(consumer).membership.rebalance
        assert owner is not None
        store = owner.store
        overtaken: list[MessageQueue] = []

        async def store_then_be_overtaken(queue: MessageQueue, offset: int) -> bool:
            stored = await store(queue, offset)
            if not overtaken:
                overtaken.append(queue)
                await store(queue, 10)
            return stored

        owner.store = store_then_be_overtaken  # type: ignore[method-assign]
        engine_of(consumer).membership.reset("T", {ONE: 4})
        await seen.reaches(46)
        assert overtaken == [ONE] and rebalance.CONFIRM_ATTEMPTS > 1
    assert sorted(each.queue_offset for each in seen.messages[40:]) == [4, 5, 6, 7, 8, 9]


async def test_an_offset_outside_the_queue_is_followed_at_once(lab: Lab, seen: Seen) -> None:
    await lab.send("T", *BODIES)
    await lab.puller.update_offset(ONE, 500, group="g")
    async with PushConsumer("g", seen.coroutine, nameserver=lab.address).subscribe("T"):
        await seen.reaches(30)
        await lab.stores("g", "T", [10, 10, 10, 10])
        await lab.producer.send(Message("T", b"new"), queue=ONE)
        await seen.reaches(31, within=2.0)
    assert seen.bodies[-1] == b"new"
