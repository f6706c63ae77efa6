"""Streams and a batch that go on at the slaves when masters die."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from eruca.client import Message, MessageQueue, Producer
from eruca.spark_connector import link
from eruca.spark_connector.batch import BatchReader
from eruca.spark_connector.errors import SourceError
from eruca.spark_connector.options import read_options
from eruca.spark_connector.positions import StreamOffset
from eruca.spark_connector.schema import default_schema
from eruca.spark_connector.stream import StreamReader
from tests.support.pairs import MASTERS, Pairs

ALL = ReadAllAvailable()
WANTED = {b"%d" % number for number in range(40)}


@contextmanager
def fresh_link(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A link that knows nothing of the cluster yet."""
    made = link.Link()
    monkeypatch.setattr(link, "_link", made)
    yield
    made.close()


async def test_masters_die_and_reading_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
            batch = BatchReader(read_options(given, streaming=False), default_schema(), 2)
            assert sorted(bodies(batch, list(batch.partitions()))) == sorted(WANTED)
            reader = StreamReader(streaming, default_schema(), 2)
            ends = StreamOffset.from_json(reader.latestOffset(reader.initialOffset(), ALL))
            assert ends is not None
            # What a slave does not have yet is no sign of a topic that was made anew …
            ahead = StreamOffset({queue: offset + 5 for queue, offset in ends.queues.items()}).to_json()
            assert reader.latestOffset(ahead, ALL) is ahead
            # … and cannot be read before the master is back.
            parts = list(reader.partitions(ends.to_json(), ahead))
            with pytest.raises(SourceError, match="a slave is behind a master that is away"):
                bodies(reader, parts)

        with fresh_link(monkeypatch):
            reader, end = await asyncio.to_thread(plan_with_masters)
            for master in MASTERS:
                pairs.kill(master)
            await asyncio.to_thread(read_without_masters, reader, end)
        with fresh_link(monkeypatch):
            await asyncio.to_thread(begin_without_masters)


async def test_a_stream_goes_on_while_masters_die_and_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = [MessageQueue("Outage", f"broker-{master}", 0) for master in MASTERS]
    sent: dict[tuple[str, int], bytes] = {}

    async def send(producer: Producer, count: int) -> None:
        for queue in queues * count:
            body = b"%d" % len(sent)
            sent[queue.broker_name, (await producer.send(Message("Outage", body), queue=queue)).offset] = body

    async with Pairs(tmp_path) as pairs:
        await pairs.create_topic("Outage", 1)
        async with Producer("p", nameserver=pairs.address) as producer:
            await send(producer, 30)
        await pairs.followed()
        given = {"nameServer": pairs.address, "subscribe": "Outage", "latestOffsetCacheMs": "0"}
        options = read_options({**given, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "8"}, streaming=True)
        found: dict[tuple[str, int], bytes] = {}

        def read(reader: StreamReader, at: dict[str, object], count: int) -> dict[str, object]:
            """Micro-batches as Spark makes them, until there are so many rows; where they end."""
            deadline = time.monotonic() + 120
            while len(found) < count:
                assert time.monotonic() < deadline, f"{len(found)} of {count}"
                end = reader.latestOffset(at, reader.getDefaultReadLimit())
                for part in [] if end == at else reader.partitions(at, end):
                    for batch in reader.read(part):
                        places = zip(batch["brokerName"].to_pylist(), batch["queueOffset"].to_pylist(), strict=True)
                        rows = dict(zip(places, batch["body"].to_pylist(), strict=True))
                        assert not found.keys() & rows.keys()
                        found.update(rows)
                at = end
            return at

        with fresh_link(monkeypatch):
            reader = StreamReader(options, default_schema(), 2)
            at = await asyncio.to_thread(read, reader, reader.initialOffset(), 8)
            for master in MASTERS:
                pairs.kill(master)
            at = await asyncio.to_thread(read, reader, at, 60)
            await asyncio.gather(*map(pairs.start, MASTERS))
            async with Producer("p", nameserver=pairs.address) as producer:
                await send(producer, 10)
            await asyncio.to_thread(read, reader, at, 80)
    assert found == sent
