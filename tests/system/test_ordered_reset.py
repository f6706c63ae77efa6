"""An operator rewinds an ordered group whose members are online: processes, mqadmin, and the order that must hold."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from pathlib import Path

import pytest

from eruca.client import Message, MessageQueue, Producer, PushConsumer, ReceivedMessage
from tests.support.eruca import SCRIPTS, ErucaCluster
from tests.support.pairs import eventually
from tests.support.processes import Process

pytestmark = pytest.mark.processes

TOPIC, QUEUES, BEFORE, AFTER = "Ordered", 4, 30, 20


class Member:
    """Notes what it consumes, in the order in which it does."""

    def __init__(self, address: str, seen: dict[int, list[int]]) -> None:
        self._seen = seen
        self._at_work: set[int] = set()
        self.consumer = PushConsumer("ordered", self._take, nameserver=address, orderly=True, start_from="first")
        self.consumer.subscribe(TOPIC)

    async def _take(self, message: ReceivedMessage) -> None:
        queue = message.queue.queue_id
        assert queue not in self._at_work
        self._at_work.add(queue)
        await asyncio.sleep(0.001)
        self._seen[queue].append(int(message.body))
        self._at_work.discard(queue)


async def test_mqadmin_rewinds_ordered_members_that_are_online(tmp_path: Path) -> None:
    seen: dict[int, list[int]] = defaultdict(list)
    with ErucaCluster(tmp_path, {"defaultTopicQueueNums": str(QUEUES)}) as cluster:
        async with Producer("p", nameserver=cluster.address) as producer:

            async def send(start: int, end: int) -> None:
                for number in range(start, end):
                    for queue in range(QUEUES):
                        await producer.send(
                            Message(TOPIC, b"%d" % number), queue=MessageQueue(TOPIC, "broker-a", queue)
                        )

            await producer.send(Message(TOPIC, b"-1"), queue=None)  # makes the topic
            await send(0, BEFORE)
            await asyncio.sleep(0.05)  # a moment that lies between two store times
            moment = time.time_ns() // 1_000_000
            await asyncio.sleep(0.05)
            await send(BEFORE, BEFORE + AFTER)
            members = [Member(cluster.address, seen) for _ in range(2)]
            async with members[0].consumer, members[1].consumer:
                everything = range(BEFORE + AFTER)
                await eventually(lambda: sum(map(len, seen.values())) == 1 + QUEUES * len(everything))
                seen.clear()
                command = ["resetOffsetByTime", "-n", cluster.address, "-g", "ordered", "-t", TOPIC, "-s", str(moment)]
                mqadmin = Process([str(SCRIPTS / "mqadmin"), *command], tmp_path / "mqadmin.out")
                assert await asyncio.to_thread(mqadmin.wait) == 0, mqadmin.output
                await eventually(lambda: all(seen[queue][-1:] == [BEFORE + AFTER - 1] for queue in range(QUEUES)))
                again = {queue: list(numbers) for queue, numbers in seen.items()}
                await send(BEFORE + AFTER, BEFORE + AFTER + 5)
                await eventually(lambda: all(seen[queue][-1] == BEFORE + AFTER + 4 for queue in range(QUEUES)))
            for queue, numbers in again.items():
                # the broker takes the nearer neighbour of the moment
                assert numbers[0] in (BEFORE - 1, BEFORE)
                assert numbers == list(range(numbers[0], BEFORE + AFTER))
                assert seen[queue] == list(range(numbers[0], BEFORE + AFTER + 5))
