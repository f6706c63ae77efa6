"""How ranges of queues become Spark partitions.

Owns the packing rule. Makes no request. Invariant: the partitions hold every offset of the ranges exactly once, and
within a partition the offsets of a queue rise.

A Python task costs some 40 ms before its first row, so queues share tasks: as many as can run at once, fewer where
there is little to read. Ranges are cut where that makes the tasks even.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql.datasource import InputPartition

from eruca.spark_connector.offsets.positions import OffsetRange
from eruca.spark_connector.options import Options


@dataclass(frozen=True)
class OffsetPartition(InputPartition):
    """What one task reads, queue after queue; ``filter`` is how its brokers filter, or empty."""

    ranges: tuple[OffsetRange, ...]
    filter: str = ""


def choose_partition_count(
    offsets: int,
    *,
    parallelism: int,
    worthwhile: int,
    least: int | None = None,
    most: int | None = None,
    records: int | None = None,
) -> int:
    """How many partitions ``offsets`` offsets are worth.

    Up to ``parallelism``, none with fewer than ``worthwhile`` offsets to read; ``least`` and ``most`` (minPartitions
    and maxPartitions), and ``records`` (maxRecordsPerPartition: how many offsets one may have) have the last word, but
    a partition is never empty.
    """
    count = min(parallelism, -(-offsets // worthwhile))
    if least is not None:
        count = max(count, least)
    if records is not None:
        count = max(count, -(-offsets // records))
    if most is not None:
        count = min(count, most)
    return max(0, min(count, offsets))


def pack(ranges: Sequence[OffsetRange], count: int) -> list[OffsetPartition]:
    """``ranges`` in ``count`` partitions of even size: cut at most once a partition, and kept in order."""
    total = sum(len(each) for each in ranges)
    partitions: list[OffsetPartition] = []
    current: list[OffsetRange] = []
    done = 0
    for each in ranges:
        start = each.start
        while start < each.end:
            edge = total * (len(partitions) + 1) // count
            end = min(each.end, start + edge - done)
            current.append(OffsetRange(each.queue, start, end))
            done += end - start
            start = end
            if done == edge:
                partitions.append(OffsetPartition(tuple(current)))
                current = []
    return partitions


def plan_partitions(ranges: Sequence[OffsetRange], options: Options, parallelism: int) -> list[OffsetPartition]:
    """``ranges`` as partitions by the options, where ``parallelism`` tasks can run at once."""
    count = choose_partition_count(
        sum(len(each) for each in ranges),
        parallelism=parallelism,
        worthwhile=options.arrow_batch_rows,
        least=options.min_partitions,
        most=options.max_partitions,
        records=options.max_records_per_partition,
    )
    return [replace(each, filter=options.broker_filter) for each in pack(ranges, count)]
