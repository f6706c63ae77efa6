"""Checkpoint offsets and what lies between two of them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.protocol.queues import MessageQueue
from eruca.spark_connector.errors import SourceError
from eruca.spark_connector.offsets.positions import (
    INITIAL,
    Mark,
    OffsetRange,
    StreamOffset,
    first_end,
    next_end,
    read_positions,
    share_out,
    write_positions,
)

A, B, C = (MessageQueue("orders", "broker-a", number) for number in range(3))
queues = st.builds(MessageQueue, st.sampled_from(["t", "u"]), st.sampled_from(["a", "b"]), st.integers(0, 4))


def through_a_checkpoint(offset: StreamOffset) -> StreamOffset | None:
    return StreamOffset.from_json(json.loads(json.dumps(offset.to_json())))


@given(st.dictionaries(queues, st.integers(0, 2**62)))
def test_positions_survive_their_text(positions: dict[MessageQueue, int]) -> None:
    assert read_positions(json.loads(json.dumps(write_positions(positions)))) == positions


marks = st.builds(Mark, st.integers(0, 2**62), st.integers(-1, 2**62), st.integers(0, 2**62))


@given(st.dictionaries(queues, st.tuples(st.integers(0, 2**62), st.none() | marks)))
def test_marks_survive_a_checkpoint_and_may_be_missing(there: dict[MessageQueue, tuple[int, Mark | None]]) -> None:
    known = {queue: mark for queue, (_, mark) in there.items() if mark is not None}
    offset = StreamOffset({queue: end for queue, (end, _) in there.items()}, marks=known)

    assert through_a_checkpoint(offset) == offset
    before = {name: value for name, value in offset.to_json().items() if name != "marks"}
    assert StreamOffset.from_json(before) == StreamOffset(offset.queues), "a checkpoint of an earlier version"


def test_the_first_batch_is_fixed_by_its_end_alone() -> None:
    end = first_end({A: 5, B: 7}, {A: 9, B: 7}, None)

    again = through_a_checkpoint(end)
    assert again is not None
    # After a crash in the first batch Spark has this end, and no start.
    assert StreamOffset.from_json(INITIAL) is None
    assert again.since(None) == [OffsetRange(A, 5, 9)]


def test_a_first_batch_without_messages_still_keeps_the_start() -> None:
    end = first_end({A: 5, B: 7}, {A: 5, B: 7}, 100)

    assert end.since(None) == []
    after = next_end(end, {}, {A: 6, B: 7})
    assert after is not None and after.since(through_a_checkpoint(end)) == [OffsetRange(A, 5, 6)]


def test_nothing_new_is_no_batch() -> None:
    assert next_end(StreamOffset({A: 5}), {}, {A: 5}) is None
    assert next_end(StreamOffset({A: 5}), {B: 3}, {A: 5, B: 3}) is None


def test_a_queue_that_does_not_answer_stays_and_does_not_block_the_others() -> None:
    end = next_end(StreamOffset({A: 5, B: 5}), {}, {B: 8})

    assert end == StreamOffset({A: 5, B: 8})


def test_a_new_queue_brings_its_beginning_with_it() -> None:
    since = StreamOffset({A: 5})
    end = next_end(since, {B: 2}, {A: 5, B: 4})

    assert end is not None and through_a_checkpoint(end) == end
    assert end.since(since) == [OffsetRange(B, 2, 4)]
    last = next_end(end, {}, {A: 6, B: 4})
    assert last == StreamOffset({A: 6, B: 4})


def test_a_queue_that_was_made_anew_goes_back() -> None:
    since = StreamOffset({A: 500, B: 1})
    end = next_end(since, {A: 0}, {A: 3, B: 1})

    assert end is not None and end.since(since) == [OffsetRange(A, 0, 3)]


def test_a_queue_that_was_made_anew_and_is_as_long_as_before_is_read_again() -> None:
    since = StreamOffset({A: 3, B: 1})
    end = next_end(since, {A: 0}, {A: 3, B: 1})

    assert end is not None and end.since(since) == [OffsetRange(A, 0, 3)]


def test_the_offset_of_another_source_is_refused() -> None:
    for mark in ([1, 2], [1, 2, "3"], [1, 2, True], 1, {"offset": 1}):
        with pytest.raises(SourceError, match=r'"0": .* is no mark of a queue.* Use another checkpointLocation'):
            StreamOffset.from_json({"queues": {}, "marks": {"t": {"b": {"0": mark}}}})
    for theirs in ({"topic": {"0": 3}}, {"queues": 3}, 3, "3", None, [3]):
        with pytest.raises(SourceError, match="Use another checkpointLocation"):
            StreamOffset.from_json(theirs)
    with pytest.raises(SourceError, match="does not say where"):
        StreamOffset({A: 3}).since(StreamOffset({B: 3}))


@given(st.dictionaries(queues, st.tuples(st.integers(0, 50), st.integers(0, 1000)), min_size=1), st.integers(1, 3000))
def test_a_limit_is_used_up_and_shared(lags: dict[MessageQueue, tuple[int, int]], limit: int) -> None:
    start = {queue: begin for queue, (begin, _) in lags.items()}
    available = {queue: begin + lag for queue, (begin, lag) in lags.items()}

    end = share_out(start, available, limit)

    granted = {queue: end[queue] - start[queue] for queue in start}
    assert all(0 <= granted[queue] <= lags[queue][1] for queue in start)
    total = sum(lag for _, lag in lags.values())
    assert sum(granted.values()) == min(limit, total)
    assert all(granted[queue] > 0 for queue, (_, lag) in lags.items() if lag and lag * limit >= total)


def test_a_small_queue_is_not_starved_by_a_large_one() -> None:
    assert share_out({A: 0, B: 0, C: 0}, {A: 1_000_000, B: 3, C: 0}, 10) == {A: 9, B: 1, C: 0}
