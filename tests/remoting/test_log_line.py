"""The format of a log line: values of any origin stay what they are, one value of one line."""

from __future__ import annotations

import ast
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eruca.remoting.log_line import LONGEST_VALUE, LineFormat

AWKWARD = [
    "\x1b[31m",
    "\x1b]0;title\x07",
    "a\rb",
    "a\nb",
    "\x7f",
    "\x9b2J",
    "\u202egnp",
    "\u2028",
    "\ud800",
    "\x00",
    "",
]
texts = st.text(st.characters(), max_size=40) | st.sampled_from(AWKWARD)
values = texts | st.integers() | st.lists(texts, max_size=3) | st.dictionaries(texts, texts, max_size=3)
line = LineFormat().line


def test_a_line_looks_as_operators_know_it() -> None:
    said = line("info", {"event": "store_opened", "clean": True, "seconds": 0.1, "end_offset": 0, "reason": "a b"})
    moment, _, rest = said.partition(" ")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", moment)
    assert rest == "[info     ] store_opened                   clean=True end_offset=0 reason='a b' seconds=0.1\n"
    assert line("warning", {"event": "x"}).endswith(" [warning  ] x\n")


@given(texts, st.dictionaries(texts, values, max_size=5))
@example("e", {"v": "\x1b[2J"})
@example("\x1b[2J", {"\x1b": "v"})
def test_no_value_key_or_event_reaches_the_log_raw(event: str, more: dict[str, object]) -> None:
    said = line("info", {**more, "event": event, "exc_info": None})
    assert said.endswith("\n") and said[:-1].isprintable()


@given(texts)
def test_a_value_reads_back(value: str) -> None:
    """What is quoted is Python's literal, what is not is the value itself."""
    said = line("info", {"event": "e", "value": value})
    shown = said[said.index("value=") + 6 : -1]
    assert (ast.literal_eval(shown) if shown[:1] in ("'", '"') else shown) == value


@given(texts)
def test_a_traceback_cannot_forge_a_line(text: str) -> None:
    error = ValueError(text + "\n2026-01-01T00:00:00.000000Z [info     ] forged" + text)
    error.add_note(f"{text}\nnoted")
    first, *others = line("error", {"event": "request_failed", "exc_info": error}).removesuffix("\n").split("\n")
    assert first.isprintable() and first.endswith("request_failed")
    assert others and all(other.isprintable() and other.startswith("  ") for other in others)


def test_the_present_error_is_meant_as_in_logging() -> None:
    try:
        raise KeyError("gone")
    except KeyError as error:
        for exc_info in (True, error, (KeyError, error, None)):
            assert line("error", {"event": "e", "exc_info": exc_info}).endswith("\n  KeyError: 'gone'\n")
    for nothing in (True, None, False, (None, None, None)):
        assert line("error", {"event": "e", "exc_info": nothing}).endswith("] e\n")


def test_a_long_value_is_cut() -> None:
    assert line("info", {"event": "e", "v": "x" * 9_000_000}).endswith(f"x...+{9_000_000 - LONGEST_VALUE}\n")
    assert len(line("info", {"event": "e", "v": ["x" * 9000] * 9})) < LONGEST_VALUE + 200
    assert len(line("error", {"event": "e", "exc_info": ValueError("x\n" * 90_000)})) < 200_000


class Odd(Exception):
    def __repr__(self) -> str:
        raise RuntimeError

    def __str__(self) -> str:
        raise RuntimeError

    def __bool__(self) -> bool:
        raise RuntimeError


@pytest.mark.parametrize("exc_info", [Odd(), (Odd, Odd(), None), "nonsense", 7])
def test_nothing_makes_it_raise(exc_info: object) -> None:
    said = line("error", {"event": Odd(), "value": Odd(), "exc_info": exc_info})
    assert "value=<Odd: its repr raises RuntimeError>" in said.replace("'", "").replace('"', "")


def test_colors_are_a_terminals() -> None:
    event = {"event": "e", "v": "\x1b[2J"}
    said = LineFormat(colors=True).line("error", event)
    assert "\x1b[31m" in said and "\x1b[2J" not in said
    plain = re.sub(r"\x1b\[\d+m", "", said)
    assert plain.split(" ", 1)[1] == line("error", event).split(" ", 1)[1]
