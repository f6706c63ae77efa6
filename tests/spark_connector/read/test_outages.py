"""Daemons that go away and come back while a query runs."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from eruca.client import PullConsumer
from eruca.client.errors import CallTimeout, NameserverUnreachable
from eruca.spark_connector.errors import SourceError
from eruca.spark_connector.options import read_options
from eruca.spark_connector.read.batch import BatchReader
from eruca.spark_connector.read.stream import StreamReader
from eruca.spark_connector.runtime import retry as retries
from eruca.spark_connector.runtime.clients import ClusterClients
from eruca.spark_connector.runtime.retry import retry
from eruca.spark_connector.schema import default_schema
from tests.support.eruca import ErucaBroker, ErucaCluster
from tests.support.processes import Process
from tests.support.spark import Topic

ALL = ReadAllAvailable()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[ErucaCluster]:
    """A cluster that this test may stop."""
    with ErucaCluster(tmp_path) as cluster:
        yield cluster


def stream(own: ErucaCluster) -> StreamReader:
    given = {"nameServer": own.address, "subscribe": "outages", "startingOffsets": "earliest"}
    return StreamReader(read_options({**given, "latestOffsetCacheMs": "0"}, streaming=True), default_schema(), 2)


@pytest.fixture
def source(own: ErucaCluster, fresh_clients: ClusterClients) -> Iterator[tuple[Topic, StreamReader]]:
    topic = Topic(own, "outages", 2)
    topic.fill(6)
    yield topic, stream(own)
    topic.close()


@contextmanager
def silent(process: Process) -> Iterator[None]:
    """It keeps its connections and answers nothing."""
    process.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.signal(signal.SIGCONT)


def rows(reader: StreamReader, start: dict[str, object], end: dict[str, object]) -> int:
    return sum(batch.num_rows for part in reader.partitions(start, end) for batch in reader.read(part))


def test_a_broker_that_comes_back_elsewhere_is_found_again(
    own: ErucaCluster, source: tuple[Topic, StreamReader]
) -> None:
    topic, reader = source
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert rows(reader, start, end) == 6

    port = own.broker.port
    topic.close()
    own.broker.stop()
    own.broker = ErucaBroker(own.home, own.address)
    assert own.broker.port != port

    assert rows(reader, start, end) == 6
    again = Topic(own, "outages", 2)
    again.fill(4)
    again.close()
    assert rows(reader, end, reader.latestOffset(end, ALL)) == 4


def test_a_stream_waits_for_its_only_broker_while_that_restarts(
    own: ErucaCluster, source: tuple[Topic, StreamReader]
) -> None:
    topic, reader = source
    end = reader.latestOffset(reader.initialOffset(), ALL)
    assert reader.reportLatestOffset()["queues"] == end["queues"]
    topic.close()
    own.broker.stop()

    with ThreadPoolExecutor(1) as pool:
        planned = pool.submit(reader.latestOffset, end, ALL)
        with pytest.raises(TimeoutError):
            planned.result(timeout=0.5)
        own.broker = ErucaBroker(own.home, own.address)
        planned.result(timeout=60)

    again = Topic(own, "outages", 2)
    again.fill(4)
    again.close()
    assert rows(reader, end, reader.latestOffset(end, ALL)) == 4


def test_a_stream_goes_on_without_a_nameserver_but_does_not_begin_without_one(
    own: ErucaCluster, source: tuple[Topic, StreamReader], caplog: pytest.LogCaptureFixture
) -> None:
    topic, reader = source
    end = reader.latestOffset(reader.initialOffset(), ALL)
    assert reader.reportLatestOffset()["queues"] == end["queues"]
    own.name_server.stop()

    topic.fill(2)
    assert rows(reader, end, reader.latestOffset(end, ALL)) == 2
    assert "no new queues are looked for: None of the nameservers" in caplog.text

    other = stream(own)
    with pytest.raises(SourceError, match=r"None of the nameservers .* answered"):
        other.latestOffset(other.initialOffset(), ALL)


def test_a_broker_that_falls_silent_while_a_task_reads_fails_it_in_time(
    own: ErucaCluster, source: tuple[Topic, StreamReader], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, _ = source
    topic.fill(400)
    given = {"nameServer": own.address, "subscribe": "outages", "arrowBatchRows": "20", "pullBatchSize": "10"}
    options = read_options({**given, "pullTimeoutMs": "300", "pullPipeline": "2"}, streaming=False)
    (part,) = BatchReader(options, default_schema(), 1).partitions()
    monkeypatch.setattr(retries, "BACKOFF_SECONDS", (0.01, 0.01))
    reading = BatchReader(options, default_schema(), 1).read(part)
    found = next(reading).num_rows

    with silent(own.broker.process), pytest.raises(SourceError) as told:
        for batch in reading:
            found += batch.num_rows

    assert 20 <= found < 200
    assert re.fullmatch(
        r"broker-a was asked several times for .*queueId=0\], and did not answer within 300 ms \(pullTimeoutMs\): "
        r"look whether it is alive and not too busy \(<127\..*> did not answer PULL_MESSAGE in time\)\.",
        str(told.value),
    )
    again = BatchReader(options, default_schema(), 1).read(part)
    assert sum(batch.num_rows for batch in again) == 406, "it answers again, and all is read"


async def test_what_keeps_silent_for_long_is_not_asked_a_third_time() -> None:
    asked = 0

    async def ask() -> None:
        nonlocal asked
        asked += 1
        raise CallTimeout("no answer")

    class Nobody:
        async def fetch_queues(self, topic: str) -> None:
            raise NameserverUnreachable("no answer")

    for enough, times in ((16.0, 4), (0.0, 2)):
        asked = 0
        with pytest.raises(CallTimeout):
            await retry(
                cast(PullConsumer, Nobody()), "outages", ask, backoff=(0.0, 0.0, 0.0), no_third_attempt_after=enough
            )
        assert asked == times
