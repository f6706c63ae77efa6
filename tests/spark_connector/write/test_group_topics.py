"""Rows that are sent to a group's topic of retries: its consumer takes them for its own topic's, at the asked rate."""

from __future__ import annotations

import asyncio
import time

import pyarrow as pa

from eruca.client import PushConsumer, ReceivedMessage
from eruca.protocol import names
from eruca.spark_connector.sink import write_rows
from eruca.spark_connector.sink_options import read_sink_options
from eruca.spark_connector.write.row_ids import Origin
from tests.support.spark import Topic


def rows(topic: str, count: int) -> pa.RecordBatch:
    pairs = [("shop", "s1"), (names.RETRY_TOPIC, topic), (names.DELAY, "3")]
    kind = pa.map_(pa.string(), pa.string())
    return pa.record_batch(
        {
            "body": pa.array([f"row {number}".encode() for number in range(count)], pa.binary()),
            "properties": pa.array([pairs] * count, kind),
        }
    )


def test_a_groups_consumer_takes_rows_for_messages_of_its_topic(topic: Topic) -> None:
    group = f"{topic.name}_readers"

    async def run() -> list[ReceivedMessage]:
        found: list[ReceivedMessage] = []
        news = asyncio.Event()

        async def keep(message: ReceivedMessage) -> None:
            found.append(message)
            news.set()

        async def until(count: int) -> None:
            async with asyncio.timeout(60):
                while len(found) < count:
                    news.clear()
                    await news.wait()

        consumer = PushConsumer(group, keep, nameserver=topic.name_server, start_from="first")
        consumer.subscribe(topic.name)
        async with consumer:
            await asyncio.to_thread(topic.fill, 1)
            await until(1)
            given = {"nameServer": topic.name_server, "topic": names.retry_topic(group), "maxRowsPerSecond": "40"}
            options = read_sink_options(given, streaming=False)
            await asyncio.to_thread(write_rows, options, Origin("w", 0, 0), iter([rows(topic.name, 30)]))
            await until(31)
        return found[1:]

    began = time.monotonic()
    found = asyncio.run(run())

    assert sorted(message.body for message in found) == sorted(f"row {number}".encode() for number in range(30))
    assert {message.topic for message in found} == {topic.name}
    assert {message.properties["shop"] for message in found} == {"s1"}
    assert not any(names.DELAY in message.properties for message in found), "RocketMQ's other names are left out"
    assert time.monotonic() - began >= 0.5


def test_elsewhere_retry_topic_is_left_out(topic: Topic) -> None:
    options = read_sink_options({"nameServer": topic.name_server, "topic": topic.name}, streaming=False)

    write_rows(options, Origin("w", 0, 0), iter([rows("another", 3)]))

    found: list[ReceivedMessage] = []

    async def run() -> None:
        done = asyncio.Event()

        async def keep(message: ReceivedMessage) -> None:
            found.append(message)
            if len(found) == 3:
                done.set()

        consumer = PushConsumer(f"{topic.name}_g", keep, nameserver=topic.name_server, start_from="first")
        consumer.subscribe(topic.name)
        async with consumer, asyncio.timeout(60):
            await done.wait()

    asyncio.run(run())

    assert {message.topic for message in found} == {topic.name}
    assert not any(names.RETRY_TOPIC in message.properties for message in found)
