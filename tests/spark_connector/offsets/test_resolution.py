"""Where queries start and end, when a batch is worth it, and what is settled before the first message is read."""

from __future__ import annotations

import asyncio
import io
import json
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from eruca.admin.cli import run as mqadmin
from eruca.client import MessageQueue, PullConsumer, sync
from eruca.protocol import api
from eruca.protocol.headers.topics import CreateTopic
from eruca.remoting import run
from eruca.spark_connector.errors import BadOption, SourceError
from eruca.spark_connector.offsets.positions import write_positions
from eruca.spark_connector.options import read_options
from eruca.spark_connector.read.batch import BatchReader
from eruca.spark_connector.read.stream import StreamReader
from eruca.spark_connector.schema import default_schema
from tests.spark_connector.retention import fill, forget
from tests.support.eruca import ErucaBroker, ErucaCluster
from tests.support.spark import Topic

pytestmark = pytest.mark.usefixtures("fresh_clients")
ALL = ReadAllAvailable()
Ranges = dict[int, tuple[int, int]]


def batch(topic: Topic, **options: str) -> BatchReader:
    given = {"nameServer": topic.name_server, "subscribe": topic.name, **options}
    return BatchReader(read_options(given, streaming=False), default_schema(), 2)


def stream(topic: Topic, **options: str) -> StreamReader:
    given = {"nameServer": topic.name_server, "subscribe": topic.name, "latestOffsetCacheMs": "0", **options}
    return StreamReader(read_options(given, streaming=True), default_schema(), 2)


def ranges(parts: list[Any]) -> Ranges:
    return {each.queue.queue_id: (each.start, each.end) for part in parts for each in part.ranges}


def planned(reader: BatchReader | StreamReader) -> Ranges:
    """What a batch reads, or the first batch of a stream."""
    if isinstance(reader, BatchReader):
        return ranges(reader.partitions())
    start = reader.initialOffset()
    return ranges(reader.partitions(start, reader.latestOffset(start, ALL)))


def by_queue(topic: Topic, *numbers: int) -> str:
    return json.dumps(write_positions(dict(zip(topic.queues, numbers, strict=True))))


def apart(topic: Topic, rounds: int) -> list[int]:
    """One message a queue and round; the store times of the rounds, which are some ms apart."""
    times = []
    for _ in range(rounds):
        times.append(time.time_ns() // 1_000_000 + 1)
        while time.time_ns() // 1_000_000 < times[-1]:
            pass
        topic.fill(len(topic.queues))
    return times


def test_times_by_queue_and_which_option_comes_first(topic: Topic) -> None:
    first, second, third = apart(topic, 3)
    starts, ends = by_queue(topic, first, second, third, second), by_queue(topic, second, third, third + 60_000, second)

    found = batch(topic, startingOffsetsByTimestamp=starts, endingOffsetsByTimestamp=ends)
    assert ranges(found.partitions()) == {0: (0, 1), 1: (1, 2), 2: (2, 3)}

    given = {"startingOffsetsByTimestamp": starts, "startingOffsets": by_queue(topic, 3, 3, 3, 3)}
    assert ranges(batch(topic, **given).partitions())[2] == (2, 3), "a time comes before an offset"
    given["startingTimestamp"] = str(second)
    assert set(ranges(batch(topic, **given).partitions()).values()) == {(1, 3)}, "one time comes before those by queue"

    with pytest.raises(SourceError, match=r"startingOffsetsByTimestamp leaves .*queueId=3\] out"):
        short = json.dumps(write_positions(dict.fromkeys(topic.queues[:3], first)))
        batch(topic, startingOffsetsByTimestamp=short).partitions()


def test_a_stream_starts_at_a_time_or_at_offsets_and_may_mean_the_future(topic: Topic) -> None:
    _, second = apart(topic, 2)
    for options, wanted in (
        ({"startingTimestamp": str(second)}, {queue: (1, 2) for queue in range(4)}),
        ({"startingOffsets": by_queue(topic, 1, -2, -1, 0)}, {0: (1, 2), 1: (0, 2), 3: (0, 2)}),
        ({"startingTimestamp": "4102444800000", "startingOffsetsByTimestampStrategy": "latest"}, {}),
    ):
        reader = stream(topic, **options)
        start = reader.initialOffset()
        assert ranges(reader.partitions(start, reader.latestOffset(start, ALL))) == wanted


@pytest.mark.parametrize("kind", [batch, stream])
def test_an_offset_that_is_not_there_is_refused_when_a_query_is_planned(topic: Topic, kind: Any) -> None:
    topic.fill(40)
    wanted = {"startingOffsets": by_queue(topic, 5, 5, 5, 500_000)}
    with pytest.raises(SourceError, match=r"^startingOffsets names 500000 for .*queueId=3\], which ends at 10: "):
        planned(kind(topic, **wanted))
    wanted["failOnDataLoss"] = "false"
    assert planned(kind(topic, **wanted)) == {0: (5, 10), 1: (5, 10), 2: (5, 10)}


def test_a_star_stands_for_what_is_not_named(topic: Topic) -> None:
    topic.fill(40)
    every = {"*": {"*": {"*": -2}}}
    few = {topic.name: {"broker-a": {"1": 4, "*": 7}}, **every}
    assert ranges(batch(topic, startingOffsets=json.dumps(every)).partitions()) == {each: (0, 10) for each in range(4)}
    found = batch(topic, startingOffsets=json.dumps(few), endingOffsets=json.dumps({"*": {"broker-a": {"*": 9}}}))
    assert ranges(found.partitions()) == {0: (7, 9), 1: (4, 9), 2: (7, 9), 3: (7, 9)}
    later = {topic.name: {"*": {"*": "2h ago", "2": 4_102_444_800_000}}}
    assert ranges(batch(topic, endingOffsetsByTimestamp=json.dumps(later)).partitions()) == {2: (0, 10)}
    later = {topic.name: {"*": {"*": "2h ago", "7": 4_102_444_800_000}}}
    with pytest.raises(SourceError, match=r"names .*brokerName=\*, queueId=7\], which this query does not read"):
        batch(topic, endingOffsetsByTimestamp=json.dumps(later)).partitions()
    later = {topic.name: {"*": {"*": "2h ago"}, "broker-a": {"2": 4_102_444_800_000}}}
    assert ranges(batch(topic, endingOffsetsByTimestamp=json.dumps(later)).partitions()) == {2: (0, 10)}
    for wrong in ({"nowhere": {"*": {"*": 1}}}, {topic.name: {"broker-z": {"*": 1}}}):
        with pytest.raises(SourceError, match=r'names "\*" of .*, which this query does not read'):
            batch(topic, startingOffsets=json.dumps(every | wrong)).partitions()


def test_a_pattern_means_retry_topics_only_where_it_names_them(topic: Topic) -> None:
    topic.fill(4)
    with sync.Producer("p", nameserver=topic.name_server) as producer:
        for name in (f"%DLQ%{topic.name}", f"%RETRY%{topic.name}"):
            producer.create_topic(name, 1)
    for pattern, topics in ((f".*{topic.name}", {topic.name}), (f"%.*{topic.name}", {f"%DLQ%{topic.name}"})):
        options = read_options({"nameServer": topic.name_server, "subscribePattern": pattern}, streaming=False)
        parts = BatchReader(options, default_schema(), 2).partitions()
        assert {each.queue.topic for part in parts for each in part.ranges} <= topics | {f"%RETRY%{topic.name}"}
        assert bool(parts) == ("%" not in pattern), "the others are empty"


def test_a_pattern_does_not_mean_the_topics_of_clusters_and_brokers(topic: Topic) -> None:
    options = read_options({"nameServer": topic.name_server, "subscribePattern": ".*"}, streaming=True)
    reader = StreamReader(options, default_schema(), 2)
    queues = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())["queues"]
    assert topic.name in queues
    assert not [name for name in queues if name == "broker-a" or name.endswith(("Cluster", "REPLY_TOPIC"))]


@pytest.mark.parametrize(("start", "end"), [("latest", 2), ("latest", "earliest"), ({"*": -1}, {"*": 2}), (4, 3)])
def test_a_start_above_its_end_is_refused_in_every_form(topic: Topic, start: Any, end: Any) -> None:
    topic.fill(20)

    def form(wanted: Any) -> str:
        if isinstance(wanted, str):
            return wanted
        return json.dumps({topic.name: {"broker-a": wanted if isinstance(wanted, dict) else {"*": wanted}}})

    with pytest.raises(SourceError, match=r"which is above \d .*endingOffsets: exchange or correct them"):
        batch(topic, startingOffsets=form(start), endingOffsets=form(end)).partitions()
    assert not batch(topic, startingOffsets="latest").partitions(), "nothing has come since"


def test_an_end_that_is_not_there_is_refused_when_a_batch_is_planned(topic: Topic) -> None:
    topic.fill(40)
    wanted = {"endingOffsets": by_queue(topic, 10, 10, 10, 500_000)}
    with pytest.raises(SourceError, match=r"^endingOffsets names 500000 for .*queueId=3\], which ends at 10: correct"):
        batch(topic, **wanted).partitions()
    assert ranges(batch(topic, **wanted, failOnDataLoss="false").partitions())[3] == (0, 10)


@pytest.mark.parametrize("kind", [batch, stream])
def test_an_offset_that_was_deleted_is_refused_when_a_query_is_planned(
    forgetful: ErucaCluster, kind: Any, request: pytest.FixtureRequest
) -> None:
    old = Topic(forgetful, f"forgotten_{kind.__name__}", 2)
    request.addfinalizer(old.close)
    fill(old)
    left = forget(forgetful, old)
    begins = [min(offset for queue_id, offset in left if queue_id == queue) for queue in range(2)]
    wanted = {"startingOffsets": by_queue(old, 1, begins[1])}
    with pytest.raises(SourceError, match=rf"names 1 for .*queueId=0\], which begins at {begins[0]}: correct it, or"):
        planned(kind(old, **wanted))
    by_group = {"startingOffsets": "group", "commitGroup": "late"}
    with sync.PullConsumer("late", nameserver=old.name_server) as consumer:
        consumer.update_offset(old.queues[0], 1)
        consumer.update_offset(old.queues[1], begins[1])
    with pytest.raises(SourceError, match=rf'"group" means 1 by the group late for .*, which begins at {begins[0]}: '):
        planned(kind(old, **by_group))
    for meant in (wanted, by_group):
        found = planned(kind(old, **meant, failOnDataLoss="false"))
        assert found == {0: (begins[0], 400), 1: (begins[1], 400)}


OFFSET = st.integers(-2, 7)


@given(starts=st.tuples(OFFSET, OFFSET), ends=st.tuples(OFFSET, OFFSET))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_offsets_are_read_as_they_are_or_refused(
    cluster: ErucaCluster, starts: tuple[int, int], ends: tuple[int, int]
) -> None:
    known = any_offsets(cluster)
    named = {"startingOffsets": by_queue(known, *starts), "endingOffsets": by_queue(known, *ends)}
    there = (5, 3)

    def meant(offset: int, end: int) -> int:
        return {-2: 0, -1: end}.get(offset, offset)

    wrong = any(
        max(start, end) > last or (end != -1 and meant(start, last) > meant(end, last))
        for start, end, last in zip(starts, ends, there, strict=True)
    )
    if wrong:
        with pytest.raises((BadOption, SourceError), match=r"names|means"):
            batch(known, **named).partitions()
        return

    wanted = {}
    for queue, (start, end, last) in enumerate(zip(starts, ends, there, strict=True)):
        low, high = meant(start, last), meant(end, last)
        if low < high:
            wanted[queue] = (low, high)
    assert ranges(batch(known, **named).partitions()) == wanted


@cache
def any_offsets(cluster: ErucaCluster) -> Topic:
    """A topic of two queues with five and three messages."""
    made = Topic(cluster, "any_offsets", 2)
    for queue, count in enumerate((5, 3)):
        for number in range(count):
            made.send(queue, b"%d" % number)
    made.close()
    return made


def test_a_query_from_the_offsets_of_a_group_starts_at_the_end_where_the_group_has_none(topic: Topic) -> None:
    topic.fill(40)
    assert ranges(batch(topic, startingOffsets="group", commitGroup="never-seen").partitions()) == {}
    with sync.PullConsumer("readers", nameserver=topic.name_server) as consumer:
        consumer.update_offset(topic.queues[1], 4)
        consumer.update_offset(topic.queues[2], 0)
    assert ranges(batch(topic, startingOffsets="group", commitGroup="readers").partitions()) == {1: (4, 10), 2: (0, 10)}


@pytest.mark.parametrize("kind", [batch, stream])
def test_a_group_that_is_past_the_end_of_a_queue_is_told_when_a_query_is_planned(topic: Topic, kind: Any) -> None:
    topic.fill(40)
    group = f"ahead-{kind.__name__}"
    with sync.PullConsumer(group, nameserver=topic.name_server) as consumer:
        consumer.update_offset(topic.queues[0], 500)
        consumer.update_offset(topic.queues[1], 4)
    sentence = rf'^startingOffsets="group" means 500 by the group {group} for .*queueId=0\], which ends at 10: correct'
    with pytest.raises(SourceError, match=sentence):
        planned(kind(topic, startingOffsets="group", commitGroup=group))
    found = planned(kind(topic, startingOffsets="group", commitGroup=group, failOnDataLoss="false"))
    assert found == {1: (4, 10)}


def test_a_small_batch_comes_when_it_has_waited_long_enough(topic: Topic) -> None:
    topic.fill(8)
    reader = stream(topic, startingOffsets="earliest", minOffsetsPerTrigger="5", maxTriggerDelay="300ms")
    assert isinstance(reader.getDefaultReadLimit(), ReadMinRows)
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    began = time.monotonic()
    topic.send(1, b"only one")
    while (after := reader.latestOffset(end, reader.getDefaultReadLimit())) == end:
        assert time.monotonic() - began < 60
    assert time.monotonic() - began >= 0.25
    assert ranges(reader.partitions(end, after)) == {1: (2, 3)}


def test_a_batch_that_is_computed_again_reads_the_same(topic: Topic) -> None:
    topic.fill(8)
    reader = batch(topic)
    parts = reader.partitions()
    topic.fill(8)
    for _ in range(2):
        assert sum(each.num_rows for part in parts for each in reader.read(part)) == 8


def test_the_broker_judges_sql_before_a_message_is_read(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    topic.fill(8)
    pulls: list[MessageQueue] = []

    async def pull(self: PullConsumer, queue: MessageQueue, *_: object, **__: object) -> None:
        pulls.append(queue)

    known = stream(topic, startingOffsets="earliest")
    at = known.latestOffset(known.initialOffset(), ReadMaxRows(4))
    monkeypatch.setattr(PullConsumer, "pull", pull)
    for bad in ("n >> 3", "n = "):
        with pytest.raises(SourceError, match="refuses sqlFilter="):
            batch(topic, sqlFilter=bad).partitions()
        new = stream(topic, sqlFilter=bad, startingOffsets="earliest")
        with pytest.raises(SourceError, match="refuses sqlFilter="):
            new.latestOffset(new.initialOffset(), ALL)
        with pytest.raises(SourceError, match="refuses sqlFilter="):
            stream(topic, sqlFilter=bad).latestOffset(at, ALL)
    assert pulls == []


def test_consumer_progress_shows_how_far_a_stream_is_behind(topic: Topic) -> None:
    topic.fill(12)
    group = f"{topic.name}_lake"[-100:]
    reader = stream(topic, startingOffsets="earliest", commitGroup=group, commitIntervalMs="0")
    first = reader.latestOffset(reader.initialOffset(), ReadMaxRows(8))
    reader.latestOffset(first, ReadMaxRows(2))

    out, deadline = io.StringIO(), time.monotonic() + 60
    while topic.name[:20] not in out.getvalue() and time.monotonic() < deadline:  # its broker tells the nameserver
        out = io.StringIO()
        asyncio.run(mqadmin(("consumerProgress", "-n", topic.name_server, "-g", group), {}, out, out))
    rows = [line.split() for line in out.getvalue().splitlines() if line.startswith(topic.name[:20])]
    assert [row[3:6] for row in sorted(rows, key=lambda row: row[2])] == [["3", "2", "1"]] * 4, out.getvalue()


def test_a_broker_that_joins_is_found_while_a_stream_runs(tmp_path: Path) -> None:
    with ErucaCluster(tmp_path / "one") as own:
        topic = Topic(own, "growing", 2)
        topic.fill(4)
        reader = stream(topic)
        end = reader.latestOffset(reader.initialOffset(), ALL)
        second = ErucaBroker(tmp_path / "two", own.address, {"brokerName": "broker-b"})
        try:

            async def create() -> None:
                ask = CreateTopic(topic="growing", read_queue_nums=1, write_queue_nums=1, perm=6)
                async with PullConsumer(nameserver=own.address) as admin:
                    await admin.session.call(second.address, api.UPDATE_AND_CREATE_TOPIC, ask)

            run(create())
            theirs = MessageQueue("growing", "broker-b", 0)
            topic.queues.append(theirs)
            topic.send(2, b"the first at the new broker")
            topic.send(0, b"and one at the old")

            deadline = time.monotonic() + 60
            while theirs not in _ends(after := reader.latestOffset(end, ALL)) and time.monotonic() < deadline:
                pass
            bodies = [
                body
                for part in reader.partitions(end, after)
                for each in reader.read(part)
                for body in each["body"].to_pylist()
            ]
            assert sorted(bodies) == [b"and one at the old", b"the first at the new broker"]
        finally:
            topic.close()
            second.stop()


def _ends(offset: dict[str, Any]) -> set[MessageQueue]:
    return {
        MessageQueue(topic, broker, int(queue))
        for topic, brokers in offset["queues"].items()
        for broker, queues in brokers.items()
        for queue in queues
    }
