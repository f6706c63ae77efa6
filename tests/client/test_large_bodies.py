"""Large bodies are compressed and unpacked in threads: the event loop goes on, and every order is kept."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from eruca.client import ClientSettings, Message, MessageQueue, Producer, PushConsumer, ReceivedMessage
from eruca.client.errors import BadAnswer
from tests.client.conftest import Lab
from tests.support.eruca import ErucaCluster
from tests.support.turns import turns_during

SIZE = 4 << 20
BODIES = {"compressible": b"z" * SIZE, "text": b"".join(b"%d," % (n * 7919) for n in range(SIZE))[:SIZE]}
BODIES["incompressible"] = os.urandom(SIZE)
LONGEST = 0.008
"""Seconds, with room for slow machines: 1 to 4 ms are usual. To compress takes 20 to 200 ms, to unpack 13."""


class Inbox:
    """What a listener, or a loop, got; ``take`` waits for the next body."""

    def __init__(self) -> None:
        self._bodies: asyncio.Queue[bytes] = asyncio.Queue()

    async def listen(self, message: ReceivedMessage) -> None:
        self._bodies.put_nowait(message.body)

    async def loop(self, consumer: PushConsumer) -> None:
        async for message in consumer:
            self._bodies.put_nowait(message.body)

    async def take(self) -> bytes:
        return await asyncio.wait_for(self._bodies.get(), 30)


@pytest.fixture
async def nameserver(tmp_path: Path) -> AsyncIterator[str]:
    """Of a cluster in processes of its own, so that all turns of this loop are the client's."""
    cluster = await asyncio.to_thread(ErucaCluster, tmp_path)
    yield cluster.name_server.address
    cluster.broker.process.kill()
    cluster.name_server.process.kill()


@pytest.mark.slow
@pytest.mark.processes
async def test_no_large_body_holds_the_loop(nameserver: str) -> None:
    async with Producer("g", nameserver=nameserver, send_timeout=30) as producer:
        await producer.create_topic("T", queues=1)
        for kind, body in BODIES.items():
            turns = await turns_during(partial(producer.send, Message("T", body)), LONGEST)
            assert turns.longest < LONGEST, kind
    for way in ("listener", "orderly listener", "async for"):
        turns = await turns_during(partial(receive_all, nameserver, way), LONGEST)
        assert turns.longest < LONGEST, way


async def receive_all(nameserver: str, way: str) -> None:
    """The bodies come to a new group."""
    inbox = Inbox()
    listener = None if way == "async for" else inbox.listen
    consumer = PushConsumer(
        f"{way.replace(' ', '-')}-{uuid4().hex}",
        listener,
        nameserver=nameserver,
        start_from="first",
        orderly=way.startswith("orderly"),
    )
    async with consumer.subscribe("T"):
        task = asyncio.create_task(inbox.loop(consumer)) if listener is None else None
        got = [await inbox.take() for _ in BODIES]
        if task is not None:
            task.cancel()
    assert sorted(got) == sorted(BODIES.values())


@pytest.mark.parametrize("listens", [True, False], ids=["listener", "async for"])
async def test_large_and_small_bodies_come_in_their_order(lab: Lab, listens: bool) -> None:
    await lab.producer.create_topic("T", queues=1)
    queue = MessageQueue("T", "broker-a", 0)
    bodies = [b"%d" % number * (300_000 if number % 3 == 0 else 1) for number in range(12)]
    sends = [lab.producer.start_send(Message("T", body), queue=queue) for body in bodies]
    assert [(await send).offset for send in sends] == [*range(12)]
    inbox = Inbox()
    listener = inbox.listen if listens else None
    consumer = PushConsumer("g", listener, nameserver=lab.address, start_from="first", orderly=True).subscribe("T")
    async with consumer:
        task = None if listens else asyncio.create_task(inbox.loop(consumer))
        assert [await inbox.take() for _ in bodies] == bodies
        if task is not None:
            task.cancel()


async def test_a_body_above_the_bound_fails_where_it_is_asked_for(lab: Lab) -> None:
    await lab.send("T", os.urandom(20_000) + b"z" * 400_000)
    told: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def listen(message: ReceivedMessage) -> None:
        with pytest.raises(BadAnswer) as refused:
            _ = message.body
        told.set_result(str(refused.value))

    settings = ClientSettings(nameserver=lab.address, max_body=300_000)
    async with PushConsumer("g", listen, settings=settings, start_from="first").subscribe("T"):
        assert "more than 300000 bytes" in await asyncio.wait_for(told, 10)
