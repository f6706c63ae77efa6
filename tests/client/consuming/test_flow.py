"""How much is pulled ahead, and how soon the next pull follows."""

from __future__ import annotations

import asyncio
from typing import Any

from eruca.client import Message, MessageQueue, PushConsumer, ReceivedMessage
from eruca.client.consuming.process_queue import ProcessQueue
from eruca.client.consuming.push_consumer import engine_of
from eruca.client.consuming.queue_puller import QueuePuller
from tests.client.conftest import Lab, Seen, eventually


async def test_what_may_wait_of_a_topic_is_shared_out_anew_with_its_queues(lab: Lab) -> None:
    """Four queues may have two messages each; the two that are left when another member comes may have four."""
    queues = [MessageQueue("T", "broker-a", number) for number in range(4)]
    for number in range(80):
        await lab.producer.send(Message("T", b"%d" % number), queue=queues[number % 4])
    stuck = asyncio.Event()
    own: dict[str, Any] = {"nameserver": lab.address, "start_from": "first", "pull_batch_size": 1}

    async def listener(message: ReceivedMessage) -> None:
        await stuck.wait()

    def waiting(consumer: PushConsumer) -> list[int]:
        return [len(run) for queue, run in sorted(engine_of(consumer).under_way.items()) if queue.topic == "T"]

    first = PushConsumer("g", listener, pull_threshold_for_topic=8, **own).subscribe("T")
    async with first:
        await eventually(lambda: waiting(first) == [3, 3, 3, 3])  # as many as may wait, and what passed the mark
        async with PushConsumer("g", listener, pull_threshold_for_queue=1, **own).subscribe("T") as second:
            await eventually(lambda: len(waiting(first)) == len(waiting(second)) == 2)
            stuck.set()
            await eventually(lambda: sum(waiting(first)) == sum(waiting(second)) == 0)
            assert {reader.limits.count for reader in readers(first) if reader.process_queue.queue.topic == "T"} == {4}
            assert {reader.limits.count for reader in readers(second)} == {1}


def readers(consumer: PushConsumer) -> list[QueuePuller[ProcessQueue]]:
    rebalance = engine_of(consumer).membership.rebalance
    assert rebalance is not None
    return list(rebalance.readers.values())


async def test_a_pull_asks_for_no_more_than_there_is_room_for(lab: Lab) -> None:
    """The limit of the count is passed by the 32 messages that a pull asks for at least, however many it may bring."""
    await lab.puller.create_topic("T", 1)
    await lab.producer.send_batch([Message("T", b"%d" % number) for number in range(600)])
    may_end, seen = asyncio.Semaphore(0), Seen()

    async def listener(message: ReceivedMessage) -> None:
        await may_end.acquire()
        seen.add(message)

    consumer = PushConsumer(
        "g", listener, nameserver=lab.address, start_from="first", concurrency=1, pull_threshold_for_queue=300
    )
    async with consumer.subscribe("T"):
        (reader,) = [each for each in readers(consumer) if each.process_queue.queue.topic == "T"]
        try:
            await eventually(lambda: len(reader.process_queue) == 301)  # 256 messages, then 45
            may_end.release()
            await eventually(lambda: len(reader.process_queue) == 300 + 32)
        finally:
            for _ in range(600):
                may_end.release()
        await seen.reaches(600)
    assert [each.queue_offset for each in seen.messages] == list(range(600))


async def test_pulls_keep_their_distance(lab: Lab, seen: Seen) -> None:
    for number in range(4):
        await lab.producer.send(Message("T", b"%d" % number), queue=MessageQueue("T", "broker-a", 0))
    began = asyncio.get_running_loop().time()
    consumer = PushConsumer(
        "g", seen.coroutine, nameserver=lab.address, start_from="first", pull_batch_size=1, pull_interval=0.1
    )
    async with consumer.subscribe("T"):
        await seen.reaches(4)
    assert asyncio.get_running_loop().time() - began >= 0.3
