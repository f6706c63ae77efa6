"""The tally of the demonstration: it must detect every fault."""

from __future__ import annotations

from eruca.standalone.demo.tally import Place, Tally, report
from eruca.standalone.demo.text import first_lines


def three_messages() -> Tally:
    tally = Tally()
    for offset in range(3):
        tally.sent(Place(0, offset), b"line %d" % offset, "a.py")
    return tally


def test_all_messages_once() -> None:
    tally = three_messages()
    for offset in range(3):
        tally.consumed(report(Place(0, offset), b"line %d" % offset, "a.py"))
    assert tally.total == 3
    assert tally.differences(dict.fromkeys(tally.expected, 1)) == []


def test_a_message_that_is_missing_comes_twice_or_differs_is_noticed() -> None:
    tally = three_messages()
    tally.consumed(report(Place(0, 0), b"line 0", "a.py"))
    tally.consumed(report(Place(0, 0), b"line 0", "a.py"))
    tally.consumed(report(Place(0, 1), b"line X", "a.py"))
    tally.consumed(report(Place(1, 7), b"never sent", "a.py"))
    told = tally.differences(dict.fromkeys(tally.expected, 1))
    assert len([text for text in told if "differs from what was sent" in text]) == 2
    assert any("Place(queue=0, offset=0) came 2 times, expected 1" in text for text in told)
    assert any("Place(queue=0, offset=2) came 0 times, expected 1" in text for text in told)
    assert any("Place(queue=1, offset=7) came 1 times, expected 0" in text for text in told)


def test_what_a_rewind_brings_again() -> None:
    assert three_messages().from_offsets({0: 1}) == [Place(0, 1), Place(0, 2)]


def test_lines_of_real_text() -> None:
    lines = first_lines(10_000)
    assert len(lines) == 10_000
    assert all(line.body and line.file.endswith(".py") for line in lines)
    assert len({line.file for line in lines}) > 3
