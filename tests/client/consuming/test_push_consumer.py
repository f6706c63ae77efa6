"""Consuming as a member of a group, against a real broker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from eruca.client import Later, Message, MessageQueue, Producer, PushConsumer, ReceivedMessage, assign
from eruca.client.consuming.push_consumer import engine_of
from eruca.client.errors import NameserverUnreachable, StateError, UsageError
from eruca.protocol.message import java_hash
from eruca.standalone.cluster import Cluster
from tests.client.conftest import HASTY, Lab, Seen, eventually, small_broker
from tests.support.ports import free_port

BODIES = [b"m%d" % number for number in range(40)]


async def test_everything_comes_once_and_is_remembered(lab: Lab, seen: Seen) -> None:
    await lab.send("T", *BODIES)
    async with PushConsumer("g", seen.coroutine, nameserver=lab.address, start_from="first").subscribe("T"):
        await seen.reaches(40)
    assert sorted(seen.bodies) == sorted(BODIES)
    assert await lab.offsets("g", "T") == await lab.ends("T") == [10, 10, 10, 10]


async def test_another_run_goes_on_where_the_first_ended(lab: Lab, seen: Seen) -> None:
    await lab.send("T", *BODIES)
    async with PushConsumer("g", seen.coroutine, nameserver=lab.address).subscribe("T"):
        await seen.reaches(40)
    await lab.send("T", b"later")
    async with PushConsumer("g", seen.coroutine, nameserver=lab.address).subscribe("T"):
        await seen.reaches(41)
    assert seen.bodies[40:] == [b"later"]


async def test_the_order_within_a_queue_is_kept_for_one_listener(lab: Lab, seen: Seen) -> None:
    queue = MessageQueue("T", "broker-a", 0)
    await lab.send("T", b"first")
    for body in BODIES:
        await lab.producer.send(Message("T", body), queue=queue)
    async with PushConsumer("g", seen.coroutine, nameserver=lab.address, concurrency=1).subscribe("T"):
        await seen.reaches(41)
    assert [body for body in seen.bodies if body != b"first"] == BODIES


async def test_tags_are_compared_not_only_their_hashes(lab: Lab, seen: Seen) -> None:
    assert java_hash("AaAa") == java_hash("BBBB")
    for number in range(12):
        await lab.send("T", b"%d" % number, tags=("AaAa", "BBBB", "C")[number % 3])
    await lab.send("T", b"untagged")
    async with PushConsumer("g", seen.coroutine, nameserver=lab.address).subscribe("T", "AaAa || C"):
        await seen.reaches(8)
        await lab.send("T", b"more", tags="C")
        await seen.reaches(9)
    assert {message.tags for message in seen.messages} == {"AaAa", "C"} and len(seen.messages) == 9
    assert sum(offset or 0 for offset in await lab.offsets("g", "T")) == 14  # what was filtered out is passed, too


async def test_a_function_runs_in_threads_beside_the_loop(lab: Lab, seen: Seen) -> None:
    await lab.send("T", *BODIES)
    threads: set[str] = set()
    together = threading.Barrier(4, timeout=10)

    def listener(message: ReceivedMessage) -> None:
        if message.body in BODIES[:4]:
            together.wait()  # four listeners are at work at once, or this breaks
        threads.add(threading.current_thread().name)
        seen.function(message)

    async with PushConsumer("g", listener, nameserver=lab.address, concurrency=4).subscribe("T"):
        await seen.reaches(40)
    assert threads <= {f"eruca-listener-{number}" for number in range(4)} and len(threads) == 4
    assert sorted(seen.bodies) == sorted(BODIES)


async def test_objects_that_can_be_called_are_listeners(lab: Lab, seen: Seen) -> None:
    class Callable:
        async def __call__(self, message: ReceivedMessage) -> None:
            seen.add(message)

    await lab.send("T", b"x")
    async with PushConsumer("g", Callable(), nameserver=lab.address).subscribe("T"):
        await seen.reaches(1)


async def test_lists_on_demand(lab: Lab) -> None:
    await lab.send("T", *BODIES)
    sizes: list[int] = []
    done = asyncio.Event()

    async def listener(messages: list[ReceivedMessage]) -> None:
        sizes.append(len(messages))
        if sum(sizes) == 40:
            done.set()

    async with PushConsumer("g", listener, nameserver=lab.address, consume_message_batch_max_size=4).subscribe("T"):
        await asyncio.wait_for(done.wait(), 10)
    assert max(sizes) == 4
    assert await lab.offsets("g", "T") == [10, 10, 10, 10]


async def test_what_failed_comes_again(lab: Lab, seen: Seen) -> None:
    """Here, where no broker takes a message back. (How brokers take it is in test_rebalance.)"""
    await lab.send("T", *BODIES)
    lab.fill_disk()

    async def listener(message: ReceivedMessage) -> Later | None:
        seen.add(message)
        if message.reconsume_times == 0:
            if message.body == b"m7":
                raise ValueError("not today")
            if message.body == b"m9":
                return Later()
        return None

    async with PushConsumer("g", listener, nameserver=lab.address, settings=HASTY).subscribe("T"):
        await seen.reaches(42)
    again = [message for message in seen.messages if message.reconsume_times]
    assert sorted(message.body for message in again) == [b"m7", b"m9"]
    assert {message.topic for message in again} == {"T"}


async def test_the_broker_lets_a_message_come_again_after_the_delay(lab: Lab, seen: Seen) -> None:
    await lab.send("T", b"x")

    async def listener(message: ReceivedMessage) -> Later | None:
        seen.add(message)
        return Later(delay_level=1) if message.reconsume_times == 0 else None

    async with PushConsumer("g", listener, nameserver=lab.address).subscribe("T"):
        await seen.reaches(2)
    first, again = seen.messages
    assert (again.body, again.topic, again.message_id) == (b"x", "T", first.message_id)
    assert (again.reconsume_times, again.queue.topic) == (1, "%RETRY%g")
    assert await lab.offsets("g", "T") == await lab.ends("T")


async def test_a_message_may_go_to_the_dead_letters_at_once(lab: Lab, seen: Seen) -> None:
    await lab.send("T", b"x")

    async def listener(message: ReceivedMessage) -> Later:
        seen.add(message)
        return Later(delay_level=-1)

    async with PushConsumer("g", listener, nameserver=lab.address).subscribe("T"):
        await seen.reaches(1)
        dead = MessageQueue("%DLQ%g", "broker-a", 0)
        await lab.stores("g", "T", [end or 0 for end in await lab.ends("T")])
        (letter,) = (await lab.puller.pull(dead, 0)).records
    assert letter.body == b"x" and letter.properties["RETRY_TOPIC"] == "T"


async def test_a_slow_listener_holds_back_the_reading_of_its_queue(lab: Lab, seen: Seen) -> None:
    await lab.send("T", b"start")
    queue = MessageQueue("T", "broker-a", 0)
    for body in BODIES * 3:
        await lab.producer.send(Message("T", body), queue=queue)
    open_gate = asyncio.Event()

    async def listener(message: ReceivedMessage) -> None:
        seen.add(message)
        await open_gate.wait()

    consumer = PushConsumer(
        "g", listener, nameserver=lab.address, concurrency=2, pull_batch_size=8, pull_threshold_for_queue=16
    )
    async with consumer.subscribe("T"):
        await seen.reaches(2)
        info = await engine_of(consumer).membership.running_info(False)
        assert info.mq_table[queue].cached_msg_count <= 16 + 8
        open_gate.set()
        await seen.reaches(121)
    assert len(seen.messages) == 121


async def test_two_members_share_and_hand_over(lab: Lab) -> None:
    await lab.send("T", b"start")
    first, second = Seen(), Seen()
    a = PushConsumer("g", first.coroutine, nameserver=lab.address).subscribe("T")
    b = PushConsumer("g", second.coroutine, nameserver=lab.address).subscribe("T")
    async with a:
        await first.reaches(1)
        assert numbers(a) == [0, 1, 2, 3]
        async with b:
            await eventually(lambda: len(numbers(a)) == 2 and len(numbers(b)) == 2)
            assert sorted(numbers(a) + numbers(b)) == [0, 1, 2, 3]
            await lab.send("T", *BODIES)
            await asyncio.gather(first.reaches(21), second.reaches(20))
        await eventually(lambda: numbers(a) == [0, 1, 2, 3])
        await lab.send("T", *BODIES)
        await first.reaches(61)
    assert len(second.messages) == 20 and len(first.messages) == 61


async def test_other_strategies_can_be_chosen(lab: Lab, seen: Seen) -> None:
    await lab.send("T", b"x")
    a = PushConsumer("g", seen.coroutine, nameserver=lab.address, strategy=assign.by_circle).subscribe("T")
    b = PushConsumer("g", seen.coroutine, nameserver=lab.address, strategy=assign.by_circle).subscribe("T")
    async with a, b:
        await eventually(lambda: len(numbers(a)) == 2 and len(numbers(b)) == 2)
        assert sorted([numbers(a), numbers(b)]) == [[0, 2], [1, 3]]


async def test_stop_waits_for_the_listener_at_work_and_stores_what_it_did(lab: Lab) -> None:
    await lab.send("T", b"x")
    working, finish = asyncio.Event(), asyncio.Event()

    async def listener(message: ReceivedMessage) -> None:
        working.set()
        await finish.wait()

    consumer = PushConsumer("g", listener, nameserver=lab.address).subscribe("T")
    await consumer.start()
    await working.wait()
    stopping = asyncio.create_task(consumer.stop())
    await asyncio.sleep(0)
    assert not stopping.done()
    finish.set()
    await stopping
    assert await lab.offsets("g", "T") == await lab.ends("T")
    await consumer.stop()


async def test_a_listener_that_does_not_end_loses_nothing(lab: Lab, seen: Seen) -> None:
    await lab.send("T", b"x")
    working = asyncio.Event()

    async def listener(message: ReceivedMessage) -> None:
        working.set()
        await asyncio.Event().wait()

    async with PushConsumer("g", listener, nameserver=lab.address, stop_timeout=0.05).subscribe("T"):
        await working.wait()
    async with PushConsumer("g", seen.coroutine, nameserver=lab.address).subscribe("T"):
        await seen.reaches(1)


async def test_positions_of_queues_at_rest_are_stored_while_it_runs(lab: Lab, seen: Seen) -> None:
    await lab.send("T", *BODIES)
    async with PushConsumer("g", seen.coroutine, nameserver=lab.address, offset_interval=60).subscribe("T"):
        await seen.reaches(40)
        await lab.stores("g", "T", [10, 10, 10, 10])


async def test_a_broker_that_comes_back_is_read_again(lab: Lab, seen: Seen) -> None:
    await lab.send("T", b"before")
    consumer = PushConsumer("g", seen.coroutine, nameserver=lab.address, pull_time_delay_when_exception=0.02)
    async with consumer.subscribe("T"):
        await seen.reaches(1)
        await lab.restart_broker()
        await lab.send("T", b"after")
        await seen.reaches(2)
    assert seen.bodies == [b"before", b"after"]


async def test_a_topic_may_come_later(lab: Lab, seen: Seen) -> None:
    async with PushConsumer("g", seen.coroutine, nameserver=lab.address, settings=HASTY).subscribe("T"):
        await lab.send("T", b"first")
        await seen.reaches(1)


async def test_a_topic_that_this_program_creates_is_found_soon(lab: Lab, seen: Seen) -> None:
    """The producer shares the consumer's session, where it leaves the provisional route of the new topic."""
    settings = replace(HASTY, nameserver=lab.address)
    consumer = PushConsumer("g", seen.coroutine, settings=settings, start_from="first").subscribe("T")
    async with Producer("p", settings=settings) as producer:
        await producer.send(Message("Other", b"x"))  # the broker is known, and creates the retry topic at the start
        async with consumer:
            assert consumer.session is producer.session
            await eventually(lambda: len(consumer.queues) == 1)  # of the retry topic: no other rebalance is due soon
            await producer.send(Message("T", b"first"))
            await seen.reaches(1)


async def test_without_a_nameserver_it_does_not_start_and_may_be_started_later(tmp_path: Path, seen: Seen) -> None:
    port = free_port()
    consumer = PushConsumer("g", seen.coroutine, nameserver=f"127.0.0.1:{port}").subscribe("T")
    with pytest.raises(NameserverUnreachable, match="Check that mqnamesrv runs there"):
        await consumer.start()
    async with Cluster(tmp_path, port=port, broker=small_broker()), consumer:
        async with Producer("p", nameserver=f"127.0.0.1:{port}") as producer:
            await producer.send(Message("T", b"x"))
        consumer.subscribe("T")
        await seen.reaches(1)


async def test_a_listener_that_is_cancelled_from_within_has_failed(lab: Lab, seen: Seen) -> None:
    await lab.send("T", b"x")
    lab.fill_disk()

    async def listener(message: ReceivedMessage) -> None:
        seen.add(message)
        if message.reconsume_times == 0:
            never = asyncio.get_running_loop().create_future()
            never.cancel()
            await never

    consumer = PushConsumer("g", listener, nameserver=lab.address, settings=HASTY, concurrency=1).subscribe("T")
    async with consumer:
        await seen.reaches(2)
    assert [message.reconsume_times for message in seen.messages] == [0, 1]


async def test_a_strategy_that_fails_is_asked_again(lab: Lab, seen: Seen) -> None:
    calls = 0

    def strategy(client: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
        nonlocal calls
        calls += 1
        if 2 < calls < 6:
            raise RuntimeError("not yet")
        return [] if calls < 6 else assign.averagely(client, queues, clients)

    await lab.send("T", b"x")
    consumer = PushConsumer(
        "g", seen.coroutine, nameserver=lab.address, settings=HASTY, strategy=strategy, rebalance_interval=0.02
    ).subscribe("T")
    async with consumer:
        await seen.reaches(1)
    assert calls > 5


async def test_subscriptions_change_while_it_runs(lab: Lab, seen: Seen) -> None:
    await lab.send("T", b"t")
    await lab.send("U", b"u")
    consumer = PushConsumer("g", seen.coroutine, nameserver=lab.address).subscribe("T")
    async with consumer:
        await seen.reaches(1)
        consumer.subscribe("U")
        await seen.reaches(2)
        consumer.unsubscribe("T")
        await eventually(lambda: {queue.topic for queue in consumer.queues} == {"U", "%RETRY%g"})
    assert seen.bodies == [b"t", b"u"]


async def test_iterating_consumes_what_came_before(lab: Lab) -> None:
    await lab.send("T", *BODIES)
    got = []
    async with PushConsumer("g", nameserver=lab.address).subscribe("T") as consumer:
        async for message in consumer:
            got.append(message.body)
            if len(got) == 40:
                message.ack()
                break
    assert sorted(got) == sorted(BODIES)
    assert await lab.offsets("g", "T") == [10, 10, 10, 10]


async def test_a_message_that_was_not_settled_comes_again(lab: Lab, seen: Seen) -> None:
    await lab.send("T", b"a")
    async with PushConsumer("g", nameserver=lab.address).subscribe("T") as consumer:
        async for message in consumer:
            assert message.body == b"a" and not message.settled
            break
    async with PushConsumer("g", seen.coroutine, nameserver=lab.address).subscribe("T"):
        await seen.reaches(1)


async def test_messages_settled_by_hand_in_any_order(lab: Lab) -> None:
    await lab.send("T", b"start")
    queue = MessageQueue("T", "broker-a", 0)
    for body in BODIES[:3]:
        await lab.producer.send(Message("T", body), queue=queue)
    async with PushConsumer("g", nameserver=lab.address).subscribe("T") as consumer:
        messages = []
        async for message in consumer.messages(auto_ack=False):
            messages.append(message)
            if len(messages) == 4:
                break
        mine = sorted((each for each in messages if each.body in BODIES), key=lambda each: each.queue_offset)
        start = mine[0].queue_offset
        assert consumer.positions("T")[queue] <= start
        mine[2].ack()
        mine[1].ack()
        next(each for each in messages if each.body == b"start").ack()
        assert consumer.positions("T")[queue] == start
        mine[0].ack()
        mine[0].ack()
        assert consumer.positions("T")[queue] == start + 3


async def test_a_task_that_is_cancelled_while_it_waits_holds_no_message_back(lab: Lab) -> None:
    got: list[bytes] = []
    async with PushConsumer("g", nameserver=lab.address, start_from="first").subscribe("T") as consumer:

        async def loop() -> None:
            async for message in consumer:
                got.append(message.body)

        tasks = [asyncio.create_task(loop()) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        tasks[1].cancel()
        await asyncio.wait(tasks[:2])
        await lab.send("T", b"x")
        await eventually(lambda: got == [b"x"])
    await asyncio.wait_for(tasks[2], 5)


async def test_iteration_ends_with_the_consumer(lab: Lab) -> None:
    await lab.send("T", b"x")
    consumer = PushConsumer("g", nameserver=lab.address).subscribe("T")
    await consumer.start()
    got: list[bytes] = []
    first = asyncio.Event()

    async def loop() -> None:
        async for message in consumer:
            got.append(message.body)
            first.set()

    task = asyncio.create_task(loop())
    await first.wait()
    await consumer.stop()
    await asyncio.wait_for(task, 5)
    assert got == [b"x"]


async def test_wrong_use_is_told(lab: Lab, seen: Seen) -> None:
    consumer = PushConsumer("g", seen.coroutine, nameserver=lab.address)
    with pytest.raises(UsageError, match=r"subscribes nothing: call subscribe\(topic\) before start\(\)"):
        await consumer.start()
    with pytest.raises(StateError, match="make the consumer without one"):
        consumer.messages()
    async with consumer.subscribe("T"):
        with pytest.raises(StateError, match="maybe started once"):
            await consumer.start()
        with pytest.raises(StateError, match="make the consumer without one"):
            consumer.messages()


def numbers(consumer: PushConsumer) -> list[int]:
    """The queues of T that a member owns."""
    return [queue.queue_id for queue in consumer.queues if queue.topic == "T"]
