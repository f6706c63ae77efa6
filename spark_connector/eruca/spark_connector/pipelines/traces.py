"""What producers say that they sent against what consumers say that they consumed, by the message traces of both.

Owns the reading of traces with Spark, and the counts by topic, group and window of the time of sending. Clients with
traces switched on write them to RMQ_SYS_TRACE_TOPIC (or a topic of their own) as text: records that end with 02, and
whose fields are joined by 01 (TraceDataEncoder in 4.9.7). Fields used: of ``Pub`` 1 time (ms), 4 topic, 5 message id
(those of a batch joined by commas), 6 tags, 11 kind (1 half, 3 delayed), 13 success (12 in old ones); of ``SubBefore``
3 group, 4 request, 5 message id; of ``SubAfter`` 1 request, 2 message id, 4 success, 8 group (not in old ones); of
``EndTransaction`` 5 message id, 11 state. A half message counts as sent when a trace says that it was committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from eruca.protocol.names import TRACE_TOPIC
from eruca.spark_connector.pipelines.endpoint import Endpoint

STORED = "messageId string, tags string, bornTimestamp timestamp"
SHOWN = 3
"""Ids of messages that are named as examples."""
HOW = (
    "producers and consumers write them with trace=True (enableMsgTrace in Java), and brokers have the topic with "
    "traceTopicEnable=true"
)


@dataclass(kw_only=True)
class TracedTopic:
    """What producers' traces say of a topic, and what it holds.

    ``refused``: sends that their traces call failed. ``untraced``: messages of the interval without a trace of a send.
    ``absent``: messages that were sent and are not there; None where the broker has deleted some already.
    """

    topic: str
    sent: int = 0
    refused: int = 0
    untraced: int = 0
    absent: int | None = 0
    examples: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class TracedGroup:
    """What became of what was sent, by the traces of a group; ``windows`` holds (sent, consumed) by time of sending.

    ``failing``: tried, and never with success. ``missing``: never tried, as far as traces show. ``repeated``: consumed
    with success more than once. ``silent``: the group has written no trace at all.
    """

    topic: str
    group: str
    sent: int = 0
    consumed: int = 0
    failing: int = 0
    missing: int = 0
    repeated: int = 0
    silent: bool = False
    windows: dict[int, tuple[int, int]] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class Traces:
    """What traces of an interval say; ``there`` is false where the topic of traces is not there, or empty."""

    topic: str
    start: int
    end: int
    there: bool = True
    topics: list[TracedTopic] = field(default_factory=list)
    groups: list[TracedGroup] = field(default_factory=list)

    def faults(self, *, missing: int = 0) -> Iterator[str]:
        """A sentence for each thing that is wrong, or that cannot be known; a group may have ``missing`` messages."""
        if not self.there:
            yield f"There are no traces in {self.topic}: {HOW}."
            return
        for each in self.topics:
            if not each.sent:
                yield f"There are no traces of sends to {each.topic} in the interval: {HOW}."
            if each.refused:
                yield f"{each.refused:,} sends to {each.topic} failed."
            if each.absent:
                yield f"{each.absent:,} messages that were sent to {each.topic} are not there: {_list(each.examples)}."
            if each.sent and each.untraced:
                yield f"{each.untraced:,} messages of {each.topic} have no trace of a send: not all producers trace."
        for pair in self.groups:
            who = f"{pair.group} on {pair.topic}"
            if pair.sent and pair.silent:
                yield f"There are no traces of what {pair.group} consumes: {HOW}."
            elif pair.missing > missing:
                yield f"{who} has not consumed {pair.missing:,} of {pair.sent:,} messages: {_list(pair.examples)}."
            if pair.failing:
                yield f"{who} has failed on {pair.failing:,} messages and not consumed them since."


def _list(examples: Sequence[str]) -> str:
    return "such as " + ", ".join(examples)


@dataclass(frozen=True)
class TraceSelection:
    """Which sends are compared: those to ``topics`` in [start, end) (ms) with one of ``tags`` (none: all).

    They are compared with what ``groups`` consumed, and counted by ``window`` (ms); ``trace_topic`` holds the traces.
    """

    topics: tuple[str, ...]
    groups: tuple[str, ...]
    start: int
    end: int
    window: int
    tags: tuple[str, ...] = ()
    trace_topic: str = TRACE_TOPIC


def read_traces(spark: SparkSession, endpoint: Endpoint, chosen: TraceSelection) -> Traces:
    """Compare what was sent with what was consumed, by the traces."""
    found = Traces(topic=chosen.trace_topic, start=chosen.start, end=chosen.end)
    queues = endpoint.queues(chosen.trace_topic)
    if not queues or endpoint.ends(queues) == endpoint.beginnings(queues):
        found.there = False
        return found
    texts = endpoint.read(
        spark,
        "body binary",
        subscribe=chosen.trace_topic,
        startingTimestamp=chosen.start,
        startingOffsetsByTimestampStrategy="latest",
    )
    lines = texts.select(F.explode(F.split(F.decode("body", "UTF-8"), "\x02")).alias("line"))
    records = lines.select(F.split("line", "\x01").alias("f")).where(F.size("f") >= 7).persist()
    try:
        sends = _sends(records, chosen.topics, chosen.tags).persist()
        known = [row[0] for row in _consumption(records).select("group").distinct().collect()]
        for topic in chosen.topics:
            of_topic = sends.where(F.col("topic") == topic)
            inside = of_topic.where((F.col("at") >= chosen.start) & (F.col("at") < chosen.end))
            found.topics.append(_topic(spark, endpoint, topic, of_topic, inside, chosen))
            for group in chosen.groups:
                pair = TracedGroup(topic=topic, group=group, silent=group not in known)
                _compare(inside, records, pair, chosen.window)
                found.groups.append(pair)
        sends.unpersist()
    finally:
        records.unpersist()
    return found


def _of(place: int) -> Column:
    """A field of a record; null where it has fewer."""
    return F.get("f", F.lit(place))


def _sends(records: DataFrame, topics: Sequence[str], tags: Sequence[str]) -> DataFrame:
    """One row for each message: topic, id, at (ms), sent (stored, and committed where it was a half), delayed."""
    pubs = records.where((_of(0) == "Pub") & _of(4).isin(*topics))
    if tags:
        pubs = pubs.where(_of(6).isin(*tags))
    success = F.when(F.size("f") == 13, _of(12)).otherwise(_of(13)) == "true"
    each = pubs.select(
        _of(4).alias("topic"),
        F.explode(F.split(_of(5), ",")).alias("id"),
        _of(1).cast("bigint").alias("at"),
        success.alias("stored"),
        (_of(11) == "1").alias("half"),
        (_of(11) == "3").alias("delayed"),
    )
    committed = records.where((_of(0) == "EndTransaction") & (_of(11) == "COMMIT_MESSAGE"))
    ends = committed.select(_of(5).alias("id"), F.lit(True).alias("committed")).distinct()
    whole = each.groupBy("topic", "id").agg(
        F.min("at").alias("at"), *(F.bool_or(name).alias(name) for name in ("stored", "half", "delayed"))
    )
    sent = F.col("stored") & (~F.col("half") | F.coalesce("committed", F.lit(False)))
    return whole.join(ends, "id", "left").withColumn("sent", sent)


def _consumption(records: DataFrame) -> DataFrame:
    """One row for each attempt: group, id, ok."""
    before = records.where(_of(0) == "SubBefore").select(
        _of(4).alias("request"), _of(5).alias("id"), _of(3).alias("of")
    )
    after = records.where(_of(0) == "SubAfter").select(
        _of(1).alias("request"), _of(2).alias("id"), (_of(4) == "true").alias("ok"), _of(8).alias("named")
    )
    both = after.join(before.distinct(), ["request", "id"], "left")
    return both.select(F.coalesce("named", "of").alias("group"), "id", "ok").where(F.col("group").isNotNull())


def _topic(
    spark: SparkSession, endpoint: Endpoint, topic: str, sends: DataFrame, inside: DataFrame, chosen: TraceSelection
) -> TracedTopic:
    """Compare the sends with the messages that are there."""
    traced = TracedTopic(topic=topic)
    counts = inside.agg(F.count_if("sent").alias("sent"), F.count_if(~F.col("stored")).alias("refused")).collect()[0]
    traced.sent, traced.refused = counts["sent"], counts["refused"]
    queues = endpoint.existing_queues(topic)
    there = endpoint.read(spark, STORED, subscribe=topic)
    tagged = there.where(F.col("tags").isin(*chosen.tags)) if chosen.tags else there
    born = F.unix_millis("bornTimestamp")
    recent = tagged.where((born >= chosen.start) & (born < chosen.end))
    traced.untraced = recent.join(sends, recent["messageId"] == sends["id"], "left_anti").count()
    if any(endpoint.beginnings(queues).values()):
        traced.absent = None
        return traced
    gone = inside.where("sent AND NOT delayed").join(there, inside["id"] == there["messageId"], "left_anti").persist()
    traced.absent = gone.count()
    traced.examples = _examples(gone)
    gone.unpersist()
    return traced


def _compare(inside: DataFrame, records: DataFrame, pair: TracedGroup, window: int) -> None:
    """Count what became of the sends, by the traces of a group."""
    tried = _consumption(records).where(F.col("group") == pair.group)
    attempts = tried.groupBy("id").agg(F.count_if("ok").alias("done"), F.count("*").alias("tries"))
    held = inside.where("sent").join(attempts, "id", "left").persist()
    rows: list[Any] = (
        held.groupBy(F.expr(f"at DIV {window} * {window}").alias("start"))
        .agg(
            F.count("*").alias("sent"),
            F.count_if(F.expr("done > 0")).alias("consumed"),
            F.count_if(F.expr("done = 0")).alias("failing"),
            F.count_if(F.expr("tries IS NULL")).alias("missing"),
            F.count_if(F.expr("done > 1")).alias("repeated"),
        )
        .orderBy("start")
        .collect()
    )
    for row in rows:
        pair.windows[row["start"]] = (row["sent"], row["consumed"])
        for name in ("sent", "consumed", "failing", "missing", "repeated"):
            setattr(pair, name, getattr(pair, name) + row[name])
    pair.examples = _examples(held.where("tries IS NULL"))
    held.unpersist()


def _examples(rows: DataFrame) -> list[str]:
    return [row["id"] for row in rows.orderBy("at", "id").limit(SHOWN).collect()]
