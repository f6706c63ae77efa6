"""Connections that are dead without a word, and answers that come too late: what a client makes of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest

from eruca.client import ClientSettings, Message, MessageQueue, Producer, PullConsumer, PushConsumer
from eruca.client.errors import CallTimeout, ClientError
from tests.client.conftest import Lab, Seen
from tests.support.proxy import Proxy
from tests.support.scripted import Scripted

QUEUE = MessageQueue("T", "broker-a", 0)


class Line:
    """A broker that clients reach through a proxy, by a nameserver that says so."""

    def __init__(self, proxy: Proxy, names: Scripted) -> None:
        self.proxy = proxy
        self.settings = ClientSettings(nameserver=names.address, request_timeout=1, heartbeat_interval=0.5)


@pytest.fixture
async def line(lab: Lab) -> AsyncIterator[Line]:
    await lab.send("T", b"before")
    proxy = await Proxy(lab.cluster.broker.address).start()
    async with Scripted("names") as names:
        names.knows("T", SimpleNamespace(name="broker-a", address=proxy.address), queues=4)  # type: ignore[arg-type]
        names.knows("%RETRY%g", SimpleNamespace(name="broker-a", address=proxy.address))  # type: ignore[arg-type]
        yield Line(proxy, names)
    await proxy.stop()


async def test_a_producer_leaves_a_connection_that_is_dead(line: Line) -> None:
    async with Producer("p", settings=line.settings, send_timeout=0.3, retries=0) as producer:
        await producer.send(Message("T", b"1"), timeout=30)  # asks for the route and connects, too
        line.proxy.mute()
        with pytest.raises(CallTimeout):
            await producer.send(Message("T", b"2"))
        async with asyncio.timeout(20):
            while True:
                try:
                    await producer.send(Message("T", b"3"))
                except ClientError:
                    continue
                break
    assert line.proxy.connections == 2


async def test_a_question_leaves_it_too(line: Line) -> None:
    async with PullConsumer("g", settings=line.settings) as puller:
        assert await puller.min_offset(QUEUE) == 0
        line.proxy.mute()
        with pytest.raises(CallTimeout):
            await puller.min_offset(QUEUE)
        async with asyncio.timeout(20):
            while True:
                try:
                    assert await puller.min_offset(QUEUE) == 0
                except ClientError:
                    continue
                break


async def test_a_consumer_that_only_waits_finds_out_by_its_heartbeat(line: Line, lab: Lab, seen: Seen) -> None:
    async with PushConsumer("g", seen.coroutine, settings=line.settings, start_from="first").subscribe("T"):
        await seen.reaches(1)
        line.proxy.mute()
        await lab.send("T", b"meanwhile")  # not by the proxy
        await seen.reaches(2, within=20)
    assert seen.bodies == [b"before", b"meanwhile"]


async def test_an_answer_that_comes_too_late_belongs_to_nobody(line: Line, lab: Lab) -> None:
    """And who answers late is there: that connection is not left."""
    async with Producer("p", settings=line.settings, retries=0) as producer:
        first = await producer.send(Message("T", b"1"), queue=QUEUE)
        line.proxy.delay = 0.2
        for _ in range(3):
            with pytest.raises(CallTimeout):
                await producer.send(Message("T", b"late"), queue=QUEUE, timeout=0.1)
        line.proxy.delay = 0.0
        last = await producer.send(Message("T", b"2"), queue=QUEUE, timeout=10)
    assert last.offset == first.offset + 4  # all were stored, and the last answer is that of the last message
    async with PullConsumer("g", nameserver=lab.address) as puller:
        (record,) = (await puller.pull(QUEUE, last.offset, 1)).records
    assert (record.body, record.unique_key) == (b"2", last.message_id)
    assert line.proxy.connections == 1
