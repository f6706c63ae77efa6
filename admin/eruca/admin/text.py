"""Text as Java prints it for operators: times, truncated names, maps.

Times are ms. They are printed and read in the zone of the machine, as by Apache's mqadmin, or in that of ``in_zone``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, tzinfo

from eruca.admin.errors import BadValue
from eruca.protocol.message import java_hash
from eruca.protocol.times import parse_time

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_CONTROLS_AND_ENDS = re.compile(f"[\t\n]|{_CONTROLS.pattern}")


def harmless(text: str) -> str:
    """A text for a terminal: what would control it is shown (``\\x1b``), but for ends of lines and tabs.

    Names, ids, bodies and remarks come from anybody who may reach a broker. Characters that turn the direction of
    writing count, too.
    """
    return _CONTROLS.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    """As Python and Java write it; what JSON leaves in its strings as JSON would, which stays JSON so."""
    return ascii(found[0])[1:-1] if found[0] < " " else f"\\u{ord(found[0]):04x}"


def columns(layout: str, *values: object) -> str:
    """A row by a printf format: ``%-32.32s  %-4s`` truncates the first column to its width, and not the second.

    A value never begins another row.
    """
    return layout % tuple(_CONTROLS_AND_ENDS.sub(_escaped, each) if isinstance(each, str) else each for each in values)


_ZONE: ContextVar[tzinfo | None] = ContextVar("zone", default=None)
"""The zone of ``in_zone``; None: this machine's."""


@contextmanager
def in_zone(name: str | None) -> Iterator[None]:
    """Print and read times in a zone, such as ``Europe/Berlin`` or ``UTC``; None is this machine's. Raises BadValue."""
    token = _ZONE.set(None if name is None else _zone(name))
    try:
        yield
    finally:
        _ZONE.reset(token)


def _zone(name: str) -> tzinfo:
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise BadValue(f"option --tz takes a time zone, such as Europe/Berlin or UTC, not '{name}'") from None


def local(ms: int) -> datetime:
    """A time in the zone that counts. Raises OverflowError, ValueError or OSError for one that no calendar has."""
    zone = _ZONE.get()
    moment = datetime.fromtimestamp(ms / 1000, zone)
    return moment.astimezone() if zone is None else moment


def _formatted(layout: str, ms: int) -> str:
    if _ZONE.get() is None:
        return time.strftime(layout, time.localtime(ms // 1000))
    return local(ms - ms % 1000).strftime(layout)


def seconds_text(ms: int) -> str:
    """``2026-11-21 08:37:02``."""
    return _formatted("%Y-%m-%d %H:%M:%S", ms)


def millis_text(ms: int) -> str:
    """``2026-11-21 08:37:02,855``."""
    return f"{seconds_text(ms)},{ms % 1000:03d}"


def digits_text(ms: int) -> str:
    """``20261121083702855``."""
    return f"{_formatted('%Y%m%d%H%M%S', ms)}{ms % 1000:03d}"


def shown(value: object) -> str:
    """A value as Java's ``%s`` shows it: null, true, false, and everything else as it is."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def zoned(ms: int) -> str:
    """``2026-11-22 17:30:00.000 +01:00 (1795365000000)``; a time that no calendar has, as its number alone."""
    try:
        moment = local(ms)
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"
    return f"{moment:%Y-%m-%d %H:%M:%S}.{ms % 1000:03d} {moment.isoformat()[-6:]} ({ms})"


def point_of_time(text: str) -> int:
    """A time in ms, from any form of ``parse_time``. Raises BadValue."""
    try:
        return parse_time(text, time.time_ns() // 1_000_000, _ZONE.get())
    except ValueError as error:
        raise BadValue(str(error)) from None


GROUP_OF = "group:"
"""What stands before the name of a group whose offsets are meant, where a place is asked for."""


def counted(number: int | str, noun: str) -> str:
    """``1 message``, ``2 messages``, ``>= 1 ? messages``."""
    return f"{number} {noun}" if str(number) == "1" else f"{number} {noun}s"


def map_text(table: Mapping[str, str]) -> str:
    """``{K=v, TAGS=TagA}`` in the order in which a Java HashMap has its keys."""
    return "{" + ", ".join(f"{key}={table[key]}" for key in hash_order(table)) + "}"


def hash_order(table: Mapping[str, object], capacity: int = 16) -> list[str]:
    """The keys of a table in the order of a Java HashMap that grew from ``capacity``."""
    while len(table) > capacity * 3 // 4:
        capacity *= 2

    def bucket(key: str) -> int:
        code = java_hash(key) & 0xFFFFFFFF
        return (code ^ code >> 16) & (capacity - 1)

    return sorted(table, key=bucket)


def nearest(name: str, known: Sequence[str]) -> str:
    """``; did you mean Orders, Order2?`` for a name that is like some of the known ones; else nothing."""
    from difflib import get_close_matches  # only a mistake needs it

    lower = {each.lower(): each for each in known}
    like = get_close_matches(name.lower(), lower, n=3)
    return f"; did you mean {', '.join(lower[each] for each in like)}?" if like else ""
