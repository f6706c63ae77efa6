"""Many messages of many kinds, two brokers, every row compared with what was sent.

Here 20 thousand, a million with ERUCA_TORTURE.
"""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from eruca.client import Message, MessageQueue, Producer
from eruca.protocol import api
from eruca.protocol.headers.topics import CreateTopic
from tests.support.eruca import ErucaBroker, ErucaCluster
from tests.support.spark import PRODUCER_GROUP

COUNT = 1_000_000 if os.environ.get("ERUCA_TORTURE") else 20_000
TOPIC = "ByContent"
SCHEMA = "brokerName string, queueId int, queueOffset bigint, body binary, tags string, keys string"
ORDER = [("brokerName", "ascending"), ("queueId", "ascending"), ("queueOffset", "ascending")]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The address of a name server and those of its two brokers."""
    with ErucaCluster(tmp_path / "a") as cluster:
        other = ErucaBroker(tmp_path / "b", cluster.address, {"brokerName": "broker-b"})
        yield cluster.address, {"broker-a": cluster.broker.address, "broker-b": other.address}
        other.stop()


async def send(name_server: str, addresses: dict[str, str]) -> AsyncIterator[tuple[MessageQueue, int, Message]]:
    """Send COUNT messages: batches of all lengths, and now and then one alone that is large enough to be compressed."""
    chance = random.Random(7)
    async with Producer(PRODUCER_GROUP, nameserver=name_server) as producer:
        for address in addresses.values():
            ask = CreateTopic(topic=TOPIC, read_queue_nums=4, write_queue_nums=4, perm=6)
            await producer.session.call(address, api.UPDATE_AND_CREATE_TOPIC, ask)
        sent = 0
        while sent < COUNT:
            queue = MessageQueue(TOPIC, chance.choice(list(addresses)), chance.randrange(4))
            if chance.random() < 0.1:
                message = Message(TOPIC, b"%d " % sent * chance.randint(1000, 4000), tags="large", keys=f"k{sent}")
                yield queue, (await producer.send(message, queue=queue)).offset, message
                sent += 1
                continue
            tag = chance.choice(["a", "b", None])
            batch = [
                Message(TOPIC, chance.randbytes(chance.choice([1, 20, 128, 700])), tags=tag, keys=f"k{sent + each}")
                for each in range(min(COUNT - sent, chance.randint(1, 700)))
            ]
            first = (await producer.send_batch(batch, queue=queue)).offset
            for place, message in enumerate(batch):
                yield queue, first + place, message
            sent += len(batch)


@pytest.mark.timeout(1500)
async def test_each_row_is_the_message_that_was_sent(spark: SparkSession, pair: tuple[str, dict[str, str]]) -> None:
    columns: list[list[object]] = [[] for _ in range(6)]
    async for queue, offset, message in send(*pair):
        row = (queue.broker_name, queue.queue_id, offset, message.body, message.tags, message.keys)
        for column, value in zip(columns, row, strict=True):
            column.append(value)

    reader = spark.read.format("rocketmq").option("nameServer", pair[0]).option("subscribe", TOPIC)
    found = reader.schema(SCHEMA).load().toArrow()

    wanted = pa.table(dict(zip(found.column_names, columns, strict=True)), schema=found.schema)
    assert found.num_rows == COUNT
    assert found.sort_by(ORDER).combine_chunks().equals(wanted.sort_by(ORDER).combine_chunks())
