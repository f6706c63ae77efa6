"""What lasts is told once, not at each attempt: a broker that is away, a topic not there, a loop that stands still."""

from __future__ import annotations

import logging
import time
from dataclasses import replace

import pytest

from eruca.client import PushConsumer
from eruca.client.consuming.push_consumer import engine_of
from eruca.client.log import Trouble
from eruca.protocol import api
from eruca.protocol.headers.topics import CreateTopic
from tests.client.conftest import HASTY, Lab, Seen, eventually


def test_the_same_is_told_again_only_after_a_while(caplog: pytest.LogCaptureFixture) -> None:
    clock = iter((1000.0, 1001.0, 1002.0, 1003.0, 1062.0, 1063.0))
    each = Trouble(lambda: next(clock))
    for text in ("away", "away", "refused", "refused", "refused"):
        each.warn(text)
    each.over()
    each.warn("refused")
    told = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert told == ["away", "refused", "refused", "refused"]


async def test_a_broker_away_is_told_once_for_a_queue(lab: Lab, seen: Seen, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "eruca.client")
    await lab.send("T", b"m")
    consumer = PushConsumer("g", seen.coroutine, nameserver=lab.address).subscribe("T")
    engine_of(consumer).pull_options = replace(engine_of(consumer).pull_options, after_error=0.01)
    async with consumer:
        await seen.reaches(1)
        await lab.cluster.broker.stop()
        await eventually(lambda: caplog.text.count("queueId=0] failed, retrying") >= 10)
        await lab.restart_broker()
        await lab.send("T", b"again")
        await seen.reaches(2)
    warned = [each.message for each in caplog.records if each.levelno == logging.WARNING]
    warned = [each for each in warned if "topic=T, brokerName=broker-a, queueId=0] failed" in each]
    assert 1 <= len(warned) == len(set(warned))


async def test_a_topic_that_is_not_there_is_told_once(lab: Lab, seen: Seen, caplog: pytest.LogCaptureFixture) -> None:
    async with PushConsumer("g", seen.coroutine, nameserver=lab.address, settings=HASTY).subscribe("Later"):
        await eventually(lambda: "no broker has the topic Later yet: g waits for it" in caplog.text)
        await lab.send("Later", b"m")
        await seen.reaches(1)
    assert caplog.text.count("no broker has the topic") == 1


@pytest.mark.parametrize("backlog", [True, False])
async def test_a_listener_that_keeps_the_loop_is_told_so(
    backlog: bool, lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    async def listener(message: object) -> None:
        time.sleep(0.6)  # noqa: ASYNC251

    if backlog:
        await lab.send("T", b"m")
    async with PushConsumer("g", listener, nameserver=lab.address, settings=HASTY, start_from="first").subscribe("T"):
        if not backlog:
            await lab.send("T", b"m")
        await eventually(lambda: "the event loop stood still for" in caplog.text)


async def test_queues_that_nobody_may_read_any_more_are_let_go(lab: Lab, seen: Seen) -> None:
    """At the first refusal, not with the next regular look at the route, after half a minute."""
    await lab.send("T", b"m")
    consumer = PushConsumer("g", seen.coroutine, nameserver=lab.address).subscribe("T")
    engine_of(consumer).pull_options = replace(engine_of(consumer).pull_options, hold=0.1, after_error=0.1)
    session = lab.producer.session
    ask = CreateTopic(topic="T", default_topic="TBW102", read_queue_nums=4, write_queue_nums=4, perm=2)
    async with consumer:
        await seen.reaches(1)
        await session.call(await session.master("broker-a", "T"), api.UPDATE_AND_CREATE_TOPIC, ask)
        await eventually(lambda: all(queue.topic != "T" for queue in consumer.queues))
