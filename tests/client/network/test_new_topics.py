"""The first message of a topic that it creates: consumed at once, whatever consumes it in the program that sends."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path
from statistics import median
from time import monotonic

import pytest

from eruca.broker.app import BrokerApp
from eruca.client import (
    ClientSettings,
    LitePullConsumer,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    sync,
)
from eruca.client.selectors import by_hash
from tests.client.conftest import Lab, Seen, eventually, small_broker
from tests.support.programme import amount

SOON = 1.0
"""Seconds that a busy machine may take; the regular looks for a topic come after 2 s."""
AT_ONCE = 0.1
"""What it takes at most where the machine is idle, so that half of many take no longer on any."""
PATIENT = 10.0


async def test_a_listener_gets_it(lab: Lab, seen: Seen) -> None:
    await lab.send("Warm", b"x")
    async with PushConsumer("g", seen.coroutine, nameserver=lab.address).subscribe("BrandNew") as consumer:
        assert consumer.session is lab.producer.session
        await eventually(lambda: len(consumer.queues) > 0)  # of the retry topic
        await lab.send("BrandNew", b"first")
        await seen.reaches(1, within=SOON)


async def test_a_member_with_a_session_of_its_own_gets_it(lab: Lab, seen: Seen) -> None:
    settings = ClientSettings(nameserver=lab.address, instance_name="another")
    async with PushConsumer("g", seen.coroutine, settings=settings).subscribe("BrandNew") as consumer:
        assert consumer.session is not lab.producer.session
        await lab.send("BrandNew", b"first")
        await seen.reaches(1, within=SOON)


async def test_a_lite_pull_consumer_polls_it(lab: Lab) -> None:
    await lab.send("Warm", b"x")
    async with LitePullConsumer("g", nameserver=lab.address).subscribe("BrandNew") as consumer:
        await lab.send("BrandNew", b"first")
        assert [message.body for message in await consumer.poll(SOON)] == [b"first"]


async def test_a_pull_consumer_is_told_of_its_queues(lab: Lab) -> None:
    told: asyncio.Queue[str] = asyncio.Queue()
    consumer = PullConsumer("g", nameserver=lab.address)

    async def listener(topic: str, queues: object, mine: object) -> None:
        told.put_nowait(topic)

    await consumer.register_message_queue_listener("BrandNew", listener)
    async with consumer:
        await lab.send("BrandNew", b"first")
        async with asyncio.timeout(SOON):
            assert await told.get() == "BrandNew"


async def test_a_request_is_answered(lab: Lab) -> None:
    async def answer(message: ReceivedMessage) -> None:
        await lab.producer.reply(message, message.body.upper())

    await lab.send("Warm", b"x")
    async with PushConsumer("g", answer, nameserver=lab.address).subscribe("Questions"):
        reply = await lab.producer.request(Message("Questions", b"first"), timeout=2 * SOON)
    assert reply.body == b"FIRST"


async def test_one_way_sends_count_as_well(lab: Lab, seen: Seen) -> None:
    await lab.send("Warm", b"x")
    async with PushConsumer("g", seen.coroutine, nameserver=lab.address).subscribe("BrandNew"):
        await lab.producer.send_oneway(Message("BrandNew", b"first"))
        await seen.reaches(1, within=2 * SOON)  # nobody knows when it was stored


async def test_batches_and_chosen_queues_count_as_well(lab: Lab, seen: Seen) -> None:
    async with PushConsumer("g", seen.coroutine, nameserver=lab.address).subscribe("One").subscribe("Two"):
        await lab.producer.send_batch([Message("One", b"a"), Message("One", b"b")])
        await seen.reaches(2, within=SOON)
        await lab.producer.send(Message("Two", b"c"), selector=by_hash, arg=1)
        await seen.reaches(3, within=SOON)


def test_a_blocking_program_with_the_fixtures(rocketmq_env: str) -> None:
    with sync.Producer("p") as producer, sync.LitePullConsumer("g").subscribe("BrandNewSync") as consumer:
        producer.send(Message("BrandNewSync", b"first"))
        assert [message.body for message in consumer.poll(SOON)] == [b"first"]


async def test_an_asynchronous_program_with_the_fixtures(rocketmq_env: str, seen: Seen) -> None:
    async with Producer("p") as producer, PushConsumer("g", seen.coroutine).subscribe("BrandNewAsync"):
        await producer.send(Message("BrandNewAsync", b"first"))
        await seen.reaches(1, within=SOON)


@pytest.mark.slow
async def test_many_new_topics_in_a_row(lab: Lab) -> None:
    topics = [f"New-{number}" for number in range(amount(200, 1000))]
    stored: dict[str, float] = {}
    came: defaultdict[str, float] = defaultdict(float)
    news = asyncio.Event()

    async def listener(message: ReceivedMessage) -> None:
        came[message.topic] = monotonic()
        news.set()

    consumer = PushConsumer("g", listener, nameserver=lab.address, start_from="first")
    for topic in topics:
        consumer.subscribe(topic)
    async with consumer, Producer("p", nameserver=lab.address, new_topic_queues=1) as producer:
        for topic in topics:
            await producer.send(Message(topic, b"first"))
            stored[topic] = monotonic()
            async with asyncio.timeout(PATIENT):
                while topic not in came:
                    news.clear()
                    await news.wait()
    late = sorted(came[topic] - stored[topic] for topic in topics)
    assert median(late) < AT_ONCE
    assert late[-1] < SOON, late[-20:]


async def test_all_brokers_create_a_topic_that_several_of_them_may(tmp_path: Path, lab: Lab, seen: Seen) -> None:
    """A consumer that finds the topic at one broker does not keep the producer from the others."""
    config = small_broker()
    config.broker_name, config.namesrv_addr = "broker-b", lab.address
    config.broker_ip1 = config.broker_ip2 = config.server.bind_address = "127.0.0.1"
    config.server.listen_port = 0
    config.store.store_path_root_dir = str(tmp_path / "b")
    other = BrokerApp(config)
    await other.start()
    try:
        async with PushConsumer("g", seen.coroutine, nameserver=lab.address, start_from="first").subscribe("Spread"):
            for number in range(16):
                await lab.send("Spread", b"%d" % number)
                await eventually(lambda: "Spread" in lab.producer.session.directory.routes)
            await lab.producer.session.directory.refresh("Spread")
            await seen.reaches(16)
    finally:
        await other.stop()
    assert {message.queue.broker_name for message in seen.messages} == {"broker-a", "broker-b"}
