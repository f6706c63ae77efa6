"""What producers have stored against what groups have consumed: who is behind, by how much, and what never came.

Owns the comparison by offsets, queue by queue, and the look at the messages that a group has not consumed yet. A
group's offset is what its members have committed: some seconds old while they work. What is behind an offset counts
as consumed, also a message that was sent back (it waits among the retries) or given up (it is a dead letter).
What clients themselves report is in their traces (``traces``).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from eruca.client import MessageQueue
from eruca.protocol import names
from eruca.protocol.names import TRACE_TOPIC
from eruca.remoting.clock import now_ms
from eruca.spark_connector.errors import BadOption
from eruca.spark_connector.offsets.positions import write_positions
from eruca.spark_connector.pipelines.endpoint import Endpoint
from eruca.spark_connector.pipelines.progress import Progress, ProgressListener, ignore_progress, watched
from eruca.spark_connector.pipelines.traces import Traces, TraceSelection, read_traces
from eruca.spark_connector.pipelines.units import check_lists, read_interval, read_window

COLUMNS = "topic string, tags string, storeTimestamp timestamp"


@dataclass(frozen=True)
class QueueAudit:
    """A queue and a group: offsets, ``consumed`` None where the group has none."""

    queue: MessageQueue
    group: str
    oldest: int
    end: int
    consumed: int | None

    @property
    def behind(self) -> int:
        """Messages that are there and not consumed."""
        return max(0, self.end - max(self.oldest, self.consumed or 0))

    @property
    def lost(self) -> int:
        """Messages that the broker deleted before the group consumed them, as far as offsets show."""
        return max(0, self.oldest - self.consumed) if self.consumed is not None else 0

    @property
    def beyond(self) -> int:
        """Messages that the group has consumed and the queue does not have: it was made again, or has lost its end."""
        return max(0, (self.consumed or 0) - self.end)


@dataclass(kw_only=True)
class GroupAudit:
    """A group on a topic. ``oldest_waiting`` is a store time in ms; ``windows`` counts what waits, by store time."""

    topic: str
    group: str
    queues: list[QueueAudit]
    retrying: int = 0
    dead: int = 0
    oldest_waiting: int | None = None
    tags: Counter[str] = field(default_factory=Counter)
    windows: dict[int, int] = field(default_factory=dict)

    @property
    def stored(self) -> int:
        """Messages that producers have stored since the topic was made."""
        return sum(each.end for each in self.queues)

    @property
    def consumed(self) -> int:
        """How many of them the group is past."""
        return sum(min(each.end, each.consumed or 0) for each in self.queues)

    @property
    def behind(self) -> int:
        """Messages that wait."""
        return sum(each.behind for each in self.queues)

    @property
    def lost(self) -> int:
        """Messages that were deleted before they were consumed."""
        return sum(each.lost for each in self.queues)

    @property
    def beyond(self) -> int:
        """Messages that the group has consumed and the topic does not have."""
        return sum(each.beyond for each in self.queues)

    @property
    def never(self) -> bool:
        """Whether the group is past no message; brokers answer 0 where a group has no offset."""
        return not any(each.consumed for each in self.queues)


@dataclass(kw_only=True)
class AuditSummary:
    """All pairs of topic and group, in the order they were asked for."""

    groups: list[GroupAudit]
    traces: Traces | None = None

    def faults(self, *, behind: int = 0, dead: int | None = None) -> list[str]:
        """A sentence for each pair with more waiting than ``behind``, messages lost, or a group past the end, and each
        group with more than ``dead``."""
        found = []
        for each in self.groups:
            who = f"{each.group} on {each.topic}"
            if each.behind > behind:
                state = "has never consumed" if each.never else "has not consumed"
                found.append(f"{who} {state} {each.behind:,} messages.")
            if each.lost:
                found.append(f"{who} lost {each.lost:,} messages, which were deleted before it consumed them.")
            if each.beyond:
                found.append(
                    f"{who} is {each.beyond:,} messages past the end: the topic was created again, or its broker lost "
                    "data. Set the offsets of the group with `mqadmin resetOffsetByTime`."
                )
            if dead is not None and each.dead > dead:
                found.append(f"{each.group} has {each.dead:,} dead letters.")
        if self.traces is not None:
            found.extend(self.traces.faults(missing=behind))
        return list(dict.fromkeys(found))  # dead letters are the group's, whatever the topic


def audit(
    spark: SparkSession | None,
    *,
    name_server: str,
    topics: Sequence[str],
    groups: Sequence[str],
    window: str = "1m",
    traces: bool = False,
    trace_topic: str = TRACE_TOPIC,
    start: str | int | None = None,
    end: str | int | None = None,
    tags: Sequence[str] = (),
    access: Mapping[str, str] | None = None,
    tell: ProgressListener = ignore_progress,
) -> AuditSummary:
    """Compare what is stored in topics with what groups have consumed.

    Each group is held against each topic. Without a session only offsets are compared; with one, the messages that wait
    are read, and counted by tag and by ``window`` of their store time.

    With ``traces`` what producers sent by their traces in [start, end) is held against what the groups consumed by
    theirs, message by message; ``tags`` are those to which the groups subscribe.

    Raises BadOption, SourceError.
    """
    check_lists(topics=topics, groups=groups, tags=tags)
    if not topics or not groups:
        raise BadOption("Say what is held against what: one topic and one group at least.")
    length, endpoint = read_window(window), Endpoint(name_server, access)
    if traces and spark is None:
        raise BadOption("Traces are read with Spark: leave offsets_only (--offsets-only) out.")
    if not traces and (start, end, *tags) != (None, None):
        raise BadOption("An interval and tags choose among traces: add traces (--traces), or leave them out.")
    first, last = read_interval(start, end)
    sent_back = {group: (_retrying(endpoint, group), _dead(endpoint, group)) for group in groups}
    summary = AuditSummary(groups=[])
    for place, topic in enumerate(topics):
        for pair in _compare(endpoint, topic, groups):
            pair.retrying, pair.dead = sent_back[pair.group]
            if spark is not None and pair.behind:
                with watched(spark, f"of what {pair.group} has not consumed", tell):
                    _count_waiting(spark, endpoint, pair, length)
            summary.groups.append(pair)
        tell(Progress("topics compared", place + 1, len(topics)))
    if traces and spark is not None:
        chosen = TraceSelection(tuple(topics), tuple(groups), first, last or now_ms(), length, tuple(tags), trace_topic)
        with watched(spark, "of the traces", tell):
            summary.traces = read_traces(spark, endpoint, chosen)
    return summary


def _compare(endpoint: Endpoint, topic: str, groups: Sequence[str]) -> list[GroupAudit]:
    """The offsets of a topic and of each group."""
    queues = endpoint.existing_queues(topic)
    # Offsets of groups first: what arrives meanwhile is behind, and no group is ahead of an end.
    offsets = {group: endpoint.group_offsets(queues, group) for group in groups}
    oldest, ends = endpoint.beginnings(queues), endpoint.ends(queues)
    return [
        GroupAudit(
            topic=topic,
            group=group,
            queues=[QueueAudit(each, group, oldest[each], ends[each], offsets[group][each]) for each in queues],
        )
        for group in groups
    ]


def _retrying(endpoint: Endpoint, group: str) -> int:
    queues = endpoint.queues(names.retry_topic(group))
    ends, oldest, at = endpoint.ends(queues), endpoint.beginnings(queues), endpoint.group_offsets(queues, group)
    return sum(max(0, ends[each] - max(oldest[each], at[each] or 0)) for each in queues)


def _dead(endpoint: Endpoint, group: str) -> int:
    queues = endpoint.queues(names.dead_letter_topic(group))
    ends, oldest = endpoint.ends(queues), endpoint.beginnings(queues)
    return sum(ends[each] - oldest[each] for each in queues)


def _count_waiting(spark: SparkSession, endpoint: Endpoint, pair: GroupAudit, length: int) -> None:
    """Count what waits by tag and window, between the offsets that were compared."""
    starts = {each.queue: max(each.oldest, min(each.end, each.consumed or 0)) for each in pair.queues}
    ends = {each.queue: max(each.end, starts[each.queue]) for each in pair.queues}
    waiting = endpoint.read(
        spark,
        COLUMNS,
        subscribe=pair.topic,
        startingOffsets=json.dumps(write_positions(starts)),
        endingOffsets=json.dumps(write_positions(ends)),
    )
    start = F.expr(f"unix_millis(storeTimestamp) DIV {length} * {length}").alias("start")
    counts = waiting.groupBy(start, F.coalesce("tags", F.lit("-")).alias("tag")).agg(
        F.count("*").alias("count"), F.min(F.unix_millis("storeTimestamp")).alias("oldest")
    )
    for row in sorted(counts.collect()):
        pair.windows[row["start"]] = pair.windows.get(row["start"], 0) + row["count"]
        pair.tags[row["tag"]] += row["count"]
        pair.oldest_waiting = min(row["oldest"], pair.oldest_waiting or row["oldest"])
