"""How figures, times and lines look on a page.

Pure, apart from the zone of the machine. What is None is ``?``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import quote

from eruca.admin.results.answer import Moment, Result, Table
from eruca.admin.results.messages import Step
from eruca.admin.results.progress import Lag
from eruca.protocol.queues import MessageQueue

UNKNOWN = "?"
_LETTER = 4
"""Bytes of a letter in UTF-8, at most."""
_MANY = 1_000
"""From here on thousands are set apart."""


def figure(value: float | None, places: int = 1) -> str:
    """``12 345`` or ``0.3``; ``?`` for what is not known."""
    if value is None:
        return UNKNOWN
    if isinstance(value, float):
        return f"{value:,.{places}f}".replace(",", "\u202f")
    return f"{value:,}".replace(",", "\u202f")


def lag(value: Lag | None) -> str:
    """``120``, ``≥ 100 ?`` where brokers are missing, ``?`` where it is not known at all."""
    if value is None:
        return UNKNOWN
    return figure(value.known) if value.complete else f"≥ {figure(value.known)} ?"


def permission(perm: int) -> str:
    """The permission of a topic, in words: its bits are 4 read, 2 write and 1 inherit, as templates of topics have."""
    words = [word for bit, word in ((4, "read"), (2, "write"), (1, "inherit")) if perm & bit]
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:]))) or "nothing"


def beginning(body: bytes, most: int) -> bytes:
    """The first bytes of a body; of one that is text, up to the end of a letter."""
    piece = body[:most]
    for cut in range(_LETTER if len(body) > most else 0):
        with suppress(UnicodeDecodeError):
            return piece[: most - cut].decode().encode()
    return piece


def capital(text: str) -> str:
    """A text that begins a line."""
    return text[:1].upper() + text[1:]


def percent(value: float | None) -> str:
    """``63 %``."""
    return UNKNOWN if value is None else f"{value * 100:.0f} %"


def size(value: int | None) -> str:
    """``1.4 GiB``."""
    if value is None:
        return UNKNOWN
    amount, units = float(value), ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while abs(amount) >= 1024 and len(units) > 1:
        amount, units = amount / 1024, units[1:]
    return f"{amount:.0f} {units[0]}" if units[0] == "B" else f"{amount:.1f} {units[0]}"


def moment(value: Moment | None, none: str = "–") -> str:
    """``2026-11-22 17:30:00.020``, in the zone of the machine."""
    return none if value is None else value.iso.replace("T", " ")[:23]


def duration(seconds: float | None) -> str:
    """``3 s``, ``12 min``, ``2.5 h``, ``4.0 d``."""
    if seconds is None:
        return UNKNOWN
    for length, unit, places in ((86400, "d", 1), (3600, "h", 1), (60, "min", 0)):
        if seconds >= length:
            return f"{seconds / length:.{places}f} {unit}"
    return f"{seconds:.0f} s"


def segment(text: str) -> str:
    """A name as a part of an address."""
    return quote(text, safe="")


def place_of(queue: MessageQueue, offset: int) -> str:
    """The address of the page of a message."""
    return f"/messages/{segment(queue.topic)}/at/{segment(queue.broker_name)}/{queue.queue_id}/{offset}"


def rows(part: Table[Result] | list[Result] | None) -> list[Result]:
    """The rows of a part of a page; none where it could not be had."""
    return [] if part is None else part if isinstance(part, list) else part.items


def line(values: Sequence[float | None], width: int = 600, height: int = 80) -> list[str]:
    """The points of an SVG line for each run of known values; what is not known is a gap."""
    known = [each for each in values if each is not None]
    if not known or len(values) < 2:
        return []
    top = max(*known, 1) if len(known) > 1 else max(known[0], 1)
    lines: list[list[str]] = [[]]
    for number, value in enumerate(values):
        if value is None:
            lines.append([])
            continue
        across = width * number / (len(values) - 1)
        lines[-1].append(f"{across:.1f},{height - 2 - (height - 4) * value / top:.1f}")
    return [" ".join(points if len(points) > 1 else points * 2) for points in lines if points]


def highest(values: Sequence[float | None]) -> float | None:
    """The highest known value."""
    return max((each for each in values if each is not None), default=None)


def timeline(steps: Sequence[Step]) -> list[tuple[Step, float, float]]:
    """For each step of a trace where it begins and how long it is, of a width of 500."""
    if not steps:
        return []
    begin = min(each.at.ms for each in steps)
    length = max(max(each.at.ms + each.ms for each in steps) - begin, 1)
    return [(each, 500 * (each.at.ms - begin) / length, max(2.0, 500 * each.ms / length)) for each in steps]
