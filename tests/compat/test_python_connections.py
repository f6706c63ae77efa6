"""Python's clients at Apache's brokers of both releases, over connections that die without a word or are slow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from eruca.client import ClientSettings, Message, MessageQueue, Producer, PullConsumer, PushConsumer, ReceivedMessage
from eruca.client.errors import CallTimeout, ClientError
from tests.compat.conftest import Real
from tests.support.java import Judge
from tests.support.proxy import Proxy
from tests.support.scripted import Scripted

MakeTopic = Callable[[Any, Judge, int], str]


async def test_a_dead_connection_is_left_and_a_late_answer_belongs_to_nobody(
    real: Real, topic: MakeTopic, fresh: Callable[[str], str]
) -> None:
    name, group = topic(real.cluster, real.judge, 1), fresh("group")
    queue = MessageQueue(name, "broker-a", 0)
    seen, news = list[bytes](), asyncio.Event()

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message.body)
        news.set()

    async def until_seen(body: bytes) -> None:
        async with asyncio.timeout(60):
            while body not in seen:
                news.clear()
                await news.wait()

    proxy = await Proxy(real.cluster.broker.address).start()
    try:
        async with Scripted("names") as names, Producer(fresh("direct"), nameserver=real.address) as direct:
            broker: Any = SimpleNamespace(name="broker-a", address=proxy.address)
            for each in (name, f"%RETRY%{group}"):
                names.knows(each, broker)
            settings = ClientSettings(nameserver=names.address, request_timeout=1.0, heartbeat_interval=1.0)
            producer = Producer(fresh("producers"), settings=settings, retries=0)
            consumer = PushConsumer(group, listener, settings=settings, start_from="first").subscribe(name)
            async with producer, consumer:
                await producer.send(Message(name, b"before"), timeout=20)
                await until_seen(b"before")

                proxy.mute()  # nobody is told
                with pytest.raises(CallTimeout):
                    await producer.send(Message(name, b"into the dark"), timeout=0.5)
                await direct.send(Message(name, b"meanwhile"))
                await until_seen(b"meanwhile")  # by a connection that the consumer made anew
                await again(producer, Message(name, b"after"))

                proxy.delay = 1.0
                with pytest.raises(CallTimeout):
                    await producer.send(Message(name, b"answered late"), timeout=0.5)
                proxy.delay = 0.0
                last = await producer.send(Message(name, b"last"), timeout=20)
                await until_seen(b"last")
        async with PullConsumer(nameserver=real.address) as puller:
            (record,) = (await puller.pull(queue, last.offset, 1)).records
        assert (record.body, record.unique_key) == (b"last", last.message_id)
        assert set(seen) - {b"into the dark"} == {b"before", b"meanwhile", b"after", b"answered late", b"last"}
    finally:
        await proxy.stop()


async def again(producer: Producer, message: Message) -> None:
    """Send until it is stored."""
    async with asyncio.timeout(60):
        while True:
            try:
                await producer.send(message, timeout=1.0)
            except ClientError:
                continue
            return


async def test_the_first_message_of_a_topic_that_it_creates_is_consumed_at_once(
    real: Real, fresh: Callable[[str], str]
) -> None:
    """Apache's broker tells its nameserver of the new topic before it answers the send (measured: 10 to 60 ms)."""
    came, took = asyncio.Queue[bytes](), []

    async def listener(message: ReceivedMessage) -> None:
        came.put_nowait(message.body)

    async with Producer(fresh("producers"), nameserver=real.address) as producer:
        for number in range(5):
            name = fresh("BrandNew")
            async with PushConsumer(fresh("group"), listener, nameserver=real.address).subscribe(name):
                await producer.send(Message(name, b"%d" % number), timeout=20)
                stored = time.monotonic()
                async with asyncio.timeout(20):
                    assert await came.get() == b"%d" % number
                took.append(time.monotonic() - stored)
    print("first messages of new topics after", [round(each, 3) for each in took], "s")
    assert sorted(took)[2] < 0.5
