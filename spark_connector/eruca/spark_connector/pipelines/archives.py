"""Topics to Parquet files, by topic and day: run again it adds what is new, and nothing twice.

Layout: ``<to>/topic=<topic>/date=<day>/<query>-<batch>-<number>.parquet``, the day by the store time in UTC, rows in
the order of queue and offset. Plain Parquet that any program reads; folders whose names begin with ``_`` are the
archive's own (checkpoint, batches on their way).
Invariant: the rows of a batch are in place once. The checkpoint says which messages a batch has; its files are written
aside and moved when they are whole, under names that hold the number of the batch, and what an attempt that died has
moved is deleted first.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from eruca.remoting.clock import now_ms
from eruca.spark_connector.causes import cause_of
from eruca.spark_connector.errors import BadOption
from eruca.spark_connector.lag import behind
from eruca.spark_connector.option_parsers import duration
from eruca.spark_connector.pipelines.endpoint import Endpoint
from eruca.spark_connector.pipelines.folders import Folders
from eruca.spark_connector.pipelines.progress import Progress, ProgressListener, ignore_progress
from eruca.spark_connector.pipelines.units import check_lists, read_time

COLUMNS = (
    "topic string, brokerName string, queueId int, queueOffset bigint, body binary, tags string, keys string, "
    "messageId string, bornTimestamp timestamp, storeTimestamp timestamp, reconsumeTimes int, flag int, "
    "properties map<string,string>"
)
ORDER = ("topic", "date", "brokerName", "queueId", "queueOffset")
ROWS_PER_FILE = 1_000_000
CHECKPOINT = "_checkpoint"
STAGING = "_staging"
_DAY = "CAST(date_add(DATE'1970-01-01', CAST(unix_millis(storeTimestamp) DIV 86400000 AS INT)) AS STRING)"


@dataclass(kw_only=True)
class ArchiveSummary:
    """What one run added. ``topics`` and ``days`` are messages by topic and by day, ``size`` is in bytes."""

    to: str
    messages: int = 0
    batches: int = 0
    files: int = 0
    size: int = 0
    seconds: float = 0.0
    topics: Counter[str] = field(default_factory=Counter)
    days: Counter[str] = field(default_factory=Counter)


def archive(
    spark: SparkSession,
    *,
    name_server: str,
    to: str,
    topics: Sequence[str] = (),
    pattern: str | None = None,
    start: str | int | None = None,
    rows_per_file: int = ROWS_PER_FILE,
    rows_per_batch: int | None = None,
    checkpoint: str | None = None,
    group: str | None = None,
    until_stopped: threading.Event | None = None,
    interval: str = "10 seconds",
    fail_on_data_loss: bool = True,
    access: Mapping[str, str] | None = None,
    tell: ProgressListener = ignore_progress,
) -> ArchiveSummary:
    """Add what is new in the topics to the archive at ``to``.

    Args:
        name_server: ``host:port``, several joined by ``;``.
        to: the folder of the archive, as Spark's writers take it.
        topics: what to archive; or ``pattern``, a regular expression for whole names.
        start: the first run begins with messages stored then or later: ms since 1970, ISO 8601, or how long ago,
            such as ``2h``.
        rows_per_file: rows of a file at most.
        rows_per_batch: messages of a batch at most; ``rows_per_file`` by default, so that files become full.
        checkpoint: where the archive remembers how far it is; ``<to>/_checkpoint`` by default.
        group: the consumer group whose offsets show how far the archive is.
        until_stopped: go on, a batch every ``interval``, until this event is set.
        fail_on_data_loss: an error where the broker has deleted what is not archived yet.
        access: accessKey, secretKey, tls, namespace, … as options of the source.
        tell: called with the progress.

    Raises BadOption, OSError where the folder cannot be written, and what the query fails with.
    """
    check_lists(topics=topics)
    chosen = _Selection(tuple(topics), pattern, start, group, rows_per_batch or rows_per_file, fail_on_data_loss)
    chosen.check()
    if rows_per_file < 1 or (rows_per_batch is not None and rows_per_batch < 1):
        raise BadOption("The rows of a file, and those of a batch, are 1 or more.")
    stream = chosen.load(spark, Endpoint(name_server, access))
    folders = Folders(spark, to)
    folders.check()
    summary = ArchiveSummary(to=to)
    began = time.monotonic()
    writer = _BatchWriter(folders, rows_per_file, summary)
    query = (
        stream.writeStream.foreachBatch(writer.write)
        .option("checkpointLocation", checkpoint or f"{folders.root}/{CHECKPOINT}")
        .trigger(**({"availableNow": True} if until_stopped is None else {"processingTime": _interval(interval)}))
        .start()
    )
    writer.begin(query)
    try:
        _wait(query, writer, until_stopped, tell)
        writer.end()
        tell(writer.progress(query.lastProgress))
    finally:
        query.stop()
    summary.seconds = time.monotonic() - began
    return summary


@dataclass(frozen=True)
class _Selection:
    """Which messages an archive gets, and how many of them a batch."""

    topics: tuple[str, ...]
    pattern: str | None
    start: str | int | None
    group: str | None
    rows_per_batch: int
    fail_on_data_loss: bool

    def check(self) -> None:
        """Raise BadOption unless it names topics in one of the two ways."""
        if (not self.topics) == (self.pattern is None):
            raise BadOption("Say what to archive: topics, or a pattern for their names (one of both).")

    def load(self, spark: SparkSession, endpoint: Endpoint) -> DataFrame:
        """The stream of these messages. Raises SourceError for a topic that does not exist."""
        for topic in self.topics:
            endpoint.existing_queues(topic)
        options: dict[str, Any] = {
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": self.rows_per_batch,
            "failOnDataLoss": str(self.fail_on_data_loss).lower(),
            **({"subscribe": ",".join(self.topics)} if self.topics else {"subscribePattern": self.pattern}),
        }
        if self.start is not None:
            options["startingTimestamp"] = read_time(self.start, now_ms())
            options["startingOffsetsByTimestampStrategy"] = "latest"
        if self.group is not None:
            options["commitGroup"] = self.group
        return spark.readStream.format("rocketmq").options(**endpoint.options, **options).schema(COLUMNS).load()


def _wait(
    query: StreamingQuery, writer: _BatchWriter, until_stopped: threading.Event | None, tell: ProgressListener
) -> None:
    """Report the progress of the query until it ends, or until it is to be stopped."""
    while not query.awaitTermination(1):
        tell(writer.progress(query.lastProgress))
        if until_stopped is not None and until_stopped.is_set():
            return


class _NotWritten(Exception):
    """A batch is not in place, because the query ends: the next run writes it."""


class _BatchWriter:
    """Writes batch after batch, in a thread of Spark's, until ``end``."""

    def __init__(self, folders: Folders, rows_per_file: int, summary: ArchiveSummary) -> None:
        self._folders = folders
        self._rows_per_file = rows_per_file
        self._summary = summary
        self._query: StreamingQuery
        self._known = threading.Event()  # whether the query is: the first batch may be quicker
        self._writing = threading.Lock()
        self._ended = False
        self._begun = False
        self._newest, self._before = -1, 0

    def progress(self, told: StreamingQueryProgress | None) -> Progress:
        """What is archived of all that there was by that progress, which may not know of the newest batch yet."""
        waiting = _waiting(told)
        if told is None or waiting is None:
            return Progress("archived", self._summary.messages)
        done = self._summary.messages
        return Progress("archived", done, waiting + (done if told.batchId >= self._newest else self._before))

    def begin(self, query: StreamingQuery) -> None:
        """Whose batches they are."""
        self._query = query
        self._known.set()

    def end(self) -> None:
        """Wait until the batch that is being written is in place; none is written afterwards."""
        with self._writing:
            self._ended = True

    def write(self, batch: DataFrame, number: int) -> None:
        """Put the rows of a batch in their place."""
        self._known.wait()
        with self._writing:
            if self._ended:
                raise _NotWritten("the archive ends before this batch")
            try:
                self._write(batch, number)
            except Exception as error:
                if self._query.isActive:
                    raise
                # Spark searches what a stopped query failed with for signs of that by a pattern that overflows its
                # stack on a long text, and the trace of that would be printed.
                raise _NotWritten(f"the query was stopped: {cause_of(error)}") from None

    def _write(self, batch: DataFrame, number: int) -> None:
        files, root, spark = self._folders, self._folders.root, batch.sparkSession
        name = f"{str(self._query.id)[:8]}-{number:06d}"
        staging = f"{root}/{STAGING}/{name}"
        rows = batch.withColumn("date", F.expr(_DAY))
        (
            rows.repartition(spark.sparkContext.defaultParallelism, "topic", "date")
            .sortWithinPartitions(*ORDER)
            .write.option("maxRecordsPerFile", self._rows_per_file)
            .partitionBy("topic", "date")
            .mode("overwrite")
            .parquet(staging)
        )
        written = files.find(f"{staging}/topic=*/date=*/*.parquet")
        counts = []
        if written:
            counts = spark.read.schema(rows.schema).parquet(staging).groupBy("topic", "date").count().collect()
        if not self._begun:  # the batch that a run begins with is the only one that may have died before
            for old in files.find(f"{root}/topic=*/date=*/{name}-*.parquet"):
                files.delete(old.path)
            self._begun = True
        for place, each in enumerate(written):
            found = re.search(r"/(topic=[^/]*/date=[^/]*)/[^/]*$", each.path)
            assert found is not None
            files.move(each.path, f"{root}/{found[1]}/{name}-{place:04d}.parquet")
        files.delete(staging)
        self._newest, self._before = number, self._summary.messages
        self._count(counts, len(written), sum(each.size for each in written))

    def _count(self, counts: Sequence[Any], files: int, size: int) -> None:
        summary = self._summary
        for row in counts:
            summary.topics[row["topic"]] += row["count"]
            summary.days[str(row["date"])] += row["count"]
            summary.messages += row["count"]
        summary.batches += 1 if files else 0
        summary.files += files
        summary.size += size


def _interval(interval: str) -> str:
    """An interval as Spark reads it: ``10 seconds`` as it is, and ``10s``, too."""
    try:
        return f"{duration(interval)} milliseconds"
    except ValueError:
        return interval


def _waiting(progress: StreamingQueryProgress | None) -> int | None:
    """How many offsets the query has not read, by its last progress; None where that does not say."""
    if progress is None or not progress.sources:
        return None
    queues = behind(progress.sources[0].endOffset, progress.sources[0].latestOffset)
    return sum(queues.values()) if queues else None


def read_archive(
    spark: SparkSession,
    path: str,
    *,
    topics: Sequence[str] = (),
    start: int | None = None,
    end: int | None = None,
) -> DataFrame:
    """The messages of an archive, with the columns of the source and ``date``; times in ms, without the end.

    Only the files of the days between are looked at. Raises BadOption where there is no archive.
    """
    check_lists(topics=topics)
    folders = Folders(spark, path)
    if not folders.find(f"{folders.root}/topic=*/date=*/*.parquet"):
        raise BadOption(f"There is no archive at {path}: name the folder that `eruca pipeline archive --to` was given.")
    frame = spark.read.schema(f"{COLUMNS}, date string").parquet(path)
    if topics:
        frame = frame.where(F.col("topic").isin(*topics))
    for bound, after in ((start, True), (end, False)):
        if bound is None:
            continue
        moment = F.timestamp_millis(F.lit(bound))
        day = time.strftime("%Y-%m-%d", time.gmtime(bound / 1000))
        stored = F.col("storeTimestamp")
        frame = frame.where((stored >= moment) if after else (stored < moment))
        frame = frame.where((F.col("date") >= day) if after else (F.col("date") <= day))
    return frame
