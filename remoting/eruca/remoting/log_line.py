"""The format of a log line: ``2026-11-22T17:17:43.826128Z [info     ] store_opened   clean=True end_offset=0``.

Owns what becomes of values of any origin: one that holds anything but printable characters, or could be read as two,
is quoted and escaped, and a long one is cut. A traceback follows its line, each of its lines indented. Pure but for
the clock. Invariants: only a line begins at the margin, and but for the colors of a terminal it holds printable
characters only; no value makes it raise.
"""

from __future__ import annotations

import sys
import traceback
from datetime import UTC, datetime

from structlog.typing import EventDict

from eruca.remoting.log_limit import LeftOut

LONGEST_VALUE = 4096
"""Characters of one value."""
LONGEST_TRACEBACK = 32_768
"""Characters of a traceback."""
_QUOTED = frozenset(" \t=\"'")
_RESET, _BOLD, _DIM, _KEY, _VALUE = "\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[36m", "\x1b[35m"
_LEVELS = {"info": "\x1b[32m", "debug": "\x1b[32m", "warning": "\x1b[33m"}
_OTHER_LEVELS = "\x1b[31m"


class LineFormat:
    """A processor of structlog that makes the line of an event."""

    def __init__(self, *, colors: bool = False) -> None:
        self._colors = colors

    def __call__(self, logger: object, level: str, event: EventDict) -> str:
        """As ``line``."""
        return self.line(level, event)

    def line(self, level: str, event: EventDict) -> str:
        """The line of an event, with its newline; its traceback, if it has one, follows."""
        values = dict(event)
        name, fault = values.pop("event", ""), _traceback(values.pop("exc_info", None))
        moment = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        pieces = [
            self._paint(moment, _DIM),
            f"[{self._paint(f'{one_line(level):<9}', _LEVELS.get(level, _OTHER_LEVELS) + _BOLD)}]",
            self._paint(f"{one_line(name if isinstance(name, str) else _text(name)):<30}", _BOLD),
            *(f"{self._paint(_shown(key), _KEY)}={self._paint(_shown(values[key]), _VALUE)}" for key in sorted(values)),
        ]
        return " ".join(pieces).rstrip(" ") + "\n" + fault

    def left_out(self, what: LeftOut) -> str:
        """The line that says how many events got none."""
        return self.line(what.level, {"event": f"{what.event}: and {what.more} more"})

    def _paint(self, text: str, style: str) -> str:
        return f"{style}{text}{_RESET}" if self._colors and text else text


def one_line(text: str) -> str:
    """A text of any origin without its ends of lines and control characters, which are escaped."""
    text = _cut(text, LONGEST_VALUE)
    return text if text.isprintable() else "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def _shown(value: object) -> str:
    if not isinstance(value, str):
        return one_line(_text(value))
    text = _cut(value, LONGEST_VALUE)
    return repr(text) if not text.isprintable() or not _QUOTED.isdisjoint(text) else text


def _text(value: object) -> str:
    try:
        return repr(value)
    except Exception as fault:
        return f"<{type(value).__name__}: its repr raises {type(fault).__name__}>"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}...+{len(text) - most}"


def _traceback(exc_info: object) -> str:
    """The lines of an error, "" without one; ``exc_info`` as in ``logging``."""
    fault = exc_info[1] if isinstance(exc_info, tuple) else exc_info
    if fault is True:
        fault = sys.exc_info()[1]
    if not isinstance(fault, BaseException):
        return ""
    try:
        text = "".join(traceback.format_exception(fault))
    except Exception as again:
        text = f"{type(fault).__name__}, whose traceback raises {type(again).__name__}"
    lines = _cut(text, LONGEST_TRACEBACK).split("\n")
    return "".join(f"  {''.join(map(_escaped, line))}\n" for line in lines if line)
