"""Packing ranges into partitions."""

from hypothesis import given
from hypothesis import strategies as st

from eruca.protocol.queues import MessageQueue
from eruca.spark_connector.offsets.positions import OffsetRange
from eruca.spark_connector.options import read_options
from eruca.spark_connector.read.partitions import choose_partition_count, pack, plan_partitions

A, B, C = (MessageQueue("orders", "broker-a", number) for number in range(3))


def test_little_to_read_is_one_task_and_much_is_as_many_as_can_run() -> None:
    assert choose_partition_count(100, parallelism=8, worthwhile=4096) == 1
    assert choose_partition_count(9000, parallelism=8, worthwhile=4096) == 3
    assert choose_partition_count(10**9, parallelism=8, worthwhile=4096) == 8
    assert choose_partition_count(0, parallelism=8, worthwhile=4096) == 0


def test_the_user_has_the_last_word() -> None:
    assert choose_partition_count(100, parallelism=8, worthwhile=4096, least=20) == 20
    assert choose_partition_count(10, parallelism=8, worthwhile=4096, least=20) == 10
    assert choose_partition_count(10**9, parallelism=8, worthwhile=4096, most=3) == 3
    assert choose_partition_count(100, parallelism=8, worthwhile=4096, records=30) == 4
    assert choose_partition_count(100, parallelism=8, worthwhile=4096, records=1000) == 1


@given(st.lists(st.integers(1, 500), min_size=1, max_size=12), st.integers(1, 400))
def test_no_partition_has_more_records_than_it_may(lengths: list[int], records: int) -> None:
    ranges = [OffsetRange(MessageQueue("t", "b", number), 7, 7 + length) for number, length in enumerate(lengths)]
    options = {"nameServer": "a:1", "subscribe": "t", "maxRecordsPerPartition": str(records)}

    partitions = plan_partitions(ranges, read_options(options, streaming=False), 2)

    sizes = [sum(map(len, part.ranges)) for part in partitions]
    assert sum(sizes) == sum(lengths) and max(sizes) <= records


def test_queues_share_partitions_and_a_large_one_is_cut() -> None:
    partitions = pack([OffsetRange(A, 0, 70), OffsetRange(B, 5, 15), OffsetRange(C, 0, 20)], 2)

    assert [each.ranges for each in partitions] == [
        (OffsetRange(A, 0, 50),),
        (OffsetRange(A, 50, 70), OffsetRange(B, 5, 15), OffsetRange(C, 0, 20)),
    ]


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(1, 500)), min_size=1, max_size=12), st.data())
def test_every_offset_is_in_exactly_one_partition(lengths: list[tuple[int, int]], data: st.DataObject) -> None:
    ranges = [
        OffsetRange(MessageQueue("t", "b", number), start, start + length)
        for number, (start, length) in enumerate(lengths)
    ]
    total = sum(len(each) for each in ranges)
    count = data.draw(st.integers(1, total))

    partitions = pack(ranges, count)

    sizes = [sum(len(each) for each in partition.ranges) for partition in partitions]
    assert len(partitions) == count and max(sizes) - min(sizes) <= 1
    read = [
        (each.queue, offset) for part in partitions for each in part.ranges for offset in range(each.start, each.end)
    ]
    assert read == [(each.queue, offset) for each in ranges for offset in range(each.start, each.end)]
