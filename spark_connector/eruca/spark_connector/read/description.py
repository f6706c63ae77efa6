"""What a read will do, in a line: of the log, and for who asks before the read.

Owns the wording, and how the plan of a frame is found in Spark's.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from eruca.spark_connector.errors import BadOption
from eruca.spark_connector.read.partitions import OffsetPartition
from eruca.spark_connector.runtime.installed import is_remote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUEUES_NAMED: Final = 32
"""Ranges that a line names at most."""
_SCAN: Final = "BatchScan rocketmq"


def describe(partitions: Sequence[OffsetPartition]) -> str:
    """Queues, offsets, tasks, and the filter at the broker."""
    ranges = [each for part in partitions for each in part.ranges]
    if not ranges:
        return "reads nothing: no queue has a message in the range"
    queues = len({each.queue for each in ranges})
    filters = {part.filter for part in partitions} - {""}
    filtered = f", filtered at the broker by {filters.pop()}" if filters else ""
    named = [
        f"{each.queue.topic} {each.queue.broker_name}:{each.queue.queue_id} {each.start}-{each.end}"
        for each in ranges[:QUEUES_NAMED]
    ]
    if len(ranges) > QUEUES_NAMED:
        named.append(f"and {len(ranges) - QUEUES_NAMED} more")
    return (
        f"reads {_count(sum(map(len, ranges)), 'offset')} of {_count(queues, 'queue')} in "
        f"{_count(len(partitions), 'task')}{filtered}: {', '.join(named)}"
    )


def explain_read(frame: DataFrame) -> str:
    """What a batch will read of RocketMQ: a line for each source in its plan, empty where there is none.

    Spark plans the frame for it, so its queues end where they end now; of a cached frame, where they ended when it was
    cached. Each line names the offsets of each queue, its end excluded, the tasks, and the filter that brokers apply;
    Spark applies all others. Needs a session with a Java process, which Spark Connect has not. Raises BadOption for a
    stream, whose batches are planned one after the other.
    """
    if is_remote(frame):
        raise BadOption("Spark Connect shows no plan of a source: its line is in the log of the server, at INFO.")
    if frame.isStreaming:
        raise BadOption("A stream is planned batch by batch: each one is a line at INFO of the logger eruca.spark.")
    return "\n".join(describe(partitions) for partitions in _scans(frame))


def _scans(frame: DataFrame) -> Iterator[list[OffsetPartition]]:
    for leaf in _leaves_of(frame):
        if leaf.nodeName() == _SCAN:
            planned = leaf.inputPartitions()
            pickled = [bytes(planned.apply(place).pickedPartition()) for place in range(planned.size())]
            found = [pickle.loads(each) for each in pickled]  # noqa: S301 - made by this source, for Spark's tasks
            yield [each for each in found if isinstance(each, OffsetPartition)]  # for none Spark makes one of its own


def _leaves_of(frame: DataFrame) -> Iterator[Any]:
    """The leaves of the plan, and of those of its subqueries, which Spark plans when they run."""
    java: Any = frame._jdf
    execution, state = java.queryExecution(), java.sparkSession().sessionState()
    yield from _leaves(execution.sparkPlan())
    subqueries = execution.optimizedPlan().subqueriesAll()
    for each in map(subqueries.apply, range(subqueries.size())):
        yield from _leaves(state.executePlan(each, getattr(state, "executePlan$default$2")()).sparkPlan())


def _leaves(plan: Any) -> Iterator[Any]:
    leaves = plan.collectLeaves()
    for leaf in map(leaves.apply, range(leaves.size())):
        kind = leaf.getClass().getSimpleName()
        if kind == "InMemoryTableScanExec":
            yield from _leaves(leaf.relation().cachedPlan())
        elif kind == "AdaptiveSparkPlanExec":
            yield from _leaves(leaf.inputPlan())
        else:
            yield leaf


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
