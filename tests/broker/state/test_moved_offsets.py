"""How often a corrected offset is reported."""

from __future__ import annotations

from eruca.broker.state.moved_offsets import EVERY, MOST, MovedOffsets


def test_each_group_topic_and_queue_is_reported_once_in_10_seconds() -> None:
    moved = MovedOffsets()
    keys = [("g", "T", 0), ("h", "T", 0), ("g", "U", 0), ("g", "T", 1)]
    assert [moved.is_due(*key, now=at) for at in (0, 1) for key in keys] == [True] * 4 + [False] * 4
    assert [moved.is_due("g", "T", 0, now) for now in (EVERY - 1, EVERY, EVERY + 1, 2 * EVERY)] == [
        False,
        True,
        False,
        True,
    ]


def test_however_many_there_are_the_reports_have_a_bound_and_go_on() -> None:
    moved = MovedOffsets()
    assert sum(moved.is_due("g", "T", queue, 0) for queue in range(2 * MOST)) == MOST
    assert moved.is_due("g", "T", 2 * MOST, EVERY)
