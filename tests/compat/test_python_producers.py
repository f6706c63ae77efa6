"""Python's producers at Apache's brokers of both releases: what Java reads, and topics that come and change."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from eruca.client import ClientSettings, Message, Producer, PushConsumer, ReceivedMessage, SendStatus
from tests.compat.clients import How, JavaClients, PythonClients, Queue, drain
from tests.compat.conftest import Real
from tests.compat.letters import HOWS, in_order, letters, place
from tests.compat.transcript import java_mqadmin
from tests.support.apache import ApacheCluster
from tests.support.java import Judge
from tests.support.ports import free_port

MakeTopic = Callable[[Any, Judge, int], str]
Fresh = Callable[[str], str]


@pytest.mark.parametrize("how", HOWS)
def test_every_field_arrives_at_a_broker_of_5(
    how: How, apache5: ApacheCluster, judge5: Judge, python: PythonClients, topic: MakeTopic, fresh: Fresh
) -> None:
    name = topic(apache5, judge5, 1)
    with python.producer(fresh("producers"), apache5.address) as producer:
        sent = producer.send(letters(name), how, Queue(name, "broker-a", 0))
    with JavaClients(judge5).puller(fresh("readers"), apache5.address) as puller:
        deadline = time.monotonic() + 20
        while len(seen := in_order(drain(puller, name))) < len(letters(name)):
            assert time.monotonic() < deadline, f"{len(seen)} came"
    assert sorted((each.letter for each in seen), key=str) == sorted(letters(name), key=str)
    if how in ("sync", "async"):
        stored = {each.message_id: each for each in seen}
        assert [place(each.offset_message_id) for each in sent] == [stored[each.message_id].log_offset for each in sent]
        assert [stored[each.message_id].body for each in sent] == [each.body for each in letters(name)]
    if how == "batch":
        assert sent[0].message_id.split(",") == [each.message_id for each in seen]


def test_a_topic_that_brokers_create_by_themselves(real: Real, python: PythonClients, fresh: Fresh) -> None:
    name = fresh("created")

    async def work() -> list[int]:
        dead = f"127.0.0.1:{free_port()}"  # in the list, and passed over
        producer = Producer(fresh("producers"), nameserver=[dead, real.address], new_topic_queues=3)
        async with producer:
            return [(await producer.send(Message(name, b"%d" % n))).queue.queue_id for n in range(9)]

    assert Counter(python.run(work())) == {0: 3, 1: 3, 2: 3}
    with JavaClients(real.judge).puller(fresh("readers"), real.address) as puller:
        assert [queue.number for queue in puller.queues(name)] == [0, 1, 2]
        assert sorted(int(each.body) for each in drain(puller, name)) == list(range(9))


def test_queues_are_added_and_taken_away_while_messages_are_sent(
    real: Real, python: PythonClients, topic: MakeTopic, fresh: Fresh
) -> None:
    """4, 8 and 4 queues: to take queues away, first no more is written to them, then they are read to their end."""
    name, group = topic(real.cluster, real.judge, 4), fresh("group")
    settings = ClientSettings(nameserver=real.address, route_interval=0.2)
    used: list[int] = []
    seen: list[bytes] = []
    stop = asyncio.Event()

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message.body)

    async def send() -> None:
        async with Producer(fresh("producers"), settings=settings) as producer:
            while not stop.is_set():
                result = await producer.send(Message(name, b"%d" % len(used)))
                assert result.status is SendStatus.SEND_OK
                used.append(result.queue.queue_id)
                await asyncio.sleep(0.002)

    def change(write: int, read: int) -> None:
        line = ("updateTopic", "-n", real.address, "-b", real.cluster.broker.address, "-t", name)
        done = java_mqadmin(real.judge)((*line, "-w", str(write), "-r", str(read)))
        assert "success" in done.stdout, done

    async def uses(queues: int) -> None:
        """Wait until the last messages went to exactly so many queues."""
        begin = len(used)
        async with asyncio.timeout(40):
            while set(used[begin:][-40:]) != set(range(queues)) or len(used) < begin + 40:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    def held(consumer: PushConsumer) -> set[int]:
        return {each.queue_id for each in consumer.queues if each.topic == name}

    async def work() -> None:
        consumer = PushConsumer(group, listener, settings=settings, start_from="first", rebalance_interval=0.2)
        async with consumer.subscribe(name):
            sending = asyncio.create_task(send())
            await uses(4)
            await asyncio.to_thread(change, 8, 8)
            await uses(8)
            await asyncio.to_thread(change, 4, 8)
            await uses(4)
            await asyncio.to_thread(change, 4, 4)
            await uses(4)
            stop.set()
            await sending
            async with asyncio.timeout(40):
                while len(seen) < len(used) or held(consumer) != {0, 1, 2, 3}:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)

    python.run(work(), 200)
    assert sorted(map(int, seen)) == list(range(len(used)))
