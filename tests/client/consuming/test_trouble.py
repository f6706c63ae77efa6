"""What lasts is told once, not at each attempt: a broker that is away, a topic not there, a loop that stands still."""

from __future__ import annotations

import logging
import re
import time

import pytest
from msgspec.structs import replace

from eruca.client import Message, MessageQueue, PushConsumer, ReceivedMessage
from eruca.client.consuming.push_consumer import engine_of
from eruca.client.log import Trouble, ranges
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


async def test_a_broker_that_goes_and_comes_back_is_two_lines(
    lab: Lab, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "eruca.client")
    await lab.send("T", b"m")
    consumer = PushConsumer("g", seen.coroutine, nameserver=lab.address).subscribe("T")
    engine_of(consumer).pull_options = replace(engine_of(consumer).pull_options, after_error=0.01)
    async with consumer:
        await seen.reaches(1)
        await lab.cluster.broker.stop()
        await eventually(lambda: caplog.text.count("queueId=0] failed, retrying") >= 10)
        (away,) = warnings(caplog)
        assert away.message == "broker-a is away: 5 queues of g wait (Connection refused)"
        assert vars(away)["queues"] == {"g": 5} and vars(away)["broker"] == "broker-a"  # for JSON logs
        await lab.restart_broker()
        await lab.send("T", b"again")
        await seen.reaches(2)
    _, back = warnings(caplog)
    assert re.fullmatch(r"broker-a is back after \d+\.\d s", back.message)


def warnings(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Those about the broker: on a busy machine there may be one of a loop that stood still, too."""
    return [each for each in caplog.records if each.levelno == logging.WARNING and "broker-a is" in each.message]


async def test_a_message_that_fails_is_told_with_what_one_looks_for(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    async def listener(message: ReceivedMessage) -> None:
        raise ValueError("no oven")

    async with PushConsumer("g", listener, nameserver=lab.address, start_from="first").subscribe("T"):
        sent = await lab.producer.send(Message("T", b"m", keys="order-7"))
        await eventually(lambda: "no oven" in caplog.text)
    told = f"the listener of g failed with message {sent.message_id} of T (keys order-7, try 1)"
    (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert record.message == told
    assert (vars(record)["topic"], vars(record)["keys"], vars(record)["attempt"]) == ("T", "order-7", 1)


async def test_many_queues_are_few_words(lab: Lab, seen: Seen, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "eruca.client")
    await lab.producer.create_topic("T", 64)
    async with PushConsumer("g", seen.coroutine, nameserver=lab.address).subscribe("T"):
        assert "g of T: gave up nothing; took broker-a 0-63" in caplog.messages
    queues = [MessageQueue("T", "a", each) for each in (0, 1, 3)] + [MessageQueue("T", "b", 2)]
    assert ranges(queues) == "a 0-1, 3, b 2"


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
