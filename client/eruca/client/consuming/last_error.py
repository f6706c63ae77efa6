"""LastError: why a message was given up, as text in its dead letter's properties and in the log.

Pure. Owns the names of those properties and their bounds: together they take at most some 3 KiB, so they fit into any
message. Invariant: a text never contains the characters that separate properties.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import NamedTuple

from eruca.client.outcomes import Later, Outcome, Reject, Suspend

ERROR, TEXT, TRACEBACK = "DEAD_LETTER_ERROR", "DEAD_LETTER_TEXT", "DEAD_LETTER_TRACEBACK"
"""Properties of a dead letter: the class of the last error, its text, and the innermost frames of its traceback."""
_KIND_SIZE, _TEXT_SIZE, _TRACEBACK_SIZE = 200, 600, 2000
"""Bytes at most."""
_FRAMES = 6
_IN_ONE_LINE = {code: repr(chr(code))[1:-1] for code in (*range(32), 127, 0x85, 0x2028, 0x2029)}
"""Line breaks and other control characters as Python writes them."""


class LastError(NamedTuple):
    """What failed at last; as a text for the log it is one line. Empty texts: unknown."""

    kind: str = ""
    text: str = ""
    traceback: str = ""

    def __str__(self) -> str:
        told = f"{self.kind}: {self.text}" if self.text else self.kind or "unknown"
        return told.translate(_IN_ONE_LINE)

    @property
    def properties(self) -> dict[str, str]:
        """What travels with the dead letter."""
        return {name: text for name, text in zip((ERROR, TEXT, TRACEBACK), self, strict=True) if text}


def last_error(error: BaseException | None, outcome: Outcome = None) -> LastError:
    """Of a call that raised ``error``, or returned ``outcome``, whose cause counts as raised."""
    reason = outcome.reason if isinstance(outcome, Reject) else None
    if error is None and isinstance(outcome, Later | Reject | Suspend):
        error = outcome.cause
    if error is None:
        return LastError(type(outcome).__name__, _bounded(reason or "returned by the listener", _TEXT_SIZE))
    kind = type(error).__qualname__
    if type(error).__module__ != "builtins":
        kind = f"{type(error).__module__}.{kind}"
    frames = "".join(traceback.format_tb(error.__traceback__, limit=-_FRAMES))
    return LastError(
        _bounded(kind, _KIND_SIZE), _bounded(reason or text_of(error), _TEXT_SIZE), _bounded(frames, _TRACEBACK_SIZE)
    )


def last_error_of(properties: Mapping[str, str]) -> LastError:
    """What a dead letter says."""
    return LastError(*(properties.get(name, "") for name in (ERROR, TEXT, TRACEBACK)))


def text_of(error: BaseException) -> str:
    """The text of an error, also of one that cannot make it."""
    try:
        return str(error)
    except Exception as another:
        return f"its text cannot be made: {type(another).__name__}"


def _bounded(text: str, size: int) -> str:
    """The text without separators, cut to ``size`` bytes of UTF-8."""
    clean = text.replace("\x01", " ").replace("\x02", " ").strip()
    return clean.encode("utf-8", "replace")[:size].decode("utf-8", "ignore")
