"""The log as JSON: ``{"time": "…", "level": "info", "logger": "eruca.broker", "event": "store_opened", …}``.

Owns what becomes of values: numbers, texts and truth values stay, all else becomes its text; a long one is cut.
Invariants: one line for each event, its traceback (``exception``) included, of printable ASCII characters only; every
line is a JSON object that any parser reads; no value makes it raise.
"""

from __future__ import annotations

import json
import math

import msgspec
from structlog.typing import EventDict

from eruca.remoting.log_limit import LeftOut
from eruca.remoting.log_line import LONGEST_VALUE, cut, moment, text_of, traceback_of

_OWN = ("time", "level", "logger", "event", "exception")
_GREATEST = 1 << 53
"""Beyond this many parsers read another number."""


class JsonFormat:
    """Makes the line of an event."""

    def line(self, level: str, event: EventDict, logger: str = "") -> str:
        """The line of an event, with its newline."""
        values = dict(event)
        name, fault = values.pop("event", ""), traceback_of(values.pop("exc_info", None))
        found: dict[str, object] = {
            "time": moment(),
            "level": level,
            "logger": logger,
            "event": _value(name),
            **{_key(key): _value(value) for key, value in values.items()},
        }
        if fault:
            found["exception"] = _plain(fault)
        return _object(found) + "\n"

    def left_out(self, what: LeftOut) -> str:
        """The line that says how many events got none."""
        return self.line(what.level, {"event": what.event, "more": what.more})


def _object(values: dict[str, object]) -> str:
    text = msgspec.json.encode(values).decode()
    return text if text.isascii() and text.isprintable() else json.dumps(values, separators=(",", ":"))


def _key(key: object) -> str:
    text = _plain(cut(key if isinstance(key, str) else text_of(key), LONGEST_VALUE))
    return f"{text}_" if text in _OWN else text


def _value(value: object) -> object:
    if value is None or isinstance(value, bool):
        return value
    if type(value) is int and -_GREATEST < value < _GREATEST:
        return value
    if type(value) is float and math.isfinite(value):
        return value
    return _plain(cut(value if type(value) is str else text_of(value), LONGEST_VALUE))


def _plain(text: str) -> str:
    """A text without lone surrogates, which parsers refuse."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
