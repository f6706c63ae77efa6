"""Many messages of many kinds, a cluster that changes meanwhile, every row compared with what was sent.

Here 20 thousand, a million with ERUCA_TORTURE.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from eruca.client import Message, MessageQueue, Producer
from eruca.protocol import api
from eruca.protocol.headers.topics import CreateTopic
from eruca.spark_connector.offsets.positions import StreamOffset
from tests.support.eruca import ErucaBroker, ErucaCluster
from tests.support.spark import PRODUCER_GROUP

COUNT = 1_000_000 if os.environ.get("ERUCA_TORTURE") else 20_000
TOPIC = "ByContent"
SCHEMA = "brokerName string, queueId int, queueOffset bigint, body binary, tags string, keys string"
ORDER = [("brokerName", "ascending"), ("queueId", "ascending"), ("queueOffset", "ascending")]
READ_ONLY, READ_AND_WRITE = 4, 6


async def shape(producer: Producer, address: str, queues: int, perm: int = READ_AND_WRITE) -> None:
    """Give a broker so many queues of the topic."""
    ask = CreateTopic(topic=TOPIC, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
    await producer.session.call(address, api.UPDATE_AND_CREATE_TOPIC, ask)


class Sent:
    """All that was sent, column by column."""

    def __init__(self) -> None:
        self.columns: list[list[object]] = [[] for _ in range(6)]
        self._chance = random.Random(7)

    @property
    def ends(self) -> dict[MessageQueue, int]:
        """Where the queues end."""
        return dict(Counter(MessageQueue(TOPIC, *place) for place in zip(*self.columns[:2], strict=True)))

    async def send(self, producer: Producer, count: int, queues: list[tuple[str, int]]) -> None:
        """Batches of all lengths, and now and then a message alone that is large enough to be compressed."""
        async for queue, offset, message in self._send(producer, len(self.columns[0]) + count, queues):
            row = (queue.broker_name, queue.queue_id, offset, message.body, message.tags, message.keys)
            for column, value in zip(self.columns, row, strict=True):
                column.append(value)

    async def _send(
        self, producer: Producer, end: int, queues: list[tuple[str, int]]
    ) -> AsyncIterator[tuple[MessageQueue, int, Message]]:
        chance = self._chance
        while (sent := len(self.columns[0])) < end:
            queue = MessageQueue(TOPIC, *chance.choice(queues))
            if chance.random() < 0.1:
                message = Message(TOPIC, b"%d " % sent * chance.randint(1000, 4000), tags="large", keys=f"k{sent}")
                yield queue, (await producer.send(message, queue=queue)).offset, message
                continue
            tag = chance.choice(["a", "b", None])
            batch = [
                Message(TOPIC, chance.randbytes(chance.choice([1, 20, 128, 700])), tags=tag, keys=f"k{sent + each}")
                for each in range(min(end - sent, chance.randint(1, 700)))
            ]
            first = (await producer.send_batch(batch, queue=queue)).offset
            for place, message in enumerate(batch):
                yield queue, first + place, message

    def assert_same(self, found: pa.Table) -> None:
        """Each row is the message that was sent."""
        wanted = pa.table(dict(zip(found.column_names, self.columns, strict=True)), schema=found.schema)
        assert found.num_rows == COUNT
        assert found.sort_by(ORDER).combine_chunks().equals(wanted.sort_by(ORDER).combine_chunks())


async def read_up_to(query: StreamingQuery, ends: dict[MessageQueue, int]) -> None:
    """Wait until a query that runs has read so far."""
    deadline = time.monotonic() + 60 + COUNT / 1000
    read = None
    while read != ends:
        assert query.isActive and time.monotonic() < deadline, (query.exception(), read, ends)
        await asyncio.sleep(0.2)
        progress = query.lastProgress
        if progress is not None and progress.sources[0].endOffset:
            offset = StreamOffset.from_json(json.loads(progress.sources[0].endOffset))
            read = dict(offset.queues) if offset else None


@pytest.mark.timeout(1500)
async def test_each_row_is_the_message_that_was_sent_while_the_cluster_is_rebalanced(
    spark: SparkSession, tmp_path: Path
) -> None:
    sent, part = Sent(), COUNT // 4
    old, more, new = (
        [(broker, number) for number in range(queues)]
        for broker, queues in (("broker-a", 4), ("broker-a", 8), ("broker-b", 4))
    )
    with ErucaCluster(tmp_path / "a") as cluster:
        given = {"nameServer": cluster.address, "subscribe": TOPIC}
        async with Producer(PRODUCER_GROUP, nameserver=cluster.address) as producer:
            await shape(producer, cluster.broker.address, 4)
            await sent.send(producer, part, old)
            reader = spark.readStream.format("rocketmq").options(**given, startingOffsets="earliest").schema(SCHEMA)
            writer = reader.load().writeStream.format("parquet").option("path", str(tmp_path / "rows"))
            query = await asyncio.to_thread(writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start)
            await read_up_to(query, sent.ends)

            await shape(producer, cluster.broker.address, 8)
            await sent.send(producer, part, more)
            other = ErucaBroker(tmp_path / "b", cluster.address, {"brokerName": "broker-b"})
            await shape(producer, other.address, 4)
            await sent.send(producer, part, more + new)
            await shape(producer, cluster.broker.address, 8, READ_ONLY)
            await sent.send(producer, part, new)
            await read_up_to(query, sent.ends)
        query.stop()

        sent.assert_same(spark.read.schema(SCHEMA).parquet(str(tmp_path / "rows")).toArrow())
        sent.assert_same(spark.read.format("rocketmq").options(**given).schema(SCHEMA).load().toArrow())
        other.stop()
