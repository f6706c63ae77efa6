"""The settings of a daemon's log, which brokers and nameservers share.

Owns the keys, and what a text of ``logLevel`` means. Knows no logger and no file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from eruca.remoting.files import no_folder, not_writable
from eruca.remoting.settings import Finding, setting

LEVELS = {"DEBUG": 10, "INFO": 20, "WARN": 30, "WARNING": 30, "ERROR": 40}
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_RULE = (
    rf"(?P<level>{'|'.join(LEVELS)})(?:@(?P<logger>[A-Za-z_][\w.]{{0,99}}))?(?:/(?P<count>\d{{1,6}})(?P<unit>[smh]))?"
)
_PLAIN = re.sub(r"\?P<\w+>", "?:", _RULE)


class LevelRule(NamedTuple):
    """From which level on a logger, and those below it, are logged; ``seconds`` is None for good."""

    level: int
    logger: str
    seconds: int | None
    text: str


@dataclass(kw_only=True)
class LogSettings:
    """Format, level and files of a log. The keys are Eruca's own."""

    log_format: str = setting("console", one_of=("console", "json"))
    """json: one JSON object per line."""
    log_level: str = setting(
        "INFO",
        live=True,
        pattern=rf"(?i)\s*{_PLAIN}\s*(?:,\s*{_PLAIN}\s*)*",
        words="DEBUG, INFO, WARN or ERROR, of one logger or for some time too: INFO,DEBUG@eruca.broker.store/10m",
    )
    """From which level on events are logged."""
    log_file: str | None = setting(None, path=True)
    """A folder for the files of the log, or a file whose name ends with .log; without it all goes to standard error."""
    log_file_size: int = setting(128 << 20, at_least=0)
    """Bytes from which on a file is put aside and a new one begun; 0: never."""
    log_file_count: int = setting(10, at_least=0, at_most=1000)
    """How many files that were put aside are kept of each."""


def unwritable(settings: LogSettings) -> Iterator[Finding]:
    """Why the files of a log cannot be written on this machine."""
    if settings.log_file is not None:
        path = Path(settings.log_file)
        folder = path.parent if path.suffix == ".log" else path
        fault = no_folder(folder) or not_writable(folder)
        if fault is not None:
            yield Finding("logFile", fault)


def level_rules(text: str) -> list[LevelRule]:
    """The rules in an allowed text of ``logLevel``."""
    found = []
    for piece in text.split(","):
        match = re.fullmatch(_RULE, piece.strip(), re.IGNORECASE)
        assert match is not None, "the setting allows no other text"
        seconds = int(match["count"]) * _SECONDS[match["unit"].lower()] if match["count"] else None
        found.append(LevelRule(LEVELS[match["level"].upper()], match["logger"] or "", seconds, piece.strip()))
    return found
