"""The dead letters of a group: grouped by their cause, and the chosen ones sent again, each once.

Dead letters are what ``%DLQ%<group>`` holds: messages that the group failed on until it gave up. The topic that they
were sent to is in RETRY_TOPIC. A cause is found in a property or in the body; RocketMQ itself keeps none.
A letter is known by its place, ``broker:queue:offset``, and its message id. What was sent again stays in the dead
letters until the broker deletes it; the ledger says that it is done. Times are ms since 1970.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.errors import IllegalArgumentException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from eruca.protocol import names
from eruca.remoting.clock import now_ms
from eruca.spark_connector.errors import BadOption, SourceError
from eruca.spark_connector.option_parsers import group as check_group
from eruca.spark_connector.pipelines.endpoint import Endpoint, marked
from eruca.spark_connector.pipelines.ledger import SENDING, SENT, Ledger, Letter
from eruca.spark_connector.pipelines.progress import Progress, ProgressListener, ignore_progress, watched
from eruca.spark_connector.pipelines.units import check_lists, read_interval

COLUMNS = (
    "brokerName string, queueId int, queueOffset bigint, body binary, tags string, keys string, messageId string, "
    "storeTimestamp timestamp, reconsumeTimes int, flag int, properties map<string,string>"
)
MARKS = ("TRIAGE_ID", "TRIAGE_GROUP", "TRIAGE_PLACE", "TRIAGE_MESSAGE_ID")
"""Properties of a letter that was sent again: the run, the group, the place among its dead letters, the message id."""
CAUSES_NAMED = 10
AT_ONCE = 10_000
"""Letters that one run sends at most: their places travel with the plan."""


@dataclass(frozen=True)
class Cause:
    """Dead letters that are alike. ``waiting`` of them were not sent again yet; times are those of their death."""

    topic: str
    cause: str
    tags: str
    count: int
    waiting: int
    reconsume_times: int
    first: int
    last: int
    example: str


@dataclass(kw_only=True)
class TriageSummary:
    """The causes, the most frequent first; which places were sent again, and which may have been before."""

    group: str
    causes: list[Cause]
    resent: list[str] = field(default_factory=list)
    chosen: int = 0
    uncertain: list[str] = field(default_factory=list)
    ledger: Path


def triage(
    spark: SparkSession,
    *,
    name_server: str,
    group: str,
    cause_property: str | None = None,
    cause_pattern: str | None = None,
    start: str | int | None = None,
    end: str | int | None = None,
    resend_causes: Sequence[str] = (),
    resend_ids: Sequence[str] = (),
    resend_all: bool = False,
    to_group: bool = False,
    ledger: str | Path | None = None,
    resend_uncertain: bool = False,
    access: Mapping[str, str] | None = None,
    tell: ProgressListener = ignore_progress,
) -> TriageSummary:
    """Group the dead letters of a group, and send the chosen ones again.

    Args:
        cause_property: the property that holds the cause; or
        cause_pattern: a regular expression, of Java's, whose first group (or whole match) in the body is the cause.
        resend_causes, resend_ids, resend_all: which letters are sent again: of these causes, with these message ids.
        to_group: send them to this group alone, as messages of their topic; by default to their topic.
        ledger: the file that remembers what was sent again; ``eruca-triage-<group>.jsonl`` here by default.
        resend_uncertain: also those of which a run that died does not know whether they left.

    Raises BadOption, SourceError, and what sending fails with.
    """
    check_lists(resend_causes=resend_causes, resend_ids=resend_ids)
    dead = _dead_letter_topic(group, cause_property, cause_pattern)
    groups = 0 if cause_pattern is None else _groups_of(spark, cause_pattern)
    first, last = read_interval(start, end)
    endpoint = Endpoint(name_server, access)
    _check_readable(endpoint, dead)
    path = Path(ledger or f"eruca-triage-{group}.jsonl")
    rows = endpoint.read_interval(spark, COLUMNS, [dead], first, last)
    letters = _named(rows, cause_property, cause_pattern, min(1, groups))
    _check_causes(letters, group, resend_causes)
    _check_ids(letters, group, resend_ids)
    with Ledger(path) as book:
        summary = TriageSummary(group=group, causes=[], ledger=path)
        chosen = _chosen(letters, resend_causes, resend_ids, resend_all)
        if chosen is not None:
            _Resend(endpoint, group, to_group, resend_uncertain, tell).run(chosen, summary, book)
        summary.uncertain = sorted(letter.place for letter, state in book.states.items() if state == SENDING)
        with watched(spark, "of the grouping", tell):
            summary.causes = _causes(spark, letters, book)
    return summary


def _dead_letter_topic(group: str, cause_property: str | None, cause_pattern: str | None) -> str:
    try:
        check_group(group)
    except ValueError as error:
        raise BadOption(f'The group "{group}" cannot be: {error}.') from None
    if cause_property is not None and cause_pattern is not None:
        raise BadOption("A cause is found in a property or by a pattern: give one of both.")
    return names.dead_letter_topic(group)


def _check_readable(endpoint: Endpoint, dead: str) -> None:
    if not endpoint.queues(dead):
        raise SourceError(
            f"{dead} is not there or cannot be read: the group has no dead letters, or `mqadmin updateTopicPerm -p 6` "
            "must make them readable."
        )


def _groups_of(spark: SparkSession, pattern: str) -> int:
    """The number of groups of a pattern, which Java's regular expressions decide: Spark applies it by them."""
    java: Any = spark.sparkContext._jvm
    try:
        return int(java.java.util.regex.Pattern.compile(pattern).matcher("").groupCount())
    except IllegalArgumentException as error:
        reason = str(error).partition("\n")[0]
        raise BadOption(f'The pattern "{pattern}" is no regular expression of Java: {reason}.') from None


def _named(rows: DataFrame, cause_property: str | None, cause_pattern: str | None, group: int) -> DataFrame:
    """The letters with topic, place, and cause, which is this group of the pattern."""
    cause: Column = F.lit("-")
    if cause_property is not None:
        cause = F.coalesce(F.col("properties")[cause_property], F.lit("-"))
    elif cause_pattern is not None:
        found = F.regexp_extract(F.decode("body", "UTF-8"), cause_pattern, group)
        cause = F.when(found == "", F.lit("-")).otherwise(found)
    return rows.select(
        "*",
        F.coalesce(F.col("properties")[names.RETRY_TOPIC], F.lit("-")).alias("topic"),
        cause.alias("cause"),
        F.concat_ws(":", "brokerName", F.col("queueId").cast("string"), F.col("queueOffset").cast("string")).alias(
            "place"
        ),
    )


def _check_causes(letters: DataFrame, group: str, wanted: Sequence[str]) -> None:
    """Raise BadOption for a cause that no letter has."""
    if not wanted:
        return
    found = sorted(row["cause"] for row in letters.select("cause").distinct().limit(AT_ONCE).collect())
    for cause in wanted:
        if cause not in found:
            some = ", ".join(f'"{each}"' for each in found[:CAUSES_NAMED]) or "none"
            more = f" and {len(found) - CAUSES_NAMED} more" if len(found) > CAUSES_NAMED else ""
            raise BadOption(
                f'No dead letter of {group} has the cause "{cause}": the causes are {some}{more}, by the property or '
                "pattern of a cause and in the interval that were given."
            )


def _check_ids(letters: DataFrame, group: str, wanted: Sequence[str]) -> None:
    """Raise BadOption for a message id that no letter has."""
    if not wanted:
        return
    found = {row["messageId"] for row in letters.where(F.col("messageId").isin(*wanted)).select("messageId").collect()}
    for identity in wanted:
        if identity not in found:
            raise BadOption(
                f'No dead letter of {group} in the interval that was given has the message id "{identity}": look at '
                f"its letters with `mqadmin printMsg -t {names.dead_letter_topic(group)}`."
            )


def _chosen(letters: DataFrame, causes: Sequence[str], identities: Sequence[str], everything: bool) -> DataFrame | None:
    if everything:
        return letters
    if not causes and not identities:
        return None
    return letters.where(F.col("cause").isin(*causes) | F.col("messageId").isin(*identities))


@dataclass(frozen=True)
class _Resend:
    """How dead letters are sent again: to their group or their topic, and with or without the uncertain ones."""

    endpoint: Endpoint
    group: str
    to_group: bool
    uncertain: bool
    tell: ProgressListener

    def run(self, chosen: DataFrame, summary: TriageSummary, book: Ledger) -> None:
        """Send the chosen letters that the ledger does not exclude, and note them there before and after."""
        found = chosen.select("place", "messageId", "topic").orderBy("place").collect()
        summary.chosen = len(found)
        homeless = [row["place"] for row in found if row["topic"] == "-"]
        if homeless:
            raise SourceError(f"The dead letter {homeless[0]} does not say of which topic it was: choose others.")
        free = (None, SENDING) if self.uncertain else (None,)
        letters = [Letter(row["place"], row["messageId"]) for row in found]
        wanted = [each for each in letters if book.states.get(each) in free]
        if len(wanted) > AT_ONCE:
            raise BadOption(
                f"{len(wanted):,} letters are too many for one run: choose {AT_ONCE:,} at most, by time or cause."
            )
        if not wanted:
            return
        self.tell(Progress("sent again", 0, len(wanted)))
        book.note(wanted, SENDING, now_ms())
        self._send(chosen.where(F.col("place").isin(*(each.place for each in wanted))))
        book.note(wanted, SENT, now_ms())
        self.tell(Progress("sent again", len(wanted), len(wanted)))
        summary.resent = [each.place for each in wanted]

    def _send(self, letters: DataFrame) -> None:
        run = uuid.uuid4().hex[:12]
        marks = dict(zip(MARKS, (F.lit(run), F.lit(self.group), F.col("place"), F.col("messageId")), strict=True))
        if self.to_group:
            marks[names.RETRY_TOPIC] = F.col("topic")
        ordered = letters.coalesce(1).sortWithinPartitions("storeTimestamp", "place")
        rows = ordered.select("body", "tags", "keys", "flag", marked(marks).alias("properties"), "topic")
        if self.to_group:
            self.endpoint.write(rows.drop("topic"), names.retry_topic(self.group), writeId=f"triage-{run}")
        else:
            self.endpoint.write(rows, None, writeId=f"triage-{run}")


def _causes(spark: SparkSession, letters: DataFrame, book: Ledger) -> list[Cause]:
    """The groups, the largest first."""
    done = spark.createDataFrame(list(book.states), "place string, messageId string")
    counted = (
        letters.join(F.broadcast(done).withColumn("done", F.lit(1)), ["place", "messageId"], "left")
        .groupBy("topic", "cause", F.coalesce("tags", F.lit("-")).alias("tag"))
        .agg(
            F.count("*").alias("count"),
            F.count_if(F.col("done").isNull()).alias("waiting"),
            F.max("reconsumeTimes").alias("times"),
            F.min(F.unix_millis("storeTimestamp")).alias("first"),
            F.max(F.unix_millis("storeTimestamp")).alias("last"),
            F.min_by("messageId", "storeTimestamp").alias("example"),
        )
    )
    found = [
        Cause(
            row["topic"], row["cause"], row["tag"], row["count"], row["waiting"], row["times"], row["first"],
            row["last"], row["example"] or "-",
        )
        for row in counted.collect()
    ]  # fmt: skip
    return sorted(found, key=lambda each: (-each.count, each.topic, each.cause, each.tags))
