"""The judge of ordered groups finds what is wrong, and nothing in what is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.order import Event, Fates, events_in, judge, seen


def story(*lines: str) -> list[Event]:
    """``A 3 10-12``: member A had offset 3 of queue 0 from 10 to 12; ``10-`` is one that did not end."""
    events = []
    for line in lines:
        member, offset, time = line.split()
        begin, _, end = time.partition("-")
        events.append(Event(float(begin), True, member, 0, int(offset), offset))
        if end:
            events.append(Event(float(end), False, member, 0, int(offset), offset))
    return events


@pytest.mark.parametrize("torn", ["12.5 end A 0 1", "12.5 end A 0 11 1/2", ""])
def test_a_line_that_is_not_written_whole_yet_is_not_read(tmp_path: Path, torn: str) -> None:
    """A reader sees what lies before the end of a page of the file, and then the rest."""
    book = tmp_path / "book"
    book.write_text("10.5 begin A 0 11 1/23\n" + torn)
    assert events_in(book) == [Event(10.5, True, "A", 0, 11, "1/23")]


def test_queues_that_are_handed_on_in_order_are_well() -> None:
    events = story("A 0 1-2", "A 1 2-3", "B 2 4-5", "A 3 6-7")
    assert judge(events, Fates()) == []
    assert seen(events) == {"0", "1", "2", "3"}


def test_two_at_a_queue_are_a_fault() -> None:
    assert judge(story("A 0 1-5", "B 0 3-4"), Fates()) == ["queue 0: B begins 0 while A is at work on 0"]


def test_a_message_before_its_predecessor_is_a_fault() -> None:
    assert judge(story("A 0 1-2", "A 2 3-4"), Fates()) == ["queue 0: A begins 2 before 1 is consumed"]


def test_a_message_again_without_a_reason_is_a_fault() -> None:
    assert judge(story("A 0 1-2", "A 1 2-3", "B 1 4-5"), Fates()) == ["queue 0: B begins 1, 2 is next after A"]
    assert judge(story("A 0 1-2", "A 1 2-3", "A 1 4-5"), Fates()) == ["queue 0: A begins 1, 2 is next after A"]


def test_what_a_killed_member_had_may_come_again_and_nothing_before() -> None:
    fates = Fates(killed={"B": 6.5})
    events = story("A 0 1-2", "A 1 2-3", "B 2 4-5", "B 3 5-6", "B 4 6-")
    assert judge([*events, *story("C 2 8-9", "C 3 9-10", "C 4 10-11")], fates) == []
    assert judge([*events, *story("C 4 8-9")], fates) == []
    assert judge([*events, *story("C 5 8-9")], fates) == ["queue 0: C begins 5 before 4 is consumed"]
    assert judge([*events, *story("C 1 8-9")], fates) == ["queue 0: C begins 1, but B began at 2"]


def test_a_member_that_slept_must_not_go_on_in_front_of_its_successor() -> None:
    fates = Fates()
    fates.slept["A"].append((2.5, 9.0))
    before = story("A 0 1-2", "A 1 2-9.1", "B 1 5-6", "B 2 6-7", "B 3 7-8")
    assert judge([*before, *story("A 4 10-11")], fates) == []
    assert judge([*before, *story("A 2 10-11")], fates) == ["queue 0: A begins 2, 4 is next after B"]
    assert judge([*before, *story("B 4 8-12", "A 4 10-11")], fates) == ["queue 0: A begins 4 while B is at work on 4"]
