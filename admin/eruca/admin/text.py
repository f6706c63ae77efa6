"""Text as Java prints it for operators: times, truncated names, maps.

Pure, apart from the time zone of the machine: times are printed and read in it, as Apache's mqadmin does. Times are ms.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

from eruca.admin.errors import AdminError
from eruca.protocol.message import java_hash

_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})#(\d{1,2}):(\d{1,2}):(\d{1,2}):(\d{1,3})")


def columns(layout: str, *values: object) -> str:
    """A row by a printf format: ``%-32.32s  %-4s`` truncates the first column to its width, and not the second."""
    return layout % values


def seconds_text(ms: int) -> str:
    """``2026-11-21 08:37:02``."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ms // 1000))


def millis_text(ms: int) -> str:
    """``2026-11-21 08:37:02,855``."""
    return f"{seconds_text(ms)},{ms % 1000:03d}"


def digits_text(ms: int) -> str:
    """``20261121083702855``."""
    return time.strftime("%Y%m%d%H%M%S", time.localtime(ms // 1000)) + f"{ms % 1000:03d}"


def shown(value: object) -> str:
    """A value as Java's ``%s`` shows it: null, true, false, and everything else as it is."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def point_of_time(text: str) -> int:
    """A time given as ms since 1970 or as ``yyyy-MM-dd#HH:mm:ss:SSS`` in this machine's zone. Raises AdminError."""
    if re.fullmatch(r"[+-]?\d{1,18}", text):
        return int(text)
    match = _DATE.fullmatch(text)
    if match is not None:
        year, month, day, hour, minute, second, ms = map(int, match.groups())
        if 1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 60:
            return int(time.mktime((year, month, day, hour, minute, second, 0, 0, -1))) * 1000 + ms
    raise AdminError(f"'{text}' is no time: give ms since 1970 or yyyy-MM-dd#HH:mm:ss:SSS")


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
