"""Streams and a batch that go on at the slaves when masters die."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from eruca.client import Message, MessageQueue, Producer
from eruca.spark_connector.errors import SourceError
from eruca.spark_connector.offsets.positions import StreamOffset
from eruca.spark_connector.options import read_options
from eruca.spark_connector.read.batch import BatchReader
from eruca.spark_connector.read.stream import StreamReader
from eruca.spark_connector.runtime import clients
from eruca.spark_connector.schema import default_schema
from tests.support import raw
from tests.support.pairs import MASTERS, SLAVES, Pairs, eventually
from tests.support.spark import COLUMNS, Rows, assert_rows, rows_of

ALL = ReadAllAvailable()
GROUPS = 201
WANTED = {b"%d" % number for number in range(40)}


@contextmanager
def fresh_clients() -> Iterator[None]:
    """Clients that know no route yet."""
    clients.close_this_process()
    yield
    clients.close_this_process()


async def test_masters_die_and_reading_goes_on(tmp_path: Path) -> None:
    async with Pairs(tmp_path) as pairs:
        await pairs.create_topic("Failover", 2)
        async with Producer("p", nameserver=pairs.address) as producer:
            for body in sorted(WANTED):
                await producer.send(Message("Failover", body))
        await pairs.followed()
        given = {"nameServer": pairs.address, "subscribe": "Failover", "latestOffsetCacheMs": "0"}
        streaming = read_options({**given, "startingOffsets": "earliest"}, streaming=True)

        def bodies(reader: StreamReader | BatchReader, parts: Sequence[object]) -> list[bytes]:
            return [body for part in parts for batch in reader.read(part) for body in batch["body"].to_pylist()]

        def plan_with_masters() -> tuple[StreamReader, dict[str, object]]:
            reader = StreamReader(streaming, default_schema(), 2)
            return reader, reader.latestOffset(reader.initialOffset(), ALL)

        def read_without_masters(reader: StreamReader, end: dict[str, object]) -> None:
            parts = list(reader.partitions(reader.initialOffset(), end))
            assert sorted(bodies(reader, parts)) == sorted(WANTED)
            assert reader.latestOffset(end, ALL) is end

        def begin_without_masters() -> None:
            with_group = {**given, "pullGroup": "lake", "createPullGroup": "true"}
            batch = BatchReader(read_options(with_group, streaming=False), default_schema(), 2)
            assert sorted(bodies(batch, list(batch.partitions()))) == sorted(WANTED)
            reader = StreamReader(streaming, default_schema(), 2)
            ends = StreamOffset.from_json(reader.latestOffset(reader.initialOffset(), ALL))
            assert ends is not None
            # What a slave does not have yet is no sign of a topic that was made anew …
            ahead = StreamOffset({queue: offset + 5 for queue, offset in ends.queues.items()}).to_json()
            assert reader.latestOffset(ahead, ALL) is ahead
            # … and cannot be read before the master is back.
            hasty = read_options({**given, "brokerLossTimeoutMs": "1000"}, streaming=True)
            reader = StreamReader(hasty, default_schema(), 2)
            parts = list(reader.partitions(ends.to_json(), ahead))
            with pytest.raises(SourceError, match="a slave is behind a master that is away"):
                bodies(reader, parts)

        def read_past_a_silent_master() -> None:
            group = {"pullGroup": "lake", "createPullGroup": "true"}  # slaves know it, too, once it is made
            options = read_options({**given, **group, "pullTimeoutMs": "400"}, streaming=False)
            batch = BatchReader(options, default_schema(), 2)
            parts = list(batch.partitions())
            for step in (signal.SIGSTOP, signal.SIGCONT):
                pairs.brokers["a"].signal(step)
                assert sorted(bodies(batch, parts)) == sorted(WANTED)

        with fresh_clients():
            await asyncio.to_thread(read_past_a_silent_master)
            await eventually(
                lambda: all(b'"lake"' in raw.ask(pairs.broker_address(each), GROUPS)[1] for each in SLAVES)
            )
            reader, end = await asyncio.to_thread(plan_with_masters)
            for master in MASTERS:
                pairs.kill(master)
            await asyncio.to_thread(read_without_masters, reader, end)
        with fresh_clients():
            await asyncio.to_thread(begin_without_masters)


@pytest.mark.slow
async def test_a_query_runs_on_while_masters_die_and_come_back(spark: SparkSession, tmp_path: Path) -> None:
    queues = [MessageQueue("Outage", f"broker-{master}", 0) for master in MASTERS]
    wanted: dict[str, Rows] = {queue.broker_name: {} for queue in queues}
    rows = tmp_path / "rows"

    async def send(producer: Producer, count: int) -> None:
        for queue in queues * count:
            body = b"%d of %s" % (len(wanted[queue.broker_name]), queue.broker_name.encode())
            result = await producer.send(Message("Outage", body, keys="a key"), queue=queue)
            wanted[queue.broker_name][0, result.offset] = {"body": body, "tags": None, "keys": "a key", "flag": 0}

    async with Pairs(tmp_path) as pairs:
        await pairs.create_topic("Outage", 1)
        async with Producer("p", nameserver=pairs.address) as producer:
            await send(producer, 30)
        await pairs.followed()
        reader = spark.readStream.format("rocketmq").schema(f"brokerName string, {COLUMNS}")
        reader = reader.options(nameServer=pairs.address, subscribe="Outage", startingOffsets="earliest")
        writer = reader.option("maxOffsetsPerTrigger", 8).load().writeStream.format("parquet").option("path", str(rows))
        query = await asyncio.to_thread(writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start)

        def read() -> int:
            assert query.isActive, str(query.exception())
            return sum(progress.numInputRows for progress in query.recentProgress)

        await eventually(lambda: read() > 0, 200)
        for master in MASTERS:
            pairs.kill(master)
        assert read() < 60, "there is nothing left to read from the slaves"
        await eventually(lambda: read() == 60, 200)
        await asyncio.gather(*map(pairs.start, MASTERS))
        async with Producer("p", nameserver=pairs.address) as producer:
            await send(producer, 10)
        await eventually(lambda: read() == 80, 200)
        query.stop()

    found = spark.read.schema(f"brokerName string, {COLUMNS}").parquet(str(rows))
    for broker, theirs in wanted.items():
        assert_rows(rows_of(found.where(f"brokerName = '{broker}'").drop("brokerName")), theirs)
