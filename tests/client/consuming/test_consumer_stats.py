"""How fast a consumer is, as operators are told."""

from __future__ import annotations

import asyncio

from eruca.client import Later, PushConsumer, ReceivedMessage
from eruca.client.consuming.consumer_stats import ConsumerStats, TopicStats
from eruca.protocol import api
from eruca.protocol.bodies import ConsumerRunningInfo
from eruca.protocol.headers.clients import ConsumerRunningInfoOf
from tests.client.conftest import Lab, eventually


def test_a_pace_is_that_of_the_last_minute() -> None:
    pace = TopicStats(1000.0)
    for second in range(1000, 1300):
        pace.consumed += 5
        pace.failed += 1
        pace.runs += 2
        pace.run_seconds += 0.5
        pace.pulled += 6
        pace.pulls += 1
        pace.pull_seconds += 0.1
        pace.sample(float(second + 1))
    status = pace.status(1300.0)
    assert (status.consume_ok_tps, status.consume_failed_tps, status.pull_tps) == (5.0, 1.0, 6.0)
    assert (round(status.consume_rt), round(status.pull_rt), status.consume_failed_msgs) == (250, 100, 300)


def test_the_time_of_a_listener_is_that_of_the_last_hour_when_nothing_came_for_a_minute() -> None:
    pace = TopicStats(0.0)
    pace.runs, pace.run_seconds, pace.failed = 2, 3.0, 1
    for second in range(1, 5000):
        pace.sample(float(second))
        if second == 600:
            assert pace.status(600.0).consume_ok_tps == 0 and pace.status(600.0).consume_rt == 1500
    assert pace.status(5000.0).consume_rt == 0 and pace.status(5000.0).consume_failed_msgs == 0


def test_all_topics_together() -> None:
    paces = ConsumerStats(0.0)
    paces["a"].consumed, paces["b"].consumed, paces["b"].failed = 1, 2, 3
    assert (paces.consumed, paces.failed) == (3, 3)


async def test_operators_are_told(lab: Lab) -> None:
    async def listener(message: ReceivedMessage) -> Later | None:
        await asyncio.sleep(0.01)
        return Later() if message.body == b"later" else None

    await lab.send("T", b"ok", b"ok", b"ok", b"later")
    async with PushConsumer("g", listener, nameserver=lab.address).subscribe("T") as consumer:
        await eventually(lambda: consumer.stats.consumed + consumer.stats.failed == 4)
        assert consumer.session is not None
        ask = ConsumerRunningInfoOf(consumer_group="g", client_id=consumer.session.client_id)
        session = lab.puller.session
        answer = await session.call(await session.master("broker-a", "T"), api.GET_CONSUMER_RUNNING_INFO, ask)
    status = ConsumerRunningInfo.decode(answer.body).status_table["T"]
    assert status.consume_failed_msgs == 1 and status.consume_rt >= 10
    assert round(status.consume_ok_tps / status.consume_failed_tps) == 3
    assert status.pull_tps > 0 and status.pull_rt >= 0
