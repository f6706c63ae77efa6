"""``spark.readStream`` against a running cluster: what each batch holds, also after a crash."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from eruca.client.sync import PullConsumer
from eruca.spark_connector import SourceError, cause_of, clear_errors
from tests.support.eruca import ErucaCluster
from tests.support.spark import Rows, Topic, assert_rows, read_stream, rows_of


class Sink:
    """What a query wrote, batch by batch; a batch that is written again replaces what it wrote before."""

    def __init__(self) -> None:
        self.batches: dict[int, Rows] = {}
        self.partitions: set[tuple[int, int]] = set()
        self.fails_in: int | None = None

    def __call__(self, frame: DataFrame, batch: int) -> None:
        self.batches[batch] = rows_of(frame)
        self.partitions.add((len(self.batches[batch]), frame.rdd.getNumPartitions()))
        if batch == self.fails_in:
            raise RuntimeError("the sink is on fire")

    @property
    def rows(self) -> Rows:
        """All of it; no row may be in two batches."""
        every: Rows = {}
        for rows in self.batches.values():
            assert not set(every) & set(rows)
            every.update(rows)
        return every


Start = Callable[..., StreamingQuery]


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
def start(spark: SparkSession, topic: Topic, sink: Sink, tmp_path: Path) -> Iterator[Start]:
    """Starts the query of this test, always on the same checkpoint."""
    queries: list[StreamingQuery] = []

    def begin(*, available_now: bool = False, **options: Any) -> StreamingQuery:
        writer = read_stream(spark, topic, **options).writeStream.foreachBatch(sink)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        trigger = {"availableNow": True} if available_now else {"processingTime": "0 seconds"}
        queries.append(writer.trigger(**trigger).start())
        return queries[-1]

    yield begin
    for query in queries:
        query.stop()


def run_to_the_end(query: StreamingQuery) -> None:
    assert query.awaitTermination(60)


def test_available_now_in_limited_batches_then_only_what_is_new(topic: Topic, sink: Sink, start: Start) -> None:
    topic.fill(25)

    run_to_the_end(start(available_now=True, startingOffsets="earliest", maxOffsetsPerTrigger=10))
    assert_rows(sink.rows, topic.rows)
    assert sorted(len(rows) for rows in sink.batches.values()) == [5, 10, 10]

    topic.fill(7)
    run_to_the_end(start(available_now=True, startingOffsets="earliest", maxOffsetsPerTrigger=10))
    assert_rows(sink.rows, topic.rows)
    assert len(sink.batches) == 4


def test_batches_and_their_partitions_are_as_large_as_they_may_be(topic: Topic, sink: Sink, start: Start) -> None:
    topic.fill(12, size=3000)

    query = start(available_now=True, startingOffsets="earliest", maxBytesPerTrigger="16k", maxRecordsPerPartition=2)
    run_to_the_end(query)

    assert_rows(sink.rows, topic.rows)
    assert sorted(len(rows) for rows in sink.batches.values()) == [2, 5, 5]
    assert {rows: partitions for rows, partitions in sink.partitions} == {2: 1, 5: 3}


@pytest.mark.parametrize("position", ["earliest", "latest"])
def test_a_crash_in_the_first_batch_loses_nothing(topic: Topic, sink: Sink, start: Start, position: str) -> None:
    topic.fill(25)
    before = dict(topic.rows)
    sink.fails_in = 0
    with pytest.raises(StreamingQueryException, match="the sink is on fire"):
        run_to_the_end(start(startingOffsets=position))
    tried = sink.batches.pop(0)
    sink.fails_in = None

    topic.fill(5)
    run_to_the_end(start(available_now=True, startingOffsets=position))

    assert sink.batches[0] == tried
    wanted = topic.rows if position == "earliest" else {k: row for k, row in topic.rows.items() if k not in before}
    assert_rows(sink.rows, wanted)


def test_a_crash_later_repeats_its_batch_with_the_same_rows(topic: Topic, sink: Sink, start: Start) -> None:
    topic.fill(30)
    sink.fails_in = 1
    with pytest.raises(StreamingQueryException, match="the sink is on fire"):
        run_to_the_end(start(available_now=True, startingOffsets="earliest", maxOffsetsPerTrigger=10))
    tried = sink.batches.pop(1)
    sink.fails_in = None

    topic.fill(3)
    run_to_the_end(start(available_now=True, startingOffsets="earliest"))

    assert sink.batches[1] == tried and len(tried) == 10
    assert_rows(sink.rows, topic.rows)


def test_a_running_query_sees_new_messages_and_new_queues(
    cluster: ErucaCluster, topic: Topic, sink: Sink, start: Start
) -> None:
    topic.fill(10)
    old = dict(topic.rows)
    query = start(startingOffsets="latest")
    query.processAllAvailable()
    assert sink.rows == {}

    topic.send(3, b"only one queue has news", tags="news")
    query.processAllAvailable()
    assert next(iter(sink.rows.values()))["body"] == b"only one queue has news"

    topic.grow(cluster, 6)
    topic.send(5, b"the first in a new queue")
    topic.fill(12)
    query.processAllAvailable()
    assert_rows(sink.rows, {place: row for place, row in topic.rows.items() if place not in old})


def test_the_group_shows_how_far_the_query_is(topic: Topic, start: Start) -> None:
    topic.fill(22)

    run_to_the_end(start(available_now=True, startingOffsets="earliest", commitGroup="spark-lag"))

    with PullConsumer("spark-lag", nameserver=topic.name_server) as group:
        assert [group.query_offset(queue) for queue in topic.queues] == [6, 6, 5, 5]


def test_latest_is_for_a_new_query_and_what_came_while_it_was_down_is_read_once(
    topic: Topic, sink: Sink, start: Start
) -> None:
    topic.fill(8)
    history = set(topic.rows)
    query = start(startingOffsets="latest")
    query.processAllAvailable()
    query.stop()

    topic.fill(6)
    for _ in range(2):
        run_to_the_end(start(available_now=True, startingOffsets="latest"))
    assert_rows(sink.rows, {place: row for place, row in topic.rows.items() if place not in history})


def test_a_group_that_is_reset_while_a_query_runs(topic: Topic, sink: Sink, start: Start) -> None:
    """The query starts where the group stands; a reset moves it not, and ends it if that is wished."""
    topic.fill(12)
    given = {"startingOffsets": "group", "commitGroup": "spark-resets", "commitIntervalMs": 0}
    with PullConsumer("spark-resets", nameserver=topic.name_server) as group:

        def reset(to: int) -> None:
            for queue in topic.queues:
                group.update_offset(queue, to)

        reset(1)
        query = start(**given)
        query.processAllAvailable()
        reset(0)
        topic.fill(4)
        query.processAllAvailable()
        query.stop()
        run_to_the_end(start(available_now=True, **given))
        wanted = {place: row for place, row in topic.rows.items() if place[1] >= 1}
        assert_rows(sink.rows, wanted)
        assert [group.query_offset(queue) for queue in topic.queues] == [4] * 4

        query = start(**given, onGroupReset="fail")
        topic.fill(4)
        query.processAllAvailable()
        reset(2)
        with pytest.raises(StreamingQueryException, match="spark-resets"):
            query.awaitTermination(60)
        topic.fill(4)
        run_to_the_end(start(available_now=True, **given))
    assert_rows(sink.rows, {place: row for place, row in topic.rows.items() if place[1] >= 1})


def test_a_wish_for_larger_batches_waits_for_them(topic: Topic, sink: Sink, start: Start) -> None:
    topic.fill(4)
    query = start(startingOffsets="earliest", minOffsetsPerTrigger=5, maxTriggerDelay="1h")
    query.processAllAvailable()
    assert [len(rows) for rows in sink.batches.values()] == [4]

    topic.fill(3)
    query.processAllAvailable()
    assert len(sink.batches) == 1
    topic.fill(2)
    query.processAllAvailable()
    assert [len(rows) for rows in sink.batches.values()] == [4, 5]


MISTAKES = [
    ({"startingOffset": "earliest"}, "has no option startingoffset: did you mean startingOffsets?"),
    ({"subscribe": "nowhere"}, "No route info of this topic: nowhere. The nameserver .* knows no broker with it"),
    ({"nameServer": "127.0.0.1:1"}, "None of the nameservers 127.0.0.1:1 answered: .* Check that mqnamesrv runs there"),
]


@pytest.mark.parametrize(("options", "sentence"), MISTAKES)
def test_the_last_line_of_python_in_an_error_says_the_cause(
    start: Start, options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(StreamingQueryException) as raised:
        run_to_the_end(start(**options))

    python = str(raised.value).partition("Traceback")[2].partition("SQLSTATE")[0].splitlines()
    said = [line for line in python[1:] if line and not line.startswith((" ", "\t"))]
    assert sum(line.startswith("  File ") for line in python) <= 4, "two places of Spark, two of ours"
    assert re.search(rf"^eruca\.spark_connector\.errors\.\w+: .*{sentence}", said[-1]), said
    assert cause_of(raised.value) == said[-1].partition(": ")[2].strip()
    with pytest.raises(SourceError) as clear, clear_errors():
        raise raised.value
    lines = "".join(traceback.format_exception(clear.value)).splitlines()
    assert lines[-1] == said[-1].strip()
    assert clear.value.__cause__ is raised.value


def test_an_error_of_somebody_else_stays_what_it_is() -> None:
    with pytest.raises(ZeroDivisionError), clear_errors():
        raise ZeroDivisionError
    with pytest.raises(SourceError, match="as it was") as own, clear_errors():
        raise SourceError("as it was")
    assert own.value.__cause__ is None and cause_of(own.value) == "as it was"


def test_a_future_start_must_be_meant(topic: Topic, start: Start) -> None:
    with pytest.raises(StreamingQueryException, match="lies in the future"):
        run_to_the_end(start(available_now=True, startingTimestamp=4_102_444_800_000))
