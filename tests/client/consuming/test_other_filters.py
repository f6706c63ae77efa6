"""A topic is subscribed with another filter while the consumer runs."""

from __future__ import annotations

import asyncio

import pytest

from eruca.client import PushConsumer
from eruca.client.consuming.push_consumer import engine_of
from eruca.client.errors import StateError
from tests.client.conftest import Lab, Seen
from tests.client.polled import fill


async def test_nothing_that_the_new_filter_wants_is_passed_over(lab: Lab, seen: Seen) -> None:
    await fill(lab, 3, tags="A")
    consumer = PushConsumer("g", seen.coroutine, nameserver=lab.address, start_from="first").subscribe("T", "A")
    async with consumer:
        await seen.reaches(3)
        consumer.subscribe("T", "B || C")
        await consumer.session.beat()  # from now on the broker filters anew
        await fill(lab, 3, start=3, tags="B")
        await fill(lab, 1, start=6, tags="A")  # wakes the pull that the broker held by the old filter
        await fill(lab, 1, start=7, tags="C")
        await seen.reaches(7)
    assert seen.bodies == [b"m0", b"m1", b"m2", b"m3", b"m4", b"m5", b"m7"]
    assert await lab.offsets("g", "T") == [8, 0, 0, 0]


async def test_what_only_the_new_filter_wants_is_not_waited_for(lab: Lab, seen: Seen) -> None:
    """The pull that a broker holds by the old filter is asked anew; it would be held for up to 15 s."""
    await fill(lab, 1, tags="A")
    consumer = PushConsumer("g", seen.coroutine, nameserver=lab.address, start_from="first").subscribe("T", "A")
    async with consumer:
        await seen.reaches(1)
        consumer.subscribe("T", "B")
        await fill(lab, 1, start=1, tags="B")
        await seen.reaches(2, within=10)


async def test_a_consumer_that_runs_is_changed_in_its_event_loop_only(lab: Lab, seen: Seen) -> None:
    async with PushConsumer("g", seen.coroutine, nameserver=lab.address).subscribe("T") as consumer:
        for change in (consumer.subscribe, consumer.unsubscribe):
            with pytest.raises(StateError, match="belongs to the event loop in which it was started"):
                await asyncio.to_thread(change, "T")
        assert set(engine_of(consumer).subscriptions) >= {"T"}
