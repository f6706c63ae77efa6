"""The format of a log line: ``2026-11-22T17:17:43.826128Z [info     ] store_opened   clean=True end_offset=0``.

Owns what becomes of values of any origin: one that holds anything but printable characters, or could be read as two,
is quoted and escaped, and a long one is cut. A traceback follows its line, each of its lines indented. Pure but for
the clock. Invariants: only a line begins at the margin, and but for the colors of a terminal it holds printable
characters only; no value makes it raise.
"""

from __future__ import annotations

import functools
import re
import sys
import time
import traceback
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from eruca.remoting.log_limit import LeftOut

if TYPE_CHECKING:  # clients come here, too, and have no use for structlog
    from structlog.typing import EventDict

LONGEST_VALUE = 4096
"""Characters of one value."""
LONGEST_TRACEBACK = 32_768
"""Characters of a traceback."""
_QUOTED = frozenset(" \t=\"'")
_PLAIN = re.compile(r"[!#-&(-<>-~]{0,256}").fullmatch
"""Matches what is neither quoted nor escaped nor cut."""
_RESET, _BOLD, _DIM, _KEY, _VALUE = "\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[36m", "\x1b[35m"
_LEVELS = {"info": "\x1b[32m", "debug": "\x1b[32m", "warning": "\x1b[33m"}
_OTHER_LEVELS = "\x1b[31m"


class LineFormat:
    """Makes the line of an event."""

    def __init__(self, *, colors: bool = False) -> None:
        self._colors = colors

    def line(self, level: str, event: EventDict, logger: str = "") -> str:
        """The line of an event, with its newline; its traceback, if it has one, follows. No logger is named."""
        values = dict(event)
        name, fault = values.pop("event", ""), traceback_of(values.pop("exc_info", None))
        pieces = [
            self._paint(moment(), _DIM),
            f"[{self._paint(f'{one_line(level):<9}', _LEVELS.get(level, _OTHER_LEVELS) + _BOLD)}]",
            self._paint(f"{one_line(name if isinstance(name, str) else text_of(name)):<30}", _BOLD),
            *[f"{self._paint(_shown(key), _KEY)}={self._paint(_shown(values[key]), _VALUE)}" for key in sorted(values)],
        ]
        return " ".join(pieces).rstrip(" ") + "\n" + _indented(fault)

    def left_out(self, what: LeftOut) -> str:
        """The line that says how many events got none."""
        return self.line(what.level, {"event": f"{what.event}: and {what.more} more"})

    def _paint(self, text: str, style: str) -> str:
        return f"{style}{text}{_RESET}" if self._colors and text else text


def one_line(text: str) -> str:
    """A text of any origin without its ends of lines and control characters, which are escaped."""
    if text.isascii() and len(text) < LONGEST_VALUE and text.isprintable():
        return text
    text = cut(text, LONGEST_VALUE)
    return text if text.isprintable() else "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def _shown(value: object) -> str:
    if type(value) is int:
        return str(value)
    if type(value) is str and _PLAIN(value) is not None:
        return value
    if not isinstance(value, str):
        return one_line(text_of(value))
    text = cut(value, LONGEST_VALUE)
    return repr(text) if not text.isprintable() or not _QUOTED.isdisjoint(text) else text


def moment() -> str:
    """The time of a line."""
    second, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    return f"{_second_text(second)}.{nanoseconds // 1000:06}Z"


@functools.lru_cache(maxsize=4)
def _second_text(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def text_of(value: object) -> str:
    """The text of a value that is none; never raises."""
    try:
        return repr(value)
    except Exception as fault:
        return f"<{type(value).__name__}: its repr raises {type(fault).__name__}>"


def cut(text: str, most: int) -> str:
    """A text with ``most`` characters of its own, and how many more it had."""
    return text if len(text) <= most else f"{text[:most]}...+{len(text) - most}"


def traceback_of(exc_info: object) -> str:
    """The lines of an error, "" without one; ``exc_info`` as in ``logging``. It is cut, and may hold any character."""
    fault = exc_info[1] if isinstance(exc_info, tuple) else exc_info
    if fault is True:
        fault = sys.exc_info()[1]
    if not isinstance(fault, BaseException):
        return ""
    try:
        text = "".join(traceback.format_exception(fault))
    except Exception as again:
        text = f"{type(fault).__name__}, whose traceback raises {type(again).__name__}"
    return cut(text, LONGEST_TRACEBACK)


def _indented(text: str) -> str:
    return "".join(f"  {''.join(map(_escaped, line))}\n" for line in text.split("\n") if line)
