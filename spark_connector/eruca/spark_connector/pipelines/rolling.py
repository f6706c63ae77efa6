"""Counts, bytes and latencies by window of time and by topic, tag or key: to Parquet, or to a topic as JSON.

The latency of a message is the time from the producer's clock to the broker's (store - born), in ms; where those clocks
differ it may be negative. Windows begin at multiples of their length since 1970, and only whole windows are counted:
both ends of the interval are moved back to the start of their window. Percentiles are exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from eruca.protocol import names
from eruca.spark_connector.errors import BadOption
from eruca.spark_connector.pipelines.archiving import read_archive
from eruca.spark_connector.pipelines.endpoint import Endpoint
from eruca.spark_connector.pipelines.folders import Folders
from eruca.spark_connector.pipelines.telling import Progress, Tell, now, read_interval, read_window, tell_nobody

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

    ``groups`` and ``windows`` are sums of the rows: by what is counted by, and by the start of the window (ms).
    """

    start: int
    end: int
    by: tuple[By, ...]
    percentiles: tuple[float, ...]
    rows: list[WindowCounts]
    messages: int
    groups: Counter[str] = field(default_factory=Counter)
    windows: dict[int, int] = field(default_factory=dict)


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
    access: Mapping[str, str] | None = None,
    tell: Tell = tell_nobody,
) -> RollupSummary:
    """Count the messages of topics, or of an archive of them, that were stored in an interval.

    Args:
        window: the length of a window, such as ``30s``, ``5m``, ``1h``.
        by: what to count by besides the window.
        clock: whether a message belongs to a window by the time it was stored at, or that it was born at.
        percentiles: those of the latency, 0 to 100.
        to: a folder; the rows go to ``<to>/interval=<start>_<end>`` (ms) as Parquet, replaced when run again.
        to_topic: a topic that gets each row as a JSON object.

    Raises BadOption, and what reading and sending fail with.
    """
    length, shares = read_window(window), tuple(float(each) for each in percentiles)
    if not topics:
        raise BadOption("Say which topics are counted: one at least.")
    if not shares or not all(0 <= each <= 100 for each in shares):
        raise BadOption("Percentiles are numbers from 0 to 100, one at least.")
    if to_topic is not None and (fault := names.topic_fault(to_topic)):
        raise BadOption(f'The topic "{to_topic}" cannot be sent to: {fault}')
    first, last = read_interval(start, end)
    first, last = (each // length * length for each in (first, last or now()))
    if first >= last:
        raise BadOption(f"The interval holds no whole window of {window}: make it longer, or the window shorter.")
    endpoint = Endpoint(name_server, access)
    if archive is not None:
        rows = read_archive(spark, archive, topics=topics, start=first, end=last)
    else:
        for topic in topics:
            endpoint.existing_queues(topic)
        rows = endpoint.read_interval(spark, COLUMNS, topics, first, last)
    tell(Progress("counted", 0))
    table = _counted(rows, length, by, clock, shares).persist()
    try:
        found = [
            WindowCounts(
                row["start"],
                row["start"] + length,
                tuple(row[name] for name in by),
                row["messages"],
                row["bytes"],
                tuple(row["latency"]),
                row["latencyMax"],
            )
            for row in table.orderBy("start", *by).collect()
        ]
        total = sum(each.messages for each in found) if "key" not in by else rows.count()
        _write(spark, endpoint, _readable(table, length, by, shares), first, last, to, to_topic)
    finally:
        table.unpersist()
    summary = RollupSummary(
        start=first, end=last, by=tuple(by), percentiles=shares, rows=found, messages=total,
    )  # fmt: skip
    if found and (found[-1].start - found[0].start) // length < WINDOWS_SHOWN:
        summary.windows = dict.fromkeys(range(found[0].start, found[-1].end, length), 0)
    for each in found:
        summary.groups[" ".join(name or "-" for name in each.of) or "all"] += each.messages
        summary.windows[each.start] = summary.windows.get(each.start, 0) + each.messages
    tell(Progress("counted", total, total))
    return summary


def _counted(rows: DataFrame, length: int, by: Sequence[By], clock: Clock, percentiles: Sequence[float]) -> DataFrame:
    latency = F.unix_millis("storeTimestamp") - F.unix_millis("bornTimestamp")
    start = F.expr(f"unix_millis({clock}Timestamp) DIV {length} * {length}")
    parts = rows.select(
        *(_part(name).alias(name) for name in by),
        start.alias("start"),
        F.length("body").alias("size"),
        latency.alias("latency"),
    )
    return parts.groupBy("start", *by).agg(
        F.count("*").alias("messages"),
        F.sum("size").alias("bytes"),
        F.percentile("latency", [each / 100 for each in percentiles]).alias("latency"),
        F.max("latency").alias("latencyMax"),
    )


def _part(by: By) -> Column:
    if by == "key":
        return F.explode_outer(F.split("keys", r"\s+"))
    return F.col("tags" if by == "tag" else "topic")


def _readable(table: DataFrame, length: int, by: Sequence[By], percentiles: Sequence[float]) -> DataFrame:
    return table.select(
        F.timestamp_millis("start").alias("windowStart"),
        F.timestamp_millis(F.col("start") + length).alias("windowEnd"),
        *by,
        "messages",
        "bytes",
        *(F.col("latency")[place].alias(f"latencyP{share:g}") for place, share in enumerate(percentiles)),
        "latencyMax",
    )


def _write(
    spark: SparkSession,
    endpoint: Endpoint,
    table: DataFrame,
    first: int,
    last: int,
    to: str | None,
    to_topic: str | None,
) -> None:
    if to is not None:
        root = Folders(spark, to).root
        table.coalesce(1).write.mode("overwrite").parquet(f"{root}/interval={first}_{last}")
    if to_topic is not None:
        body = F.to_json(F.struct(*table.columns)).alias("body")
        endpoint.write(table.coalesce(1).select(body), to_topic, writeId=f"rollup-{first}-{last}")
