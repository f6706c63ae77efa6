"""Where a group begins that has no offset yet: "end" and times skip what is there, also where a broker says 0."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from eruca.client import LitePullConsumer, Message, MessageQueue, PushConsumer
from tests.client.conftest import Lab, Seen


async def test_the_end_skips_what_is_there(lab: Lab, seen: Seen) -> None:
    await lab.send("T", *[b"old"] * 8)
    async with PushConsumer("last", seen.coroutine, nameserver=lab.address).subscribe("T"):
        await seen.reaches(8)  # to a broker the topic is young
    async with PushConsumer("end", seen.coroutine, nameserver=lab.address, start_from="end").subscribe("T"):
        assert await lab.offsets("end", "T") == [2, 2, 2, 2]  # stored at once, so that nothing is skipped twice
        await lab.send("T", b"new")
        await seen.reaches(9)
    assert seen.bodies == [b"old"] * 8 + [b"new"]


async def test_a_stored_offset_counts_even_if_it_is_0(lab: Lab, seen: Seen) -> None:
    await lab.send("T", *[b"old"] * 8)
    await lab.puller.update_offset(MessageQueue("T", "broker-a", 1), 0, group="end")
    async with PushConsumer("end", seen.coroutine, nameserver=lab.address, start_from="end").subscribe("T"):
        await seen.reaches(2)
        await lab.stores("end", "T", [2, 2, 2, 2])
    assert {message.queue.queue_id for message in seen.messages} == {1}


@pytest.mark.parametrize("form", [lambda at: at, lambda at: int(at.timestamp() * 1000)], ids=["datetime", "ms"])
async def test_a_time_is_the_first_message_since_then(lab: Lab, seen: Seen, form: Callable[[datetime], Any]) -> None:
    await lab.send("T", *[b"old"] * 8)
    await asyncio.sleep(0.02)  # a moment between two store times, nearer to the older one
    at = datetime.now()
    await asyncio.sleep(0.05)
    await lab.send("T", *[b"new"] * 8)
    async with PushConsumer("push", seen.coroutine, nameserver=lab.address, start_from=form(at)).subscribe("T"):
        assert await lab.offsets("push", "T") == [2, 2, 2, 2]
        await seen.reaches(8)
    async with LitePullConsumer("lite", nameserver=lab.address, start_from=form(at)).subscribe("T") as consumer:
        found = [message.body for message in await consumer.poll(10, max_messages=100)]
    assert {*seen.bodies} | {*found} == {b"new"}


async def test_a_time_to_come_is_the_end(lab: Lab, seen: Seen) -> None:
    await lab.send("T", *[b"old"] * 8)
    tomorrow = datetime.now() + timedelta(days=1)
    async with PushConsumer("g", seen.coroutine, nameserver=lab.address, start_from=tomorrow).subscribe("T"):
        assert await lab.offsets("g", "T") == [2, 2, 2, 2]
        await lab.send("T", b"new")
        await seen.reaches(1)
    assert seen.bodies == [b"new"]


async def test_all_messages_of_the_ms_that_is_named(lab: Lab) -> None:
    queue = MessageQueue("T", "broker-a", 0)
    for start in range(0, 300, 50):
        sends = [lab.producer.start_send(Message("T", b"%d" % (start + number)), queue=queue) for number in range(50)]
        await asyncio.gather(*sends)
    stored = [record.store_timestamp for record in (await lab.puller.pull(queue, 0, 300)).records]
    while len(stored) < 300:
        stored += [record.store_timestamp for record in (await lab.puller.pull(queue, len(stored), 300)).records]
    for at in {*stored}:
        async with LitePullConsumer(f"at-{at}", nameserver=lab.address, start_from=at).subscribe("T") as consumer:
            found = [each for each in await consumer.poll(10) if each.queue == queue]
        assert found[0].queue_offset == stored.index(at)
