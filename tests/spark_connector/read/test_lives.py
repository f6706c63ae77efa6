"""A topic that is deleted and made again while a stream is away, and other losses that offsets alone do not tell."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from eruca.admin.cli import run as mqadmin
from eruca.client import MessageQueue, PullConsumer, PullStatus
from eruca.spark_connector.errors import SourceError
from eruca.spark_connector.offsets.lives import CHECK_SECONDS, Lives
from eruca.spark_connector.offsets.positions import StreamOffset
from eruca.spark_connector.options import read_options
from eruca.spark_connector.read.stream import StreamReader
from eruca.spark_connector.schema import default_schema
from tests.spark_connector.retention import fill, forget
from tests.support.eruca import ErucaBroker, ErucaCluster
from tests.support.spark import Topic

pytestmark = pytest.mark.usefixtures("fresh_clients")
ALL = ReadAllAvailable()
ANOTHER = (
    r"has read MessageQueue .*queueId=0\] up to 3, but the message at 2 is another one now, stored at 20.* and not at "
    r"20.*: the topic was deleted and created again, or its broker lost data\. Set failOnDataLoss=false"
)


class Clock:
    """A clock in the test's hand, in seconds."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def stream(topic: Topic, clock: Callable[[], float] = time.monotonic, **options: str) -> StreamReader:
    given = {"nameServer": topic.name_server, "subscribe": topic.name, "latestOffsetCacheMs": "0", **options}
    asked = read_options({"startingOffsets": "earliest", **given}, streaming=True)
    return StreamReader(asked, default_schema(), 2, clock)


def planned(source: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> dict[int, tuple[int, int]]:
    ranges = [each for partition in source.partitions(start, end) for each in partition.ranges]
    return {each.queue.queue_id: (each.start, each.end) for each in ranges}


def delete(cluster: ErucaCluster, topic: Topic) -> None:
    out = io.StringIO()
    asyncio.run(mqadmin(("deleteTopic", "-n", cluster.address, "-c", "JudgeCluster", "-t", topic.name), {}, out, out))


def make_again(cluster: ErucaCluster, topic: Topic, messages: int) -> None:
    delete(cluster, topic)
    topic.grow(cluster, len(topic.queues))
    topic.rows.clear()
    topic.fill(messages)


@pytest.mark.parametrize("messages", [12, 20])
def test_another_topic_of_the_same_length_or_more_is_noticed_by_the_next_run(
    cluster: ErucaCluster, topic: Topic, messages: int, caplog: pytest.LogCaptureFixture
) -> None:
    topic.fill(12)
    before = stream(topic)
    end = before.latestOffset(before.initialOffset(), ALL)
    make_again(cluster, topic, messages)

    with pytest.raises(SourceError, match=ANOTHER):
        stream(topic).latestOffset(end, ALL)

    careless = stream(topic, failOnDataLoss="false")
    after = careless.latestOffset(end, ALL)
    assert planned(careless, end, after) == {queue: (0, messages // 4) for queue in range(4)}
    assert caplog.text.count("another one now") == 4
    assert careless.latestOffset(after, ALL) is after
    strict = stream(topic)
    assert strict.latestOffset(after, ALL) is after, "what is there now is what was read"


def test_a_stream_that_runs_notices_it_with_its_next_look_at_marks(cluster: ErucaCluster, topic: Topic) -> None:
    clock = Clock()
    topic.fill(12)
    strict, careless = (
        stream(topic, clock, failOnDataLoss=each, minOffsetsPerTrigger="1000") for each in ("true", "false")
    )
    ends = {each: each.latestOffset(each.initialOffset(), ALL) for each in (strict, careless)}
    for reader, end in ends.items():
        assert reader.latestOffset(end, ALL) is end
    make_again(cluster, topic, 16)

    clock.now += CHECK_SECONDS
    with pytest.raises(SourceError, match=ANOTHER):
        strict.latestOffset(ends[strict], ALL)
    for _ in range(3):  # also where it waits for more meanwhile
        assert careless.latestOffset(ends[careless], careless.getDefaultReadLimit()) is ends[careless]
    after = careless.latestOffset(ends[careless], ALL)
    assert planned(careless, ends[careless], after) == {queue: (0, 4) for queue in range(4)}


def test_a_mark_is_replaced_by_none_of_another_topic(cluster: ErucaCluster, topic: Topic) -> None:
    topic.fill(12)
    reader = stream(topic)
    end = reader.latestOffset(reader.initialOffset(), ALL)
    reader = stream(topic)
    assert reader.latestOffset(end, ALL) is end, "it is the same topic"
    make_again(cluster, topic, 16)

    after = reader.latestOffset(end, ALL)
    assert planned(reader, end, after) == {queue: (3, 4) for queue in range(4)}, "it was compared a moment ago"
    for each in (reader, stream(topic)):
        with pytest.raises(SourceError, match=r"up to 4, but the message at 2 is another one now"):
            each.latestOffset(after, ALL)


def test_a_broker_that_comes_back_with_another_store_is_noticed_at_once(tmp_path: Path) -> None:
    with ErucaCluster(tmp_path / "cluster") as own:
        topic = Topic(own, "emptied", 4)
        topic.fill(12)
        reader = stream(topic)
        end = reader.latestOffset(reader.initialOffset(), ALL)
        own.broker.stop()
        assert reader.latestOffset(end, ALL) is end, "it is away"
        own.broker = ErucaBroker(tmp_path / "another", own.address)
        topic.close()
        again = Topic(own, "emptied", 4)
        again.fill(16)
        again.close()

        with pytest.raises(SourceError, match=ANOTHER):
            reader.latestOffset(end, ALL)


def test_a_batch_that_an_earlier_run_has_not_finished_is_not_read_from_another_topic(
    cluster: ErucaCluster, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    topic.fill(12)
    before = stream(topic)
    first = before.latestOffset(before.initialOffset(), ReadMaxRows(8))
    second = before.latestOffset(first, ALL)
    make_again(cluster, topic, 16)

    for start, end in ((before.initialOffset(), first), (first, second)):
        with pytest.raises(SourceError, match=r"is another one now, .* failOnDataLoss=false"):
            stream(topic).partitions(start, end)
        careless = stream(topic, failOnDataLoss="false")
        assert planned(careless, start, end) == {}
        after = careless.latestOffset(end, ALL)
        assert planned(careless, end, after) == {queue: (0, 4) for queue in range(4)}
    assert "goes on with what was stored since" in caplog.text


def test_a_checkpoint_of_an_earlier_version_is_taken_as_before(cluster: ErucaCluster, topic: Topic) -> None:
    topic.fill(12)
    before = stream(topic)
    end = before.latestOffset(before.initialOffset(), ALL)
    make_again(cluster, topic, 16)
    del end["marks"]

    reader = stream(topic)
    after = reader.latestOffset(end, ALL)
    assert planned(reader, end, after) == {queue: (3, 4) for queue in range(4)}
    assert set(after["marks"][topic.name]["broker-a"]) == {"0", "1", "2", "3"}, "from now on it is known"


@pytest.mark.parametrize("changed", [[2, 2**62, 5], [2, -(2**62), 5]])
def test_a_mark_that_was_changed_by_hand_is_told_in_a_sentence(topic: Topic, changed: list[int]) -> None:
    topic.fill(12)
    before = stream(topic)
    end = before.latestOffset(before.initialOffset(), ALL)
    end["marks"][topic.name]["broker-a"]["0"] = changed

    with pytest.raises(
        SourceError, match=rf"stored at 20.* and not at {changed[1]} ms since 1970: the topic was deleted"
    ):
        stream(topic).latestOffset(end, ALL)
    end["marks"][topic.name]["broker-a"]["0"] = [2, 2**80, 5]
    with pytest.raises(SourceError, match="is no mark of a queue"):
        stream(topic).latestOffset(end, ALL)


def test_a_message_that_retention_has_deleted_is_no_other_one(forgetful: ErucaCluster) -> None:
    topic = Topic(forgetful, "marked", 2)
    fill(topic)
    reader = stream(topic)
    first = reader.latestOffset(reader.initialOffset(), ReadMaxRows(20))
    last = reader.latestOffset(first, ALL)
    forget(forgetful, topic)

    for marks in (first["marks"], last["marks"]):
        later, end = stream(topic), {**last, "marks": marks}
        assert later.latestOffset(end, ALL) is end
    topic.fill(2)
    assert planned(later, last, later.latestOffset(last, ALL)) == {0: (400, 401), 1: (400, 401)}
    topic.close()


class Broker:
    """Queues in memory that are cut, and filled on; their messages are numbered, and a millisecond older each."""

    def __init__(self) -> None:
        self.log: list[int] = []
        self.gone = self.written = 0

    def write(self, count: int) -> None:
        self.log += range(self.written, self.written + count)
        self.written += count

    async def pull(self, queue: MessageQueue, offset: int, count: int, **_: Any) -> Any:
        there = self.gone <= offset < len(self.log)
        records = [self.record(offset)] if there else []
        return SimpleNamespace(status=PullStatus.FOUND if there else PullStatus.OFFSET_MOVED, records=records)

    def record(self, offset: int) -> Any:
        number = self.log[offset]
        return SimpleNamespace(queue_offset=offset, store_timestamp=1000 + number // 3, physical_offset=number * 100)


STEPS = st.lists(st.tuples(st.sampled_from(["write", "delete", "cut", "retain"]), st.integers(1, 6)), max_size=8)


@given(begin=st.integers(1, 5), steps=STEPS)
async def test_only_what_was_replaced_is_taken_for_it(begin: int, steps: list[tuple[str, int]]) -> None:
    broker, queue = Broker(), MessageQueue("t", "b", 0)
    broker.write(begin)
    consumer = cast(PullConsumer, broker)
    read = await Lives(time.monotonic).mark(consumer, None, StreamOffset({queue: begin}))
    last = broker.log[begin - 1]
    for step, size in steps:
        if step == "write":
            broker.write(size)
        elif step == "delete":
            broker.log, broker.gone = [], 0
        elif step == "cut":
            broker.log = broker.log[: max(broker.gone, len(broker.log) - size)]
        else:
            broker.gone = min(len(broker.log), broker.gone + size)

    found = await Lives(time.monotonic).replaced(consumer, read.marks, {queue})

    there = broker.log[begin - 1] if broker.gone < begin <= len(broker.log) else last
    assert set(found) == ({queue} if there != last else set())
