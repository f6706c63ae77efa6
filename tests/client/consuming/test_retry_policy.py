"""When a failed message comes again: by the consumer's own times, exact where the broker knows any delay."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from eruca.client import Backoff, Later, Message, PushConsumer, ReceivedMessage, Suspend
from eruca.client.consuming.push_consumer import engine_of
from eruca.client.consuming.retry_delays import delays_of
from eruca.client.consuming.retry_policy import RetryPolicy
from eruca.client.errors import BadConfig, UsageError
from tests.client.conftest import Lab, Seen, eventually


def test_the_times_of_a_backoff() -> None:
    assert [Backoff().seconds(times) for times in (0, 1, 2, 8, 9, 10**9)] == [1, 2, 4, 256, 300, 300]
    assert [Backoff(first=5, factor=1).seconds(times) for times in (0, 7, 10**9)] == [5, 5, 5]
    assert Backoff(first=0).seconds(3) == 0


def test_what_is_said_wins_over_the_backoff() -> None:
    policy = RetryPolicy(16, Backoff(first=3))
    assert policy.wait(0, Later()) == policy.wait(0, None) == 3
    assert policy.wait(1, Suspend()) == 6
    assert policy.wait(0, Later(seconds=7)) == policy.wait(0, Suspend(7)) == 7
    assert policy.wait(0, Later(delay_level=4)) is None
    assert RetryPolicy(16).wait(0, Later()) is None


def test_what_a_broker_knows_by_its_configuration() -> None:
    apache = delays_of({"messageDelayLevel": "1s 5s 10s 30s 1m"})
    assert (apache.exact(5), apache.nearest(0), apache.nearest(7), apache.nearest(8), apache.nearest(999)) == (
        *(False, 1, 2),
        *(3, 5),
    )
    eruca = delays_of({"messageDelayLevel": "1s", "timerMaxDelaySec": "60"})
    assert eruca.exact(0.05) and eruca.exact(60) and not eruca.exact(61)
    assert not delays_of({"timerMaxDelaySec": "60", "timerWheelEnable": "false"}).exact(5)
    assert delays_of({"messageDelayLevel": "soon"}).nearest(7200) == 18


def test_wrong_values() -> None:
    for make in (
        lambda: Backoff(first=-1),
        lambda: Backoff(factor=0.5),
        lambda: Backoff(most=float("inf")),
        lambda: Later(seconds=-1),
        lambda: Later(delay_level=3, seconds=1),
    ):
        with pytest.raises(UsageError):
            make()
    options: Any = {"retry": 5}
    with pytest.raises(BadConfig, match=r"retry is of type int: Backoff\(...\) is expected"):
        PushConsumer("g", print, nameserver="mq:1", **options)


class Tries:
    """A listener that fails until the fourth time, and when it was called."""

    def __init__(self, outcome: Any = None) -> None:
        self.seen = Seen()
        self.times: list[float] = []
        self._outcome = outcome

    async def __call__(self, message: ReceivedMessage) -> Any:
        self.times.append(time.monotonic())
        self.seen.add(message)
        if len(self.times) == 4:
            return None
        if self._outcome is None:
            raise ValueError("not yet")
        return self._outcome

    @property
    def waits(self) -> list[float]:
        return [later - before for before, later in zip(self.times, self.times[1:], strict=False)]


async def test_a_backoff_is_exact_at_a_broker_that_knows_any_delay(lab: Lab) -> None:
    tries = Tries()
    sent = await lab.producer.send(Message("T", b"x", keys="k", tags="t"))
    consumer: PushConsumer = PushConsumer(
        "g", tries, nameserver=lab.address, start_from="first", retry=Backoff(first=0.1, factor=2, most=0.2)
    )
    async with consumer.subscribe("T"):
        await tries.seen.reaches(4)
        assert (engine_of(consumer).stats.retried, engine_of(consumer).stats.dead) == (3, 0)
    assert [message.reconsume_times for message in tries.seen.messages] == [0, 1, 2, 3]
    last = tries.seen.messages[-1]
    assert (last.topic, last.keys, last.tags, last.message_id) == ("T", ["k"], "t", sent.message_id)
    assert all(least <= wait < least + 1 for least, wait in zip((0.1, 0.2, 0.2), tries.waits, strict=True)), tries.waits


async def test_what_takes_too_long_comes_again_after_these_times_too(lab: Lab) -> None:
    tries, released = Tries(), asyncio.Event()

    async def listener(message: ReceivedMessage) -> None:
        tries.seen.add(message)
        if len(tries.seen.messages) == 1:
            await released.wait()

    await lab.send("T", b"x")
    consumer: PushConsumer = PushConsumer(
        "g", listener, nameserver=lab.address, start_from="first", retry=Backoff(first=0.1), consume_timeout=0.1
    )
    async with consumer.subscribe("T"):
        await tries.seen.reaches(2, within=8)  # the first of RocketMQ's levels would be 10 s
        released.set()
    assert [message.reconsume_times for message in tries.seen.messages] == [0, 1]


async def test_later_in_seconds(lab: Lab) -> None:
    tries = Tries(Later(seconds=0.05))
    await lab.send("T", b"x")
    async with PushConsumer("g", tries, nameserver=lab.address, start_from="first").subscribe("T"):
        await tries.seen.reaches(4)
    assert all(0.05 <= wait < 1 for wait in tries.waits), tries.waits


async def test_orderly_the_queue_is_suspended_for_these_times(lab: Lab) -> None:
    tries = Tries()
    await lab.send("T", b"x")
    async with PushConsumer(
        "g", tries, nameserver=lab.address, start_from="first", orderly=True, retry=Backoff(first=0.05, factor=2)
    ).subscribe("T"):
        await tries.seen.reaches(4)
    assert all(least <= wait < least + 1 for least, wait in zip((0.05, 0.1, 0.2), tries.waits, strict=True))


async def test_the_nearest_level_where_a_broker_has_no_such_delay_and_it_is_said_once(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "eruca.client")
    lab.cluster.broker.config.store.timer_max_delay_sec = 1
    tries = Tries()
    await lab.send("T", b"x")
    async with PushConsumer(
        "g", tries, nameserver=lab.address, start_from="first", retry=Backoff(first=4, factor=1)
    ).subscribe("T") as consumer:
        await tries.seen.reaches(1)
        await eventually(lambda: engine_of(consumer).stats.retried == 1)
    told = [each.getMessage() for each in caplog.records if "has no delay of" in each.getMessage()]
    assert told == [
        "broker-a has no delay of 4 s for retries of g: they come after 5 s (level 2), those of more than 1 s after "
        "the nearest level, too"
    ]
