"""Daemons that go away and come back while a query runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from eruca.spark_connector import link
from eruca.spark_connector.errors import SourceError
from eruca.spark_connector.options import read_options
from eruca.spark_connector.schema import default_schema
from eruca.spark_connector.stream import StreamReader
from tests.support.eruca import ErucaBroker, ErucaCluster
from tests.support.spark import Topic

ALL = ReadAllAvailable()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[ErucaCluster]:
    """A cluster that this test may stop."""
    with ErucaCluster(tmp_path) as cluster:
        yield cluster


@pytest.fixture
def source(own: ErucaCluster, line: link.Link) -> Iterator[tuple[Topic, StreamReader]]:
    topic = Topic(own, "outages", 2)
    topic.fill(6)
    given = {"nameServer": own.address, "subscribe": "outages", "startingOffsets": "earliest"}
    options = read_options({**given, "latestOffsetCacheMs": "0"}, streaming=True)
    yield topic, StreamReader(options, default_schema(), 2)
    topic.close()


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

    other = StreamReader(reader._options, default_schema(), 2)
    with pytest.raises(SourceError, match=r"None of the nameservers .* answered"):
        other.latestOffset(other.initialOffset(), ALL)
