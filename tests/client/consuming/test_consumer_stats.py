"""How fast a consumer is, as operators are told."""

from __future__ import annotations

import asyncio

from eruca.client import Later, PushConsumer, ReceivedMessage
from eruca.client.consuming.consumer_stats import ConsumerStats, TopicStats
from eruca.client.consuming.push_consumer import engine_of
from eruca.protocol import api
from eruca.protocol.bodies import ConsumerRunningInfo
from eruca.protocol.headers.clients import ConsumerRunningInfoOf
from tests.client.conftest import Lab, eventually


def test_a_pace_is_that_of_the_last_minute() -> None:
    stats = TopicStats(1000.0)
    for second in range(1000, 1300):
        stats.consumed += 5
        stats.failed += 1
        stats.runs += 2
        stats.run_seconds += 0.5
        stats.pulled += 6
        stats.pulls += 1
        stats.pull_seconds += 0.1
        stats.sample(float(second + 1))
    status = stats.status(1300.0)
    assert (status.consume_ok_tps, status.consume_failed_tps, status.pull_tps) == (5.0, 1.0, 6.0)
    assert (round(status.consume_rt), round(status.pull_rt), status.consume_failed_msgs) == (250, 100, 300)


def test_the_time_of_a_listener_is_that_of_the_last_hour_when_nothing_came_for_a_minute() -> None:
    stats = TopicStats(0.0)
    stats.runs, stats.run_seconds, stats.failed = 2, 3.0, 1
    for second in range(1, 5000):
        stats.sample(float(second))
        if second == 600:
            assert stats.status(600.0).consume_ok_tps == 0 and stats.status(600.0).consume_rt == 1500
    assert stats.status(5000.0).consume_rt == 0 and stats.status(5000.0).consume_failed_msgs == 0


def test_all_topics_together() -> None:
    stats = ConsumerStats(0.0)
    stats["a"].consumed, stats["b"].consumed, stats["b"].failed = 1, 2, 3
    assert (stats.consumed, stats.failed) == (3, 3)


async def test_operators_are_told(lab: Lab) -> None:
    async def listener(message: ReceivedMessage) -> Later | None:
        await asyncio.sleep(0.01)
        return Later() if message.body == b"later" else None

    await lab.send("T", b"ok", b"ok", b"ok", b"later")
    async with PushConsumer("g", listener, nameserver=lab.address).subscribe("T") as consumer:
        await eventually(lambda: engine_of(consumer).stats.consumed + engine_of(consumer).stats.failed == 4)
        assert consumer.session is not None
        ask = ConsumerRunningInfoOf(consumer_group="g", client_id=consumer.session.client_id)
        session = lab.puller.session
        answer = await session.call(await session.master("broker-a", "T"), api.GET_CONSUMER_RUNNING_INFO, ask)
    status = ConsumerRunningInfo.decode(answer.body).status_table["T"]
    assert status.consume_failed_msgs == 1 and status.consume_rt >= 10
    assert round(status.consume_ok_tps / status.consume_failed_tps) == 3
    assert status.pull_tps > 0 and status.pull_rt >= 0
