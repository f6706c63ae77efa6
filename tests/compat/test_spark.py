"""Spark reads Apache RocketMQ's own broker, which grants 32 messages a pull and filters by SQL92, and writes to it.

Pipelines work there on what Java's clients sent, consumed and gave up.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from eruca.client.sync import PullConsumer
from eruca.remoting.clock import now_ms
from eruca.spark_connector import Lag, LagListener, SourceError, cause_of, explain_read
from eruca.spark_connector.options import read_options
from eruca.spark_connector.pipelines import archive, audit, read_archive, replay, rollup, triage
from eruca.spark_connector.pipelines.endpoint import Endpoint
from eruca.spark_connector.read.stream import StreamReader
from eruca.spark_connector.schema import default_schema
from tests.compat.clients import JavaClients, Letter, Seen, drain
from tests.compat.transcript import eruca_mqadmin
from tests.support.apache import ApacheCluster
from tests.support.java import Judge
from tests.support.spark import COLUMNS, Topic, assert_rows, read, read_stream, rows_of, spark_session


@pytest.fixture(scope="module")
def spark(quick_java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(scope="module")
def topic(apache_sql: ApacheCluster) -> Iterator[Topic]:
    """A topic with messages of many sizes, tags, properties, compressed and in batches."""
    made = Topic(apache_sql, "SparkReads", 4)
    for number in range(400):
        tag = "Aa" if number % 5 == 0 else "BB"  # one hash code
        made.send(number % 4, b"%d" % number * (number + 1), tags=tag, keys=f"k{number}", properties={"n": str(number)})
    made.send(1, b"z" * 200_000)
    made.send_batch(2, b"one", b"two", b"three")
    yield made
    made.close()


def test_rows_are_what_was_sent(spark: SparkSession, topic: Topic) -> None:
    assert_rows(rows_of(read(spark, topic)), topic.rows)
    assert_rows(rows_of(read(spark, topic, minPartitions=9, arrowBatchRows=50)), topic.rows)


def test_an_interval_is_exact(spark: SparkSession, topic: Topic) -> None:
    stamps = {
        (row.queueId, row.queueOffset): int(row.ms)
        for row in read(spark, topic, "queueId int, queueOffset bigint, storeTimestamp timestamp")
        .selectExpr("queueId", "queueOffset", "unix_millis(storeTimestamp) ms")
        .collect()
    }
    ordered = sorted(stamps.values())
    for start, end in ((ordered[50], ordered[300]), (ordered[0], ordered[1]), (ordered[-1], ordered[-1] + 1)):
        wanted = {place: topic.rows[place] for place, stamp in stamps.items() if start <= stamp < end}
        assert_rows(rows_of(read(spark, topic, startingTimestamp=start, endingTimestamp=end)), wanted)


def test_filters(spark: SparkSession, topic: Topic) -> None:
    tagged = {place: row for place, row in topic.rows.items() if row["tags"] == "Aa"}
    assert_rows(rows_of(read(spark, topic, tags="Aa")), tagged)

    assert len(rows_of(read(spark, topic, sqlFilter="n BETWEEN 100 AND 199 AND TAGS = 'BB'"))) == 80
    with pytest.raises(Exception, match='refuses sqlFilter="n >> 3"'):
        read(spark, topic, sqlFilter="n >> 3").collect()


def test_a_stream_reads_all_once(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    query = (
        read_stream(spark, topic, startingOffsets="earliest", maxOffsetsPerTrigger=150, commitGroup="SparkLake")
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "rows"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )

    assert query.awaitTermination(120)
    assert_rows(rows_of(spark.read.parquet(str(tmp_path / "rows"))), topic.rows)
    # Its group is found by tools, though it never had a member.
    progress, deadline = "", time.monotonic() + 60
    while topic.name not in progress and time.monotonic() < deadline:
        progress = eruca_mqadmin(("consumerProgress", "-n", topic.name_server, "-g", "SparkLake")).stdout
    rows = [line.split() for line in progress.splitlines() if line.startswith(topic.name)]
    assert len(rows) == 4 and all(row[3] == row[4] != "0" for row in rows), progress


def test_plans_are_checked_and_explained(
    spark: SparkSession, apache_sql: ApacheCluster, fresh: Callable[[str], str]
) -> None:
    topic, known, unknown = Topic(apache_sql, fresh("SparkPlans"), 2), fresh("known"), fresh("unknown")
    for number in range(20):
        topic.send(number % 2, b"%d" % number, tags="ABC"[number % 3])

    assert rows_of(read(spark, topic, startingOffsets="group", commitGroup=unknown)) == {}
    with PullConsumer(known, nameserver=apache_sql.address) as consumer:
        consumer.update_offset(topic.queues[0], 4)
        consumer.update_offset(topic.queues[1], 0)
        wait_for(lambda: consumer.query_offset(topic.queues[0]) == 4)
        later = {place: row for place, row in topic.rows.items() if place >= (0, 4)}
        assert_rows(rows_of(read(spark, topic, startingOffsets="group", commitGroup=known)), later)
        consumer.update_offset(topic.queues[0], 500)
        wait_for(lambda: consumer.query_offset(topic.queues[0]) == 500)
    sentence = (
        rf'startingOffsets="group" means 500 by the group {known} for .*queueId=0\], which ends at 10: correct it'
    )
    with pytest.raises(Exception, match=sentence):
        read(spark, topic, startingOffsets="group", commitGroup=known).collect()

    chosen = read(spark, topic, tags="A || B")
    assert explain_read(chosen) == (
        "reads 20 offsets of 2 queues in 1 task, filtered at the broker by tags=A || B: "
        f"{topic.name} broker-a:0 0-10, {topic.name} broker-a:1 0-10"
    )
    assert_rows(rows_of(chosen), {place: row for place, row in topic.rows.items() if row["tags"] != "C"})
    topic.close()


def test_a_stream_tells_its_lag_and_ends_when_its_group_is_reset(
    spark: SparkSession, apache_sql: ApacheCluster, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    topic, group, found, last = Topic(apache_sql, fresh("SparkLag"), 2), fresh("reset"), list[Lag](), threading.Event()
    topic.fill(12)

    def told(lag: Lag) -> None:
        found.append(lag)
        if lag.total == 0:
            last.set()

    listener = LagListener(told)
    spark.streams.addListener(listener)
    given = {"startingOffsets": "earliest", "commitGroup": group, "commitIntervalMs": 0, "onGroupReset": "fail"}
    stream = read_stream(spark, topic, **given, maxOffsetsPerTrigger=4)
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        assert last.wait(120), found
        assert [lag.total for lag in found[:3]] == [8, 4, 0]
        with PullConsumer(group, nameserver=apache_sql.address) as consumer:
            wait_for(lambda: [consumer.query_offset(queue) for queue in topic.queues] == [6, 6])
            consumer.update_offset(topic.queues[1], 1)
            with pytest.raises(StreamingQueryException) as error:
                query.awaitTermination(120)
        assert f"The group {group} was set from 6 to 1 in {topic.queues[1]}" in cause_of(error.value)
    finally:
        query.stop()
        spark.streams.removeListener(listener)
        topic.close()


def test_queues_that_are_taken_away_are_told_at_once(apache_sql: ApacheCluster, fresh: Callable[[str], str]) -> None:
    topic = Topic(apache_sql, fresh("SparkFewer"), 4)
    topic.fill(16)

    def rows(**given: str) -> int:
        options = {"nameServer": topic.name_server, "subscribe": topic.name, "startingOffsets": "earliest", **given}
        reader = StreamReader(read_options(options, streaming=True), default_schema(), 2)
        last = reader.latestOffset(first, ReadAllAvailable())
        return sum(batch.num_rows for part in reader.partitions(first, last) for batch in reader.read(part))

    given = {"nameServer": topic.name_server, "subscribe": topic.name, "startingOffsets": "earliest"}
    begun = StreamReader(read_options(given, streaming=True), default_schema(), 2)
    first = begun.latestOffset(begun.initialOffset(), ReadMaxRows(8))
    topic.grow(apache_sql, 2)
    with pytest.raises(SourceError, match=r"queueId=2\] cannot be read any more, as .* has fewer read queues"):
        rows()
    assert rows(failOnDataLoss="false") == 4
    topic.close()


def test_a_topic_that_was_made_again_or_may_not_be_read_is_told(
    apache_sql: ApacheCluster, fresh: Callable[[str], str]
) -> None:
    topic = Topic(apache_sql, fresh("SparkAgain"), 2)
    topic.fill(6)
    given = {"nameServer": topic.name_server, "subscribe": topic.name, "startingOffsets": "earliest"}

    def stream(**more: str) -> StreamReader:
        return StreamReader(read_options({**given, **more}, streaming=True), default_schema(), 2)

    reader = stream()
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    topic.grow(apache_sql, 2, perm=2)
    with pytest.raises(SourceError, match=r"lets nobody read .* forbidden\): "):
        [*reader.read(reader.partitions(reader.initialOffset(), end)[0])]
    deleted = eruca_mqadmin(("deleteTopic", "-n", apache_sql.address, "-c", "JudgeCluster", "-t", topic.name))
    assert deleted.exit == 0, deleted
    with pytest.raises(SourceError, match=r"up to 3, but now it ends at 0: the topic was deleted"):
        stream().latestOffset(end, ReadAllAvailable())
    topic.grow(apache_sql, 2)
    topic.fill(8)

    with pytest.raises(SourceError, match=r"the message at 2 is another one now.* created again"):
        stream().latestOffset(end, ReadAllAvailable())
    careless = stream(failOnDataLoss="false")
    after = careless.latestOffset(end, ReadAllAvailable())
    parts = careless.partitions(end, after)
    assert sum(batch.num_rows for part in parts for batch in careless.read(part)) == 8
    assert stream().latestOffset(after, ReadAllAvailable()) is after
    topic.close()


def test_a_batch_has_about_as_many_bytes_as_it_may(apache_sql: ApacheCluster, fresh: Callable[[str], str]) -> None:
    topic = Topic(apache_sql, fresh("SparkBytes"), 1)
    for size in (800, 100_000, 800):
        for _ in range(4):
            topic.send_batch(0, *(random.randbytes(size),) * (50 if size == 800 else 1))
    given = {"nameServer": topic.name_server, "subscribe": topic.name, "startingOffsets": "earliest"}
    reader = StreamReader(read_options({**given, "maxBytesPerTrigger": "50k"}, streaming=True), default_schema(), 2)
    at, lengths = reader.initialOffset(), []
    while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
        lengths.append(sum(len(each) for part in reader.partitions(at, end) for each in part.ranges))
        at = end

    assert sum(lengths) == 404 and lengths.count(1) >= 4
    assert 40 <= lengths[0] <= 60 and max(lengths) <= 60, lengths
    topic.close()


def test_what_spark_writes_java_reads(
    spark: SparkSession, apache_sql: ApacheCluster, judge: Judge, fresh: Callable[[str], str]
) -> None:
    topic = Topic(apache_sql, "SparkWrites", 4)
    rows = spark.range(3000, numPartitions=2).selectExpr(
        "CAST(concat('grüße ', id) AS BINARY) AS body",
        "IF(id % 2 = 0, 'Even', NULL) AS tags",
        "concat('k', id, ' all') AS keys",
        "CAST(id AS INT) AS flag",
        "id % 7 AS shardingKey",
        "map('n', CAST(id AS STRING), 'größe', 'x y') AS properties",
    )
    writer = rows.write.format("rocketmq").option("nameServer", apache_sql.address).option("topic", topic.name)
    writer.mode("append").save()

    with JavaClients(judge).puller(fresh("readers"), apache_sql.address) as puller:
        seen = drain(puller, topic.name)

    assert sorted(each.flag for each in seen) == list(range(3000))
    queue_of_key: dict[int, set[int]] = {}
    for each in seen:
        n = each.flag
        assert each.body.decode() == f"grüße {n}"
        assert (each.tags, each.keys) == ("" if n % 2 else "Even", f"k{n} all")
        assert {name: each.properties[name] for name in ("n", "größe")} == {"n": str(n), "größe": "x y"}
        queue_of_key.setdefault(n % 7, set()).add(each.queue)
    assert all(len(queues) == 1 for queues in queue_of_key.values())
    assert len({each.properties["SPARK_ID"] for each in seen}) == len({each.message_id for each in seen}) == 3000
    topic.close()


def test_archive_rollup_and_replay_to_a_group_of_java(
    spark: SparkSession, apache_sql: ApacheCluster, judge: Judge, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    topic, lake = Topic(apache_sql, fresh("SparkPipes"), 4), str(tmp_path / "lake")
    topic.fill(60)
    given: dict[str, Any] = {"name_server": apache_sql.address, "topics": [topic.name]}
    assert archive(spark, **given, to=lake, rows_per_file=25, group="SparkArchive").messages == 60
    topic.fill(20)
    assert archive(spark, **given, to=lake, group="SparkArchive").messages == 20
    names = [each.split()[0] for each in COLUMNS.split(", ")]
    assert_rows(rows_of(read_archive(spark, lake).select(*names)), topic.rows)

    going_on = {"window": "10ms", "by": ["key"], "to": str(tmp_path / "rolled"), "resume": True, "grace": "0s"}
    ended = now_ms() // 10 * 10 + 10
    while now_ms() <= ended:
        pass
    counted = rollup(spark, **given, **going_on)  # type: ignore[arg-type]
    counts = Counter(row["keys"] for row in topic.rows.values())
    assert (counted.messages, counted.groups) == (80, counts)
    assert rollup(spark, **given, **going_on).rows == []  # type: ignore[arg-type]
    whole = rollup(spark, **given, archive=lake, window="10ms", by=["key"], end=ended)
    assert (whole.rows, whole.groups) == (counted.rows, counts)

    clients, ours, theirs = JavaClients(judge), fresh("ours"), fresh("theirs")
    with (
        clients.member(ours, apache_sql.address, {topic.name: "*"}) as mine,
        clients.member(theirs, apache_sql.address, {topic.name: "*"}) as others,
    ):
        assert len(mine.received(80)) == len(others.received(80)) == 80
        plan: dict[str, Any] = {"name_server": apache_sql.address, "topic": topic.name, "group": ours}
        assert replay(spark, **plan, archive=lake, keys=["key3", "key7"]).messages == counts["key3"] + counts["key7"]
        again = mine.received(counts["key3"] + counts["key7"])
        assert others.received(1, timeout=0.5) == []
    assert Counter(each.keys for each in again) == {"key3": counts["key3"], "key7": counts["key7"]}
    assert {each.topic for each in again} == {each.properties["REPLAY_TOPIC"] for each in again} == {topic.name}
    assert all(topic.rows[_origin(each)]["body"] == each.body for each in again)
    topic.close()


def _origin(seen: Seen) -> tuple[int, int]:
    return int(seen.properties["REPLAY_QUEUE"].rpartition(":")[2]), int(seen.properties["REPLAY_OFFSET"])


def test_audit_and_triage_of_what_java_consumed_and_gave_up(
    spark: SparkSession, apache_sql: ApacheCluster, judge: Judge, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    topic, traced = Topic(apache_sql, fresh("SparkAudit"), 2), Topic(apache_sql, fresh("SparkTraces"), 1)
    clients, good, bad, silent = JavaClients(judge), fresh("good"), fresh("bad"), fresh("silent")
    letters = [Letter(topic.name, b"%d" % n, tags="x" if n % 2 else "y", keys=f"k{n}") for n in range(10)]
    with (
        clients.producer(fresh("audited"), apache_sql.address, traces=traced.name) as producer,
        clients.member(good, apache_sql.address, {topic.name: "*"}, traces=traced.name) as done,
        clients.member(
            bad, apache_sql.address, {topic.name: "*"}, traces=traced.name, refuse=99, maxReconsumeTimes=0
        ) as giving_up,
    ):
        producer.send(letters)
        assert len(done.received(10)) == 10
        assert done.consumed(10) == giving_up.consumed(10) == 10
    endpoint = Endpoint(apache_sql.address)
    wait_for(lambda: sum(endpoint.ends(endpoint.queues(f"%DLQ%{bad}")).values()) == 10)

    found = audit(
        spark, name_server=apache_sql.address, topics=[topic.name], groups=[good, bad, silent], traces=True,
        trace_topic=traced.name,
    )  # fmt: skip
    assert [(each.behind, each.dead) for each in found.groups] == [(0, 0), (0, 10), (10, 0)]
    assert found.traces is not None
    (sent,) = found.traces.topics
    assert (sent.sent, sent.refused, sent.untraced, sent.absent) == (10, 0, 0, 0)
    seen = [(each.consumed, each.failing, each.missing, each.silent) for each in found.traces.groups]
    assert seen == [(10, 0, 0, False), (0, 10, 0, False), (0, 0, 10, True)]

    plan: dict[str, Any] = {"name_server": apache_sql.address, "group": bad, "ledger": tmp_path / "ledger"}
    looked = triage(spark, **plan, cause_pattern="([0-4])")
    assert {each.cause: each.count for each in looked.causes if each.cause != "-"} == {str(n): 1 for n in range(5)}
    first = triage(spark, **plan, cause_pattern="([0-4])", resend_causes=["3", "4"], to_group=True)
    assert (len(first.resent), triage(spark, **plan, resend_ids=[]).resent) == (2, [])
    with (
        clients.member(bad, apache_sql.address, {topic.name: "*"}) as again,
        clients.member(good, apache_sql.address, {topic.name: "*"}) as others,
    ):
        assert sorted(each.body for each in again.received(2)) == [b"3", b"4"]
        assert others.received(1, timeout=0.5) == []
    topic.close()
    traced.close()


def wait_for(true: Callable[[], bool]) -> None:
    """Until it is so."""
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.1)
