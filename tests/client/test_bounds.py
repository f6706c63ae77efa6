"""The time that one call may take: shorter or longer than its requests may by themselves, and for nothing else."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

import eruca.client
from eruca.client import (
    ClientSettings,
    LitePullConsumer,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    ReceivedMessage,
    lag,
)
from eruca.client.errors import BadConfig, CallTimeout
from tests.client.conftest import Lab
from tests.support.proxy import Proxy
from tests.support.scripted import Scripted

QUEUE = MessageQueue("T", "broker-a", 0)
UNBOUNDED = {
    "start",  # asks as little as it can
    "stop",  # has the stop_timeout
    "update_nameserver_address",  # asks nobody
}


class Line:
    """A broker behind a proxy, which clients reach by a nameserver that says so."""

    def __init__(self, proxy: Proxy, settings: ClientSettings) -> None:
        self.proxy = proxy
        self.settings = settings


@pytest.fixture
async def line(lab: Lab) -> AsyncIterator[Line]:
    await lab.producer.send(Message("T", b"x"), queue=QUEUE)
    proxy = await Proxy(lab.cluster.broker.address).start()
    async with Scripted("names") as names:
        broker: Any = SimpleNamespace(name="broker-a", address=proxy.address)
        for topic in ("T", "%RETRY%g", "TBW102"):
            names.knows(topic, broker, perm=7)
        yield Line(proxy, ClientSettings(nameserver=names.address))
    await proxy.stop()


def test_every_call_that_asks_somebody_can_be_bounded() -> None:
    kinds = ("Producer", "TransactionProducer", "PushConsumer", "PullConsumer", "LitePullConsumer")
    calls = {
        f"{kind}.{name}": inspect.signature(call).parameters
        for kind in (*kinds, "PullScheduleService")
        for name, call in inspect.getmembers(getattr(eruca.client, kind), inspect.iscoroutinefunction)
        if not name.startswith("_") and name not in UNBOUNDED
    }
    assert [name for name, parameters in calls.items() if "timeout" not in parameters] == []
    assert len(calls) > 60 and "timeout" in inspect.signature(lag).parameters


async def test_a_broker_that_is_silent_costs_the_time_that_was_given(line: Line, lab: Lab) -> None:
    (record,) = (await lab.puller.pull(QUEUE, 0)).records
    settings = ClientSettings(nameserver=line.settings.nameserver, request_timeout=60)
    lite = LitePullConsumer("g", settings=settings, auto_commit=False)
    lite.assign([QUEUE])
    async with Producer("p", settings=settings) as producer, PullConsumer("g", settings=settings) as puller, lite:
        await lite.seek(QUEUE, 0, timeout=20)
        await lite.poll()
        await producer.send(Message("T", b"x"))
        line.proxy.mute()
        silent: list[Callable[[], Coroutine[Any, Any, object]]] = [
            lambda: producer.create_topic("New", timeout=0.1),
            lambda: producer.min_offset(QUEUE, timeout=0.1),
            lambda: producer.max_offset(QUEUE, timeout=0.1),
            lambda: producer.offset_for_timestamp(QUEUE, 0, timeout=0.1),
            lambda: producer.earliest_store_time(QUEUE, timeout=0.1),
            lambda: producer.view_message(record.unique_key or "", topic="T", timeout=0.1),
            lambda: producer.query_messages("T", "k", timeout=0.1),
            lambda: puller.query_offset(QUEUE, timeout=0.1),
            lambda: puller.update_offset(QUEUE, 0, timeout=0.1),
            lambda: puller.send_message_back(ReceivedMessage(record, QUEUE), timeout=0.1),
            lambda: puller.pull_block_if_not_found(QUEUE, 7, timeout=0.1),
            lambda: lite.seek(QUEUE, 0, timeout=0.1),
            lambda: lite.seek_to_begin(QUEUE, timeout=0.1),
            lambda: lite.seek_to_end(QUEUE, timeout=0.1),
            lambda: lite.offset_for_timestamp(QUEUE, 0, timeout=0.1),
            lambda: lite.commit_sync(timeout=0.1),
            lambda: lite.commit([QUEUE], timeout=0.1),
        ]
        began = asyncio.get_running_loop().time()
        for call in silent:
            with pytest.raises(CallTimeout):
                await call()
        assert asyncio.get_running_loop().time() - began < 30, "half a minute and not half an hour"
        with pytest.raises(BadConfig, match="timeout=0 is not allowed"):
            await producer.min_offset(QUEUE, timeout=0)
        line.proxy.cut()


async def test_a_slow_broker_gets_the_time_that_was_given(line: Line) -> None:
    settings = ClientSettings(nameserver=line.settings.nameserver, request_timeout=0.5)
    async with PullConsumer("g", settings=settings) as puller:
        await puller.min_offset(QUEUE, timeout=20)
        line.proxy.delay = 1.0
        assert await puller.min_offset(QUEUE, timeout=30) == 0
        with pytest.raises(CallTimeout):
            await puller.min_offset(QUEUE)


async def test_what_goes_on_after_a_call_is_not_bounded_by_it(
    line: Line, lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    """The pull that begins with a seek waits at the broker for longer than the seek may take."""
    lite = LitePullConsumer("g", settings=line.settings, auto_commit=False)
    lite.assign([QUEUE])
    async with lite:
        await lite.seek_to_end(QUEUE, timeout=1.0)
        assert await lite.poll(1.5) == []
        await lab.producer.send(Message("T", b"y"), queue=QUEUE)
        assert [message.body for message in await lite.poll(20)] == [b"y"]
    assert [each.getMessage() for each in caplog.records if each.name == "eruca.client"] == []


async def test_one_way_sends_wait_no_longer(line: Line) -> None:
    async with Producer("p", settings=line.settings) as producer:
        await producer.send(Message("T", b"x"))
        address = await producer.session.to_send("broker-a", "T")
        connection = producer.session.ready(address)
        assert connection is not None
        connection.pause_writing()  # as the event loop tells it
        with pytest.raises(CallTimeout, match=r"send_oneway was not done within its timeout=0\.05 s"):
            await producer.send_oneway(Message("T", b"x"), timeout=0.05)
        connection.resume_writing()
        await producer.send_oneway(Message("T", b"x"), timeout=20)
