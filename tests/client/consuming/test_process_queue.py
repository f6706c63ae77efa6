"""The messages of a queue under way: which offset may be stored, and whether there is room."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from eruca.client.consuming.process_queue import ProcessQueue, PullThresholds, QueueLimits
from eruca.protocol.queues import MessageQueue

QUEUE = MessageQueue("T", "a", 0)
LIMITS = QueueLimits(count=4, size=1000, span=10)


def run_from(start: int, offsets: Sequence[int] = (), next_offset: int | None = None) -> ProcessQueue:
    run = ProcessQueue(QUEUE, start)
    run.put(dict.fromkeys(offsets, 100), next_offset if next_offset is not None else start + len(offsets))
    return run


def test_the_position_waits_for_the_slowest() -> None:
    run = run_from(10, [10, 11, 12])
    assert run.position == 10
    run.done(12)
    run.done(11)
    assert run.position == 10
    run.done(10)
    assert run.position == 13


def test_messages_that_the_filter_left_out_do_not_hold_the_position() -> None:
    run = run_from(0, [3, 7], next_offset=9)
    assert run.position == 3
    run.done(3)
    assert run.position == 7
    run.done(7)
    assert run.position == 9


def test_an_empty_queue_stands_where_it_was_read_to() -> None:
    run = run_from(5)
    assert (run.position, len(run), run.span) == (5, 0, 0)
    run.next_offset = 8  # the broker passed over messages that nobody here wants
    assert run.position == 8


def test_room_ends_with_the_count() -> None:
    run = run_from(0, range(5))
    assert not run.has_room(LIMITS)
    run.done(4)
    assert run.has_room(LIMITS)


def test_room_ends_with_the_bytes() -> None:
    run = ProcessQueue(QUEUE, 0)
    run.put({0: 2000}, 1)
    assert not run.has_room(LIMITS)
    run.done(0)
    assert run.has_room(LIMITS) and run.size == 0


def test_room_ends_with_the_span_that_one_slow_message_holds_open() -> None:
    run = run_from(0, [0])
    run.put({5: 100, 11: 100}, 12)
    assert run.span == 11 and not run.has_room(LIMITS)
    run.done(5)
    assert not run.has_room(LIMITS)
    run.done(0)
    assert run.has_room(LIMITS)


def test_who_ends_late_for_a_dropped_run_changes_nothing() -> None:
    old = run_from(0, [0, 1, 2])
    old.drop()
    new = ProcessQueue(QUEUE, 0)
    new.put({0: 100}, 1)
    old.done(0)
    old.done(1)
    assert (new.position, len(new)) == (0, 1)
    assert old.size == 0 and len(old) == 0


@settings(deadline=None)
@given(st.integers(0, 60).flatmap(lambda count: st.permutations(range(count))))
def test_the_position_is_the_least_that_is_not_done(order: Sequence[int]) -> None:
    run = run_from(0, range(len(order)))
    left = set(order)
    for offset in order:
        run.done(offset)
        left.discard(offset)
        assert run.position == min(left, default=len(order))
        assert len(run) == len(left)
    assert run.size == 0


def test_what_may_wait_of_a_topic_is_shared_by_its_queues() -> None:
    both = PullThresholds(consume_max_span=7, pull_threshold_for_topic=30, pull_threshold_size_for_topic=3)
    mib = 1 << 20
    assert both.of_queue(1) == QueueLimits(count=30, size=3 * mib, span=7)
    assert both.of_queue(4) == QueueLimits(count=7, size=3 * mib // 4, span=7)
    assert both.of_queue(100) == QueueLimits(count=1, size=3 * mib // 100, span=7), "each queue may have one"
    default = QueueLimits(count=1000, size=100 * mib, span=2000)
    assert PullThresholds(pull_threshold_for_topic=8).of_queue(4) == replace(default, count=2)
    assert PullThresholds().of_queue(4) == default
    assert both.of_queue(0) == replace(default, span=7), "no queue yet"
