"""Listeners that take too long: their messages go back and come again, and nothing else waits for them."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest

from eruca.client import Later, Message, PushConsumer, ReceivedMessage
from eruca.client.consuming import concurrent
from eruca.client.consuming.push_consumer import engine_of
from eruca.client.errors import BadConfig, UsageError
from eruca.protocol import names
from tests.client.conftest import HASTY, Lab, Seen, eventually
from tests.support.computing import look


@pytest.mark.parametrize("kind", ["coroutine", "function", "loop"])
async def test_what_takes_too_long_goes_back(
    lab: Lab, seen: Seen, kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The position goes on without it, it comes again, and what the late listener says does not count."""
    monkeypatch.setattr(concurrent, "FIRST_RETRY_LEVEL", 1)
    await lab.send("T", b"slow")
    release, released = threading.Event(), asyncio.Event()

    async def coroutine(message: ReceivedMessage) -> Later | None:
        seen.add(message)
        if message.reconsume_times == 0:
            await released.wait()
            return Later()
        return None

    def function(message: ReceivedMessage) -> Later | None:
        seen.function(message)
        if message.reconsume_times == 0:
            release.wait(30)
            return Later()
        return None

    listener: Any = {"coroutine": coroutine, "function": function, "loop": None}[kind]
    consumer = PushConsumer("g", listener, nameserver=lab.address, consume_timeout=0.3).subscribe("T")
    async with consumer:
        if kind == "loop":
            messages = consumer.messages(auto_ack=False)
            first = await anext(messages)
            again = await anext(messages)
            again.ack()
            first.later()
            seen.add(first)
            seen.add(again)
        await seen.reaches(2, within=30)
        release.set()
        released.set()
        await eventually(lambda: "ended" in caplog.text)
        await eventually(lambda: engine_of(consumer).stats.consumed == 1)
        await lab.stores("g", "T", [end or 0 for end in await lab.ends("T")])
        assert (seen.messages[1].reconsume_times, seen.messages[1].topic) == (1, "T")
        assert "did not end within 0.3 s, sending back" in caplog.text and "too late" in caplog.text
        assert engine_of(consumer).stats.failed == 1
    retry = names.retry_topic("g")
    assert sum(end or 0 for end in await lab.ends(retry)) == 1  # not sent back a second time


async def test_a_slow_listener_holds_up_nothing_else(lab: Lab, seen: Seen) -> None:
    """Functions that block: other queues, heartbeats and the stop of another member go on."""
    release = threading.Event()

    def listener(message: ReceivedMessage) -> None:
        seen.function(message)
        if message.body == b"slow":
            release.wait(30)

    await lab.send("T", b"slow")
    try:
        async with PushConsumer("g", listener, nameserver=lab.address, stop_timeout=30).subscribe("T"):
            await seen.reaches(1)
            await lab.send("T", *[b"quick"] * 8)
            await seen.reaches(9)
            release.set()
    finally:
        release.set()


@pytest.mark.processes
async def test_a_listener_in_other_processes(lab: Lab) -> None:
    for tag in ("ok", "ok", "no"):
        await lab.producer.send(Message("T", b"x", tags=tag, keys=str(os.getpid())))
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        consumer = PushConsumer("g", look, nameserver=lab.address, executor=pool).subscribe("T")
        async with consumer:
            async with asyncio.timeout(60):
                while engine_of(consumer).stats.consumed + engine_of(consumer).stats.failed < 3:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
    assert (engine_of(consumer).stats.consumed, engine_of(consumer).stats.failed) == (2, 1)


async def test_what_cannot_be_is_refused(seen: Seen) -> None:
    with pytest.raises(UsageError, match="plain functions"):
        PushConsumer("g", seen.coroutine, nameserver="a:1", executor=ThreadPoolExecutor(1))
    with pytest.raises(BadConfig, match="consume_timeout=0"):
        PushConsumer("g", nameserver="a:1", consume_timeout=0)


async def test_a_return_that_fails_is_tried_again(lab: Lab, seen: Seen) -> None:
    """A broker that does not take it for the moment: the message is not lost by the time-out."""
    await lab.send("T", b"slow")
    lab.fill_disk()
    released = asyncio.Event()

    async def listener(message: ReceivedMessage) -> None:
        seen.add(message)
        if len(seen.messages) == 1:
            await released.wait()

    consumer = PushConsumer("g", listener, nameserver=lab.address, settings=HASTY, consume_timeout=0.1)
    async with consumer.subscribe("T"):
        await seen.reaches(2)
        await eventually(lambda: engine_of(consumer).stats.consumed == 1)
        released.set()
