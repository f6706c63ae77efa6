"""Daemons that go away and come back while a query runs."""

from __future__ import annotations

import asyncio
import io
import re
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from eruca.admin.cli import run as mqadmin
from eruca.client import Message, MessageQueue, PullConsumer
from eruca.client.errors import CallTimeout, NameserverUnreachable
from eruca.client.sync import Producer
from eruca.spark_connector.errors import SourceError
from eruca.spark_connector.options import read_options
from eruca.spark_connector.read.batch import BatchReader
from eruca.spark_connector.read.stream import StreamReader
from eruca.spark_connector.runtime import clients
from eruca.spark_connector.runtime import retry as retries
from eruca.spark_connector.runtime.clients import ClusterClients
from eruca.spark_connector.runtime.retry import retry
from eruca.spark_connector.schema import default_schema
from tests.support.eruca import ErucaBroker, ErucaCluster
from tests.support.processes import Process
from tests.support.spark import Topic

ALL = ReadAllAvailable()
NEEDED = (
    r"^broker-a does not answer, and all brokers of the topics are needed: start it, or look whether it is too busy"
)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[ErucaCluster]:
    """A cluster that this test may stop."""
    with ErucaCluster(tmp_path) as cluster:
        yield cluster


CHOSEN: tuple[dict[str, str], ...] = (
    {"subscribe": "outages"},
    {"subscribePattern": "out.*"},
    {"assign": '{"outages": {"broker-a": [0, 1]}}'},
)


def stream(own: ErucaCluster, **options: str) -> StreamReader:
    given = {"nameServer": own.address, "startingOffsets": "earliest", "latestOffsetCacheMs": "0", **options}
    if not any(name in given for each in CHOSEN for name in each):
        given["subscribe"] = "outages"
    return StreamReader(read_options(given, streaming=True), default_schema(), 2)


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


@pytest.mark.parametrize("chosen", CHOSEN, ids=[*map(str, CHOSEN)])
def test_a_stream_has_nothing_new_while_its_only_broker_is_away(
    own: ErucaCluster, source: tuple[Topic, StreamReader], chosen: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    topic, _ = source
    reader = stream(own, **chosen)
    end = reader.latestOffset(reader.initialOffset(), ALL)
    topic.close()
    own.broker.stop()

    for _ in range(3):
        assert reader.latestOffset(end, ALL) == end
    assert caplog.text.count("the queues of broker-a stay where they are, for 600 s at most") == 1
    assert set(reader.reportLatestOffset()["queues"]) <= {"outages"}
    own.broker = ErucaBroker(own.home, own.address)
    again = Topic(own, "outages", 2)
    again.fill(4)
    again.close()
    assert rows(reader, end, reader.latestOffset(end, ALL)) == 4
    assert "broker-a answers again after" in caplog.text


def test_nobody_is_asked_again_while_the_newest_answers_count(
    own: ErucaCluster, source: tuple[Topic, StreamReader]
) -> None:
    topic, _ = source
    reader = stream(own, latestOffsetCacheMs="60000")
    end = reader.latestOffset(reader.initialOffset(), ALL)
    topic.grow(own, 4)
    assert reader.latestOffset(end, ALL) is end, "the new queues are empty"
    assert len(reader.reportLatestOffset()["queues"]["outages"]["broker-a"]) == 4
    topic.close()
    own.broker.stop()
    assert reader.latestOffset(end, ALL) is end


@pytest.mark.parametrize("chosen", CHOSEN, ids=[*map(str, CHOSEN)])
def test_a_query_that_is_started_again_while_its_broker_is_away_knows_its_queues(
    own: ErucaCluster, source: tuple[Topic, StreamReader], chosen: dict[str, str]
) -> None:
    topic, _ = source
    end = stream(own, **chosen).latestOffset({"initial": True}, ALL)
    topic.close()
    own.broker.stop()
    reader = stream(own, **chosen)
    assert reader.latestOffset(end, ALL) == end
    own.broker = ErucaBroker(own.home, own.address)
    again = Topic(own, "outages", 2)
    again.fill(4)
    again.close()
    assert rows(reader, end, reader.latestOffset(end, ALL)) == 4


def test_a_task_waits_for_a_broker_that_went_away_after_the_plan(
    own: ErucaCluster, source: tuple[Topic, StreamReader]
) -> None:
    topic, reader = source
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    topic.close()
    own.broker.stop()
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(rows, reader, start, end)
        with pytest.raises(TimeoutError):
            reading.result(timeout=0.5)
        own.broker = ErucaBroker(own.home, own.address)
        assert reading.result(timeout=60) == 6


def test_a_broker_that_is_away_too_long_ends_the_query(own: ErucaCluster, source: tuple[Topic, StreamReader]) -> None:
    topic, _ = source
    reader = stream(own, brokerLossTimeoutMs="300")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    topic.close()
    own.broker.stop()
    sentence = r"^broker-a has not answered for 0\.3 s \(brokerLossTimeoutMs\), and the query reads queues of it: start"
    with pytest.raises(SourceError, match=sentence):
        while reader.latestOffset(end, ALL) == end:
            pass
    with pytest.raises(SourceError, match=sentence):
        rows(reader, start, end)


def test_sizes_of_messages_are_asked_for_as_long_as_a_broker_may_be_away(
    own: ErucaCluster, source: tuple[Topic, StreamReader]
) -> None:
    topic, _ = source
    given = {"maxBytesPerTrigger": "1", "latestOffsetCacheMs": "600000"}
    reader, hasty = stream(own, **given), stream(own, **given, brokerLossTimeoutMs="300")
    ends = {}
    for each in (reader, hasty):
        first = each.latestOffset(each.initialOffset(), each.getDefaultReadLimit())
        ends[each] = each.latestOffset(first, each.getDefaultReadLimit())  # looks where the queues end
    topic.close()
    own.broker.stop()

    with pytest.raises(SourceError, match=r"^broker-a has not answered for 0\.3 s \(brokerLossTimeoutMs\)"):
        hasty.latestOffset(ends[hasty], hasty.getDefaultReadLimit())
    with ThreadPoolExecutor(1) as pool:
        planning = pool.submit(reader.latestOffset, ends[reader], reader.getDefaultReadLimit())
        with pytest.raises(TimeoutError):
            planning.result(timeout=0.5)
        own.broker = ErucaBroker(own.home, own.address)
        assert rows(reader, ends[reader], planning.result(timeout=60)) == 1


@pytest.fixture
def other(own: ErucaCluster, source: tuple[Topic, StreamReader], tmp_path: Path) -> Iterator[ErucaCluster]:
    """The same cluster with a second broker, which has the topic, too; ``own`` has the first one still."""
    both = copy(own)
    both.home, both.broker = tmp_path / "b", ErucaBroker(tmp_path / "b", own.address, {"brokerName": "broker-b"})
    Topic(both, "outages", 2).close()
    yield both
    both.broker.stop()


def test_what_is_available_now_is_read_of_those_who_answer_and_then_of_the_others(
    own: ErucaCluster, source: tuple[Topic, StreamReader], other: ErucaCluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic, _ = source
    other_queues = [MessageQueue("outages", "broker-b", number) for number in range(2)]
    with Producer("p", nameserver=own.address) as producer:
        for queue in other_queues:
            producer.send(Message("outages", b"body"), queue=queue)
        before = stream(own)
        end = before.latestOffset(before.initialOffset(), ALL)
        assert rows(before, before.initialOffset(), end) == 8
        topic.fill(6)
        for queue in other_queues:
            producer.send(Message("outages", b"body"), queue=queue)
    other.broker.stop()

    hasty, careless = (
        stream(own, brokerLossTimeoutMs="300", failOnDataLoss=each, maxOffsetsPerTrigger="4")
        for each in ("true", "false")
    )
    for reader in (hasty, careless):
        reader.prepareForTriggerAvailableNow()
        half = reader.latestOffset(end, reader.getDefaultReadLimit())
        last = reader.latestOffset(half, reader.getDefaultReadLimit())
        assert rows(reader, end, half) + rows(reader, half, last) == 6
    assert careless.latestOffset(last, ALL) is last
    assert "the query ends without what broker-b may have" in caplog.text
    with pytest.raises(SourceError, match=r"^broker-b has not answered for 0\.3 s \(brokerLossTimeoutMs\)"):
        hasty.latestOffset(last, ALL)

    patient = stream(own)
    patient.prepareForTriggerAvailableNow()
    topic.fill(2)
    with ThreadPoolExecutor(1) as pool:
        planning = pool.submit(patient.latestOffset, last, ALL)
        with pytest.raises(TimeoutError):
            planning.result(timeout=0.5)
        other.broker = ErucaBroker(other.home, own.address, {"brokerName": "broker-b"})
        whole = planning.result(timeout=60)
    assert rows(patient, last, whole) == 2, "what the first broker got since is not in it"
    assert patient.latestOffset(whole, ALL) is whole


def test_what_is_available_now_is_read_of_the_others_whatever_time_they_take(
    own: ErucaCluster, source: tuple[Topic, StreamReader], other: ErucaCluster
) -> None:
    topic, _ = source
    before = stream(own)
    with Producer("p", nameserver=own.address) as producer:
        producer.send(Message("outages", b"body"), queue=MessageQueue("outages", "broker-b", 0))
    end = before.latestOffset(before.initialOffset(), ALL)
    topic.fill(6)
    other.broker.stop()

    reader = stream(own, brokerLossTimeoutMs="0", maxOffsetsPerTrigger="2")
    reader.prepareForTriggerAvailableNow()
    lengths = []
    for _ in range(3):
        after = reader.latestOffset(end, reader.getDefaultReadLimit())
        assert reader.reportLatestOffset()["queues"] == {"outages": {"broker-a": {"0": 6, "1": 6}}}
        lengths.append(rows(reader, end, after))
        end = after
    assert lengths == [2, 2, 2]
    with pytest.raises(SourceError, match=r"^broker-b has not answered for 0 s \(brokerLossTimeoutMs\)"):
        reader.latestOffset(end, reader.getDefaultReadLimit())


def test_a_query_begins_without_a_broker_that_no_nameserver_names_and_reads_it_from_its_start_later(
    own: ErucaCluster, source: tuple[Topic, StreamReader], other: ErucaCluster
) -> None:
    with Producer("p", nameserver=own.address) as producer:
        producer.send(Message("outages", b"old"), queue=MessageQueue("outages", "broker-b", 0))
    new = stream(own, startingOffsets="latest")
    other.broker.stop()
    end = new.latestOffset(new.initialOffset(), ALL)
    assert [*end["queues"]["outages"]] == ["broker-a"]
    assigned = stream(own, assign='{"outages": {"broker-b": [0]}}')
    with pytest.raises(SourceError, match=r"assign names queue 0 of outages at broker-b, which cannot be read"):
        assigned.latestOffset(assigned.initialOffset(), ALL)
    other.broker = ErucaBroker(other.home, own.address, {"brokerName": "broker-b"})
    deadline = time.monotonic() + 60
    while (after := new.latestOffset(end, ALL)) == end:  # the nameserver is asked again for the route
        assert time.monotonic() < deadline
    assert rows(new, end, after) == 1, "what is new to a query is read from its start"


def test_what_is_available_now_waits_for_the_only_broker_but_a_query_does_not_begin_without_it(
    own: ErucaCluster, source: tuple[Topic, StreamReader]
) -> None:
    topic, reader = source
    end = reader.latestOffset(reader.initialOffset(), ALL)
    topic.fill(4)
    topic.close()
    own.broker.stop()
    new, known = stream(own), stream(own)
    for each in (new, known):
        each.prepareForTriggerAvailableNow()
    with pytest.raises(SourceError, match=r"No route info of this topic: outages"):
        new.latestOffset(new.initialOffset(), ALL)
    with ThreadPoolExecutor(1) as pool:
        planning = pool.submit(known.latestOffset, end, ALL)
        with pytest.raises(TimeoutError):
            planning.result(timeout=0.5)
        own.broker = ErucaBroker(own.home, own.address)
        assert rows(known, end, planning.result(timeout=60)) == 4


@pytest.mark.parametrize("given", [{"pullGroup": "lake", "createPullGroup": "true"}, {"sqlFilter": "n > 3"}])
def test_what_is_settled_before_the_first_pull_waits_for_a_broker_too(
    own: ErucaCluster, source: tuple[Topic, StreamReader], given: dict[str, str]
) -> None:
    options = {"nameServer": own.address, "subscribe": "outages", "brokerLossTimeoutMs": "100", **given}
    reader = BatchReader(read_options(options, streaming=False), default_schema(), 1)
    with silent(own.broker.process), pytest.raises(SourceError, match=r"^broker-a has not answered for 0\.1 s"):
        reader.partitions()


@pytest.mark.parametrize("chosen", CHOSEN, ids=[*map(str, CHOSEN)])
def test_a_topic_that_was_deleted_is_told_at_once(
    own: ErucaCluster, source: tuple[Topic, StreamReader], chosen: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    reader, patient = stream(own, **chosen), stream(own, **chosen, failOnDataLoss="false")
    end = reader.latestOffset(reader.initialOffset(), ALL)
    out = io.StringIO()
    asyncio.run(mqadmin(("deleteTopic", "-n", own.address, "-c", "JudgeCluster", "-t", "outages"), {}, out, out))

    with pytest.raises(SourceError, match=r"up to 3, but now it ends at 0: the topic was deleted \(and perhaps"):
        reader.latestOffset(end, ALL)
    clients.close_this_process()  # as in a new run, which finds no route to it
    with pytest.raises(SourceError, match=r"up to 3, but now it ends at 0: the topic was deleted \(and perhaps"):
        stream(own, **chosen).latestOffset(end, ALL)
    gone = patient.latestOffset(end, ALL)
    assert rows(patient, end, gone) == 0 and patient.latestOffset(gone, ALL) is gone
    assert (
        len(re.findall(r"it ends at 0: the topic was deleted .* goes on with what was stored since", caplog.text)) == 2
    )
    assert stream(own, **chosen).latestOffset(gone, ALL) is gone, "what was told counts no more"
    again = Topic(own, "outages", 2)
    again.fill(4)
    again.close()
    assert rows(patient, end, patient.latestOffset(end, ALL)) == 4


def test_queues_of_a_topic_that_is_not_subscribed_any_more_are_not_read(
    own: ErucaCluster, source: tuple[Topic, StreamReader]
) -> None:
    topic, _ = source
    other = Topic(own, "other", 1)
    other.fill(3)
    both = stream(own, subscribe="outages,other")
    end = both.latestOffset(both.initialOffset(), ALL)
    assert rows(both, both.initialOffset(), end) == 9
    other.fill(3)
    topic.fill(2)
    other.close()
    reader = stream(own)
    assert rows(reader, end, reader.latestOffset(end, ALL)) == 2


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


def test_a_broker_that_falls_silent_fails_a_task_that_reads_and_a_plan_in_time(
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
    new = stream(own, pullTimeoutMs="300")
    group = {"pullGroup": "lake", "createPullGroup": "true"}
    with silent(own.broker.process):
        for settled in ({}, {"sqlFilter": "n > 3"}, group):
            planned = read_options({**given, "pullTimeoutMs": "300", **settled}, streaming=False)
            with pytest.raises(SourceError, match=NEEDED):
                BatchReader(planned, default_schema(), 1).partitions()
        with pytest.raises(SourceError, match=NEEDED):
            new.latestOffset(new.initialOffset(), ALL)
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
