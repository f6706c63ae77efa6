"""Messages of an interval, from a topic or an archive, sent once more: to a topic, or to one group alone.

To one group alone means: to the topic of that group's retries (``%RETRY%<group>``), which each of its push consumers
reads anyway, and whose messages they take for messages of the topic that RETRY_TOPIC names. So the group's own program
works through the interval again, with its offsets where they were; other groups, and the topic itself, notice nothing.

Order: the messages of a queue (or of a key) go to one queue, in the order of their offsets (of their store times).
Delivery is the sink's at least once; each message carries where it comes from in properties (``MARKS``), so a consumer
can detect a repeat: REPLAY_QUEUE and REPLAY_OFFSET name the original. Times are ms since 1970.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from eruca.client import MessageQueue
from eruca.protocol import names
from eruca.spark_connector.errors import BadOption
from eruca.spark_connector.option_parsers import group as check_group
from eruca.spark_connector.pipelines.archives import read_archive
from eruca.spark_connector.pipelines.endpoint import Endpoint, marked
from eruca.spark_connector.pipelines.progress import Progress, ProgressListener, ignore_progress, repeated, watched
from eruca.spark_connector.pipelines.units import check_lists, check_words, read_interval

MARKS = ("REPLAY_ID", "REPLAY_TOPIC", "REPLAY_QUEUE", "REPLAY_OFFSET", "REPLAY_MESSAGE_ID", "REPLAY_STORED")
"""Properties of a message that was replayed: the replay, and the original's topic, ``broker:queue``, offset, message id
and store time in ms."""
SHARDING_KEY = "__SHARDINGKEY"
"""The property in which some producers leave the key by which they chose the queue."""
COLUMNS = (
    "topic string, brokerName string, queueId int, queueOffset bigint, body binary, tags string, keys string, "
    "messageId string, storeTimestamp timestamp, flag int, properties map<string,string>"
)
SENT = ("body", "tags", "keys", "flag", "properties")
"""Columns of a message that are sent again."""
Order = Literal["queue", "key"]


@dataclass(kw_only=True)
class ReplaySummary:
    """What one replay sent, or would send. ``first`` and ``last`` are store times of originals in ms, None for none."""

    topic: str
    to: str
    replay_id: str
    messages: int
    first: int | None
    last: int | None
    queues: Counter[str] = field(default_factory=Counter)
    sent: bool = False
    seconds: float = 0.0


def replay(
    spark: SparkSession,
    *,
    name_server: str,
    topic: str,
    to: str | None = None,
    group: str | None = None,
    archive: str | None = None,
    start: str | int | None = None,
    end: str | int | None = None,
    tags: Sequence[str] = (),
    keys: Sequence[str] = (),
    rate: float | None = None,
    order: Order = "queue",
    replay_id: str | None = None,
    rehearse: bool = False,
    target_name_server: str | None = None,
    access: Mapping[str, str] | None = None,
    tell: ProgressListener = ignore_progress,
) -> ReplaySummary:
    """Send the messages of ``topic`` that were stored in [start, end) to a topic or a group.

    Args:
        to: the topic that gets them; it is made if it is not there, as large as the original.
        group: instead of ``to``, the group whose members get them, each as a message of ``topic``.
        archive: where to read, a folder of ``archive``; by default the topic itself.
        tags, keys: only messages with one of these tags, with one of these keys.
        rate: messages a second at most, over all tasks.
        order: ``queue`` keeps the order of each queue, ``key`` that of messages with one sharding key (else one KEYS).
        replay_id: the name of this replay; the same name again makes messages that are known as repeats.
        rehearse: count only, send nothing.
        target_name_server: another cluster to send to.

    Raises BadOption, and what reading and sending fail with.
    """
    check_lists(tags=tags, keys=keys)
    check_words("order", [order], get_args(Order))
    first, last = read_interval(start, end)
    if (to is None) == (group is None):
        raise BadOption("Say where to: a topic, or a group (one of both).")
    if rate is not None and not rate > 0:
        raise BadOption(f"The rate {rate:g} sends nothing: give a number of messages a second above 0.")
    source, target = Endpoint(name_server, access), Endpoint(target_name_server or name_server, access)
    destination = _destination(to, group, topic, same_cluster=target_name_server is None)
    rows = _Selection(topic, archive, first, last, tuple(tags), tuple(keys)).read(spark, source)
    with watched(spark, "of the count", tell):
        counts = _count(rows)
    summary = _summary(counts, topic, destination, replay_id or uuid.uuid4().hex[:12])
    if rehearse or not counts:
        return summary
    origins = [MessageQueue(topic, row["brokerName"], row["queueId"]) for row in counts]
    if group is not None:
        queues = target.queues(destination)
        if not queues:
            raise BadOption(f"The group {group} is not known there: its consumers must have been online once.")
    else:
        queues = target.ensure_topic(destination, source.queues(topic) or origins)
    began = time.monotonic()
    marked_rows = _with_marks(rows, summary.replay_id, to_group=group is not None)
    outgoing = _by_key(marked_rows) if order == "key" else _by_queue(marked_rows, origins, queues)
    options: dict[str, Any] = {"writeId": f"replay-{summary.replay_id}"}
    if rate is not None:
        options["maxRowsPerSecond"] = rate / spark.sparkContext.defaultParallelism
    with _sent_messages_reported(target, queues, summary.messages, tell):
        target.write(outgoing, destination, **options)
    summary.seconds, summary.sent = time.monotonic() - began, True
    return summary


def _destination(to: str | None, group: str | None, topic: str, *, same_cluster: bool) -> str:
    if group is not None:
        try:
            return names.retry_topic(check_group(group))
        except ValueError as error:
            raise BadOption(f'The group "{group}" cannot be: {error}.') from None
    assert to is not None
    if fault := names.topic_fault(to):
        raise BadOption(f'The topic "{to}" cannot be sent to: {fault}')
    if to == topic and same_cluster:
        raise BadOption(
            f"{topic} would get its own messages again, for all of its groups: choose another topic, or one group."
        )
    return to


@dataclass(frozen=True)
class _Selection:
    """Which messages are replayed: those of a topic or its archive in [first, last) with these tags and keys."""

    topic: str
    archive: str | None
    first: int
    last: int | None
    tags: tuple[str, ...]
    keys: tuple[str, ...]

    def read(self, spark: SparkSession, source: Endpoint) -> DataFrame:
        """The messages as rows. Raises SourceError for a topic that does not exist."""
        if self.archive is not None:
            rows = read_archive(spark, self.archive, topics=[self.topic], start=self.first, end=self.last)
        else:
            source.existing_queues(self.topic)
            rows = source.read_interval(spark, COLUMNS, [self.topic], self.first, self.last)
        if self.tags:
            rows = rows.where(F.col("tags").isin(*self.tags))
        if self.keys:
            rows = rows.where(F.arrays_overlap(F.split("keys", r"\s+"), F.array(*map(F.lit, self.keys))))
        return rows


def _count(rows: DataFrame) -> list[Row]:
    """The messages of each queue, and its first and last store time in ms; by broker and queue."""
    stored = F.unix_millis("storeTimestamp")
    counts = rows.groupBy("brokerName", "queueId").agg(
        F.count("*").alias("count"), F.min(stored).alias("first"), F.max(stored).alias("last")
    )
    return sorted(counts.collect())


def _summary(counts: Sequence[Row], topic: str, destination: str, replay_id: str) -> ReplaySummary:
    return ReplaySummary(
        topic=topic,
        to=destination,
        replay_id=replay_id,
        messages=sum(row["count"] for row in counts),
        first=min((row["first"] for row in counts), default=None),
        last=max((row["last"] for row in counts), default=None),
        queues=Counter({f"{row['brokerName']}:{row['queueId']}": row["count"] for row in counts}),
    )


def _origin() -> Column:
    """``broker:queue`` of the original message."""
    return F.concat_ws(":", "brokerName", F.col("queueId").cast("string"))


def _with_marks(rows: DataFrame, replay_id: str, *, to_group: bool) -> DataFrame:
    """The rows with MARKS among their properties; with ``to_group`` also as retries of their topic."""
    values = (
        F.lit(replay_id),
        F.col("topic"),
        _origin(),
        F.col("queueOffset").cast("string"),
        F.coalesce("messageId", F.lit("-")),
        F.unix_millis("storeTimestamp").cast("string"),
    )
    marks: dict[str, Column] = dict(zip(MARKS, values, strict=True))
    if to_group:
        marks[names.RETRY_TOPIC] = F.col("topic")
    return rows.withColumn("properties", marked(marks))


def _by_key(rows: DataFrame) -> DataFrame:
    """The rows for the sink, in an order that keeps messages with one key in the order of their store times."""
    tasks = rows.sparkSession.sparkContext.defaultParallelism
    key = F.coalesce(F.col("properties")[SHARDING_KEY], F.col("keys"), _origin())
    ordered = rows.withColumn("shardingKey", key).repartition(tasks, "shardingKey")
    ordered = ordered.sortWithinPartitions("storeTimestamp", "brokerName", "queueId", "queueOffset")
    return ordered.select(*SENT, "shardingKey")


def _by_queue(rows: DataFrame, origins: Sequence[MessageQueue], targets: Sequence[MessageQueue]) -> DataFrame:
    """The rows for the sink, each original queue in its order to one of the targets."""
    tasks = rows.sparkSession.sparkContext.defaultParallelism
    pairs: list[Column] = []
    for place, origin in enumerate(origins):
        target = targets[place % len(targets)]
        broker, queue_id = F.lit(target.broker_name).alias("broker"), F.lit(target.queue_id).alias("queue")
        pairs += (F.lit(f"{origin.broker_name}:{origin.queue_id}"), F.struct(broker, queue_id))
    placed = rows.withColumn("_origin", _origin()).withColumn("_to", F.create_map(*pairs)[F.col("_origin")])
    ordered = placed.repartition(tasks, "_origin").sortWithinPartitions("storeTimestamp", "_origin", "queueOffset")
    return ordered.select(*SENT, F.col("_to.queue").alias("queueId"), F.col("_to.broker").alias("brokerName"))


@contextmanager
def _sent_messages_reported(
    target: Endpoint, queues: Sequence[MessageQueue], total: int, tell: ProgressListener
) -> Iterator[None]:
    """Report, while the block runs, how many messages the target's queues have got since."""
    if tell is ignore_progress:
        yield
        return
    before = sum(target.ends(queues).values())
    tell(Progress("sent", 0, total))
    with repeated(lambda: tell(Progress("sent", min(total, sum(target.ends(queues).values()) - before), total))):
        yield
    tell(Progress("sent", total, total))
