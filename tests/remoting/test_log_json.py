"""The log as JSON: what a program reads is what was said, and a terminal shows it without harm."""

from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from eruca.remoting.log_json import JsonFormat
from eruca.remoting.log_limit import LeftOut
from eruca.remoting.log_line import LONGEST_TRACEBACK, LONGEST_VALUE

line = JsonFormat().line


class Odd:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


def read(text: str) -> dict[str, Any]:
    """The object of a line, which must be one for any parser, and for any terminal."""
    assert text.endswith("\n") and text[:-1].isascii() and text[:-1].isprintable()
    found = json.loads(text, parse_constant=lambda name: 1 // 0)
    assert isinstance(found, dict)
    return found


def test_values_keep_their_types() -> None:
    found = read(
        line("info", {"event": "store_opened", "clean": True, "seconds": 0.5, "files": 3, "none": None}, "eruca.broker")
    )
    assert found.pop("time").endswith("Z")
    assert found == {
        "level": "info",
        "logger": "eruca.broker",
        "event": "store_opened",
        "clean": True,
        "seconds": 0.5,
        "files": 3,
        "none": None,
    }


def test_what_json_does_not_know_is_a_text() -> None:
    values = {"a": math.nan, "b": math.inf, "c": 1 << 60, "d": b"\x00", "e": {"x": [1]}, "f": Odd(), "g": "\ud800"}
    found = read(line("error", {"event": "odd", **values}))
    assert [found[name] for name in "abcdefg"] == [
        "nan",
        "inf",
        str(1 << 60),
        "b'\\x00'",
        "{'x': [1]}",
        "<Odd: its repr raises RuntimeError>",
        "\\ud800",
    ]


def test_names_of_the_line_itself_are_not_overwritten() -> None:
    found = read(line("info", {"event": "odd", "time": 1, "level": 2, "logger": 3, "exception": 4}, "eruca"))
    assert (found["level"], found["logger"], found["time_"], found["level_"], found["exception_"]) == (
        "info",
        "eruca",
        1,
        2,
        4,
    )


def test_a_traceback_is_in_its_line() -> None:
    try:
        raise ValueError("\x1b[2J\nnext")
    except ValueError as fault:
        text = line("error", {"event": "request_failed", "exc_info": fault})
    assert text.count("\n") == 1
    found = read(text)["exception"]
    assert found.startswith("Traceback") and found.endswith("ValueError: \x1b[2J\nnext\n")


def test_long_values_are_cut() -> None:
    found = read(line("info", {"event": "odd", "text": "x" * (LONGEST_VALUE + 5), "exc_info": ValueError("y" * 10**6)}))
    assert found["text"] == "x" * LONGEST_VALUE + "...+5"
    assert len(found["exception"]) < LONGEST_TRACEBACK + 20


def test_what_was_left_out_is_a_number() -> None:
    found = read(JsonFormat().left_out(LeftOut("bad_frame", "warning", 17)))
    assert (found["event"], found["level"], found["more"]) == ("bad_frame", "warning", 17)


@given(st.dictionaries(st.text(), st.text() | st.binary() | st.floats() | st.integers() | st.booleans(), max_size=4))
def test_no_value_makes_it_raise_or_escape(values: dict[str, Any]) -> None:
    read(line("info", {"event": "e", **values}, "eruca"))
