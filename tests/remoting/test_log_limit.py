"""The limit of a log: which events get a line, and that all others are counted."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from eruca.remoting.log_limit import EVENTS, LINES, LeftOut, LogLimit


def test_ten_lines_of_one_event_a_second_and_then_how_many_more() -> None:
    now = 0.0
    limit = LogLimit(monotonic=lambda: now)
    assert [limit.admit("bad_frame", "warning") for _ in range(25)] == [(True, None)] * 10 + [(False, None)] * 15
    assert limit.admit("idle_connection_closed", "info") == (True, None)
    assert limit.ended() == []
    now = 1.0
    assert limit.admit("bad_frame", "warning") == (True, LeftOut("bad_frame", "warning", 15))
    assert limit.ended() == []
    for _ in range(11):
        limit.admit("bad_frame", "warning")
    now = 3.0
    assert limit.ended() == [LeftOut("bad_frame", "warning", 2)]
    assert limit.ended(closing=True) == []


def test_a_flood_that_lasts_is_fewer_and_fewer_lines() -> None:
    now = 0.0
    limit = LogLimit(monotonic=lambda: now)
    lines: list[float] = []
    for tick in range(3600 * 100):
        now = tick / 100
        admitted, left_out = limit.admit("bad_frame", "warning")
        lines += [now] * (admitted + (left_out is not None))
        if tick % 100 == 0:
            lines += [now] * len(limit.ended())
    assert sum(moment < 63 for moment in lines) <= 6 * (LINES + 1)
    assert len(lines) <= (6 + 60) * (LINES + 1)
    now += 60
    limit.ended()
    now += 120
    assert limit.ended() == []
    assert [limit.admit("bad_frame", "warning")[0] for _ in range(11)] == [True] * 10 + [False]
    now += 1
    assert limit.ended() == [LeftOut("bad_frame", "warning", 1)], "after a pause its interval is a second again"


def test_events_of_very_many_names_share_a_count() -> None:
    limit = LogLimit(monotonic=lambda: 0.0)
    admitted = sum(limit.admit(f"event {number}", "error")[0] for number in range(5000))
    assert admitted == EVENTS + LINES
    assert sum(each.more for each in limit.ended(closing=True)) == 5000 - admitted


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 2), st.booleans()), max_size=200))
def test_every_event_has_its_line_or_is_counted(events: list[tuple[str, float, bool]]) -> None:
    now = 0.0
    limit = LogLimit(lines=2, monotonic=lambda: now)
    seen = Counter[str]()
    lines: dict[str, list[float]] = {"a": [], "b": [], "c": []}
    for name, passed, looks in events:
        now += passed
        found = limit.ended() if looks else []
        admitted, former = limit.admit(name, "info")
        for each in (*found, *([former] if former is not None else [])):
            seen[each.event] += each.more
        if admitted:
            lines[name].append(now)
    for each in limit.ended(closing=True):
        seen[each.event] += each.more
    for name, times in lines.items():
        assert seen[name] + len(times) == sum(event == name for event, _, _ in events)
        assert all(fifth - first > 0.999 for first, fifth in zip(times, times[4:], strict=False))
