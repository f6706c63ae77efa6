"""Counts and latencies by window of time and by topic, tag or key: to Parquet, or to a topic as JSON.

The latency of a message is the time from the producer's clock to the broker's (store - born), in ms; where those clocks
differ it may be negative. Windows begin at multiples of their length since 1970, and only whole windows are counted:
both ends of the interval are moved back to the start of their window. Percentiles are exact.

A rollup counts one interval, or goes on: then each run, or each round of a run, adds the windows that are over since
the last one (``rounds``).
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from eruca.protocol import names
from eruca.remoting.clock import now_ms
from eruca.spark_connector.errors import BadOption
from eruca.spark_connector.offsets.positions import Positions, write_positions
from eruca.spark_connector.pipelines.archives import read_archive
from eruca.spark_connector.pipelines.endpoint import Endpoint
from eruca.spark_connector.pipelines.folders import Folders
from eruca.spark_connector.pipelines.progress import Progress, ProgressListener, ignore_progress, watched
from eruca.spark_connector.pipelines.rounds import Round, Rounds, check_free
from eruca.spark_connector.pipelines.units import check_lists, check_words, read_duration, read_interval, read_window

COLUMNS = "topic string, body binary, tags string, keys string, bornTimestamp timestamp, storeTimestamp timestamp"
WINDOWS_SHOWN = 10_000
"""Where there are more between the first and the last, windows without a message are left out of the summary."""
By = Literal["topic", "tag", "key"]
Clock = Literal["store", "born"]


@dataclass(frozen=True)
class WindowCounts:
    """One row: a window (ms), what it is of (None for messages without a tag or key), and its figures."""

    start: int
    end: int
    of: tuple[str | None, ...]
    messages: int
    size: int
    percentiles: tuple[float, ...]
    slowest: int


@dataclass(kw_only=True)
class RollupSummary:
    """All rows in order. A message with several keys is counted for each of them, and once in ``messages``.

    ``groups`` and ``windows`` are sums of the rows: by what is counted by, and by the start of the window (ms). Of a
    rollup that goes on, this is what the run added; one that goes on until it is stopped keeps the rows and groups of
    its last round. ``left_out`` are messages whose window was over when they were stored (see ``grace``).
    """

    start: int
    end: int
    by: tuple[By, ...]
    percentiles: tuple[float, ...]
    rows: list[WindowCounts] = field(default_factory=list)
    messages: int = 0
    left_out: int = 0
    groups: Counter[str] = field(default_factory=Counter)
    windows: dict[int, int] = field(default_factory=dict)

    def add(self, rows: Sequence[WindowCounts], messages: int, left_out: int) -> None:
        """More rows, of later windows."""
        self.rows.extend(rows)
        self.messages += messages
        self.left_out += left_out
        if rows and (rows[-1].start - rows[0].start) // (rows[0].end - rows[0].start) < WINDOWS_SHOWN:
            self.windows |= dict.fromkeys(range(rows[0].start, rows[-1].end, rows[0].end - rows[0].start), 0)
        for each in rows:
            self.groups[" ".join(name or "-" for name in each.of) or "all"] += each.messages
            self.windows[each.start] = self.windows.get(each.start, 0) + each.messages


def rollup(
    spark: SparkSession,
    *,
    name_server: str,
    topics: Sequence[str],
    archive: str | None = None,
    start: str | int | None = None,
    end: str | int | None = None,
    window: str = "1m",
    by: Sequence[By] = ("topic",),
    clock: Clock = "store",
    percentiles: Sequence[float] = (50, 95, 99),
    to: str | None = None,
    to_topic: str | None = None,
    resume: bool = False,
    grace: str = "10s",
    until_stopped: threading.Event | None = None,
    interval: str = "1m",
    skip_lost: bool = False,
    access: Mapping[str, str] | None = None,
    tell: ProgressListener = ignore_progress,
) -> RollupSummary:
    """Count the messages of topics, or of an archive of them, that were stored in an interval.

    Args:
        window: the length of a window, such as ``30s``, ``5m``, ``1h``.
        by: what to count by besides the window.
        clock: whether a message belongs to a window by the time it was stored at, or that it was born at.
        percentiles: those of the latency, 0 to 100.
        to: a folder; the rows go to ``<to>/interval=<start>_<end>`` (ms) as Parquet, replaced when run again.
        to_topic: a topic that gets each row as a JSON object.
        resume: count only the windows that are over since the last run into ``to``; ``start`` is for the first run.
        grace: with resume, how long after its end a window waits for messages.
        until_stopped: go on, a round every ``interval``, until this event is set; means resume.
        skip_lost: with resume, go on where the broker has deleted what was not counted yet.

    Raises BadOption, OSError where the folder cannot be written, and what reading and sending fail with.
    """
    check_lists(topics=topics, by=by)
    check_words("by", by, get_args(By))
    check_words("clock", [clock], get_args(Clock))
    work = _Work(
        spark=spark,
        endpoint=Endpoint(name_server, access),
        topics=tuple(topics),
        length=read_window(window),
        by=tuple(by),
        clock=clock,
        percentiles=tuple(float(each) for each in percentiles),
        to=to,
        to_topic=to_topic,
        tell=tell,
    )
    work.check()
    first, last = read_interval(start, end)
    summary = RollupSummary(start=first, end=first, by=work.by, percentiles=work.percentiles)
    if resume or until_stopped is not None:
        if archive is not None or to is None or (end is not None and until_stopped is not None):
            raise BadOption(
                "To go on with a rollup takes topics, not an archive, a folder for its rows, and no end besides that "
                "of a single run."
            )
        schedule = _Schedule(
            read_duration(grace, "grace"), read_duration(interval, "interval"), until_stopped, skip_lost
        )
        work.resume(Folders(spark, to), first, last, schedule, summary)
        return summary
    first, last = (each // work.length * work.length for each in (first, last or now_ms()))
    if first >= last:
        raise BadOption(f"The interval holds no whole window of {window}: make it longer, or the window shorter.")
    work.count_once(archive, first, last, summary)
    return summary


@dataclass(frozen=True)
class _Schedule:
    """When the rounds of a rollup are counted; durations in ms."""

    grace: int
    interval: int
    until_stopped: threading.Event | None
    skip_lost: bool

    def ended(self) -> bool:
        """Whether that was the last round; else the next one is due."""
        return self.until_stopped is None or self.until_stopped.wait(self.interval / 1000)


@dataclass(frozen=True)
class _Work:
    """What is counted, and where it goes."""

    spark: SparkSession
    endpoint: Endpoint
    topics: tuple[str, ...]
    length: int
    by: tuple[By, ...]
    clock: Clock
    percentiles: tuple[float, ...]
    to: str | None
    to_topic: str | None
    tell: ProgressListener

    def check(self) -> None:
        """Raise BadOption for what cannot be counted."""
        if not self.topics:
            raise BadOption("Say which topics are counted: one at least.")
        if not self.percentiles or not all(0 <= each <= 100 for each in self.percentiles):
            raise BadOption("Percentiles are numbers from 0 to 100, one at least.")
        if self.to_topic is not None and (fault := names.topic_fault(self.to_topic)):
            raise BadOption(f'The topic "{self.to_topic}" cannot be sent to: {fault}')

    def settings(self, grace: int) -> dict[str, Any]:
        """What all rounds of a rollup have in common."""
        return {
            "topics": sorted(set(self.topics)),
            "window": f"{self.length} ms",
            "by": list(self.by),
            "clock": self.clock,
            "percentiles": list(self.percentiles),
            "grace": f"{grace} ms",
        }

    def count_once(self, archive: str | None, first: int, last: int, summary: RollupSummary) -> None:
        """The windows of an interval."""
        folders = Folders(self.spark, self.to) if self.to is not None else None
        if folders is not None:
            check_free(folders)
            folders.check()
        if archive is not None:
            rows = read_archive(self.spark, archive, topics=self.topics, start=first, end=last)
        else:
            for topic in self.topics:
                self.endpoint.existing_queues(topic)
            rows = self.endpoint.read_interval(self.spark, COLUMNS, self.topics, first, last)
        target = f"{folders.root}/interval={first}_{last}" if folders is not None else None
        self._count(rows.withColumn("counted", F.lit(True)), target, f"{first}-{last}", summary)
        summary.start, summary.end = first, last

    def resume(
        self, folders: Folders, first: int, last: int | None, schedule: _Schedule, summary: RollupSummary
    ) -> None:
        """The windows that are over since the last run, and the next ones until the schedule ends."""
        folders.check()
        rounds = Rounds(
            folders,
            self.endpoint,
            self.settings(schedule.grace),
            start=first // self.length * self.length,
            length=self.length,
            margin=schedule.grace if self.clock == "born" else 0,
        )
        while True:
            limit = now_ms() - schedule.grace
            self._count_rounds(rounds, limit if last is None else min(last, limit), schedule, summary)
            if schedule.ended():
                return

    def _count_rounds(self, rounds: Rounds, limit: int, schedule: _Schedule, summary: RollupSummary) -> None:
        """The rounds up to ``limit``. A run that ends by itself keeps the rows of all of them."""
        while (planned := rounds.next(limit, skip_lost=schedule.skip_lost)) is not None:
            if schedule.until_stopped is not None:
                summary.rows.clear()
                summary.groups.clear()
            if summary.end == summary.start:
                summary.start = planned.start
            rows = self._rows_of(planned, rounds.margin, schedule.skip_lost)
            self._count(rows, rounds.staging(planned), planned.name, summary)
            rounds.finish(planned)
            summary.end = planned.end

    def _rows_of(self, planned: Round, margin: int, skip_lost: bool) -> DataFrame:
        rows = self.endpoint.read(
            self.spark,
            COLUMNS,
            assign=json.dumps(_assignment(planned.first)),
            startingOffsets=json.dumps(write_positions(planned.first)),
            endingOffsets=json.dumps(write_positions(planned.last)),
            failOnDataLoss=str(not skip_lost).lower(),
        )
        stored, born = F.unix_millis("storeTimestamp"), F.unix_millis("bornTimestamp")
        if self.clock == "store":
            return rows.withColumn("counted", (stored >= planned.start) & (stored < planned.end))
        late = F.abs(stored - born) > margin
        first_seen = (stored >= planned.start + margin) & (stored < planned.end + margin)
        rows = rows.withColumn("counted", ~late & (born >= planned.start) & (born < planned.end))
        return rows.where(F.col("counted") | (late & first_seen))

    def _count(self, rows: DataFrame, target: str | None, name: str, summary: RollupSummary) -> None:
        """Count rows, of which some are left out; write them to ``target``, and to the topic."""
        table = self._counted(rows).persist()
        try:
            with watched(self.spark, "of the count", self.tell):
                rows_of_table = table.collect()
            found = sorted(
                (self._row(row) for row in rows_of_table if row["start"] is not None),
                key=lambda each: (each.start, [name or "" for name in each.of]),
            )
            left_out = sum(row["messages"] for row in rows_of_table if row["start"] is None)
            total = sum(each.messages for each in found) if "key" not in self.by else rows.where("counted").count()
            readable = self._readable(table.where("start IS NOT NULL")).coalesce(1)
            if target is not None:
                readable.write.mode("overwrite").parquet(target)
            if self.to_topic is not None:
                what = hashlib.sha256(json.dumps(self.settings(0)).encode()).hexdigest()[:12]
                body = F.to_json(F.struct(*readable.columns)).alias("body")
                self.endpoint.write(readable.select(body), self.to_topic, writeId=f"rollup-{what}-{name}")
        finally:
            table.unpersist()
        summary.add(found, total, left_out)
        self.tell(Progress("counted", summary.messages, summary.messages))

    def _row(self, row: Row) -> WindowCounts:
        return WindowCounts(
            row["start"],
            row["start"] + self.length,
            tuple(row[name] for name in self.by),
            row["messages"],
            row["bytes"],
            tuple(row["latency"]),
            row["latencyMax"],
        )

    def _counted(self, rows: DataFrame) -> DataFrame:
        """A row for each window and group; a start of null for what is left out."""
        start = F.expr(f"IF(counted, unix_millis({self.clock}Timestamp) DIV {self.length} * {self.length}, NULL)")
        parts = rows.select(
            *(_part(name).alias(name) for name in self.by),
            start.alias("start"),
            F.length("body").alias("size"),
            (F.unix_millis("storeTimestamp") - F.unix_millis("bornTimestamp")).alias("latency"),
        )
        return parts.groupBy("start", *self.by).agg(
            F.count("*").alias("messages"),
            F.sum("size").alias("bytes"),
            F.percentile("latency", [each / 100 for each in self.percentiles]).alias("latency"),
            F.max("latency").alias("latencyMax"),
        )

    def _readable(self, table: DataFrame) -> DataFrame:
        return table.select(
            F.timestamp_millis("start").alias("windowStart"),
            F.timestamp_millis(F.col("start") + self.length).alias("windowEnd"),
            *self.by,
            "messages",
            "bytes",
            *(F.col("latency")[place].alias(f"latencyP{share:g}") for place, share in enumerate(self.percentiles)),
            "latencyMax",
        )


def _assignment(positions: Positions) -> dict[str, dict[str, list[int]]]:
    """The queues, as the option assign names them."""
    chosen: dict[str, dict[str, list[int]]] = {}
    for queue in sorted(positions):
        chosen.setdefault(queue.topic, {}).setdefault(queue.broker_name, []).append(queue.queue_id)
    return chosen


def _part(by: By) -> Column:
    """What a message counts for; its keys one by one."""
    if by == "key":
        # One that is left out counts once, whatever keys it has.
        return F.explode_outer(F.when(F.col("counted"), F.split("keys", r"\s+")))
    return F.col("tags" if by == "tag" else "topic")
