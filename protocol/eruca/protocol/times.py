"""Points of time as people write them: ms since 1970, RocketMQ's form, ISO 8601, a time of today, so long ago.

Owns the forms. Pure: the current time and the zone are given. Invariant: a time that does not exist in the zone (a day
that is none, an hour that a clock skips), or exists twice, is refused, never guessed.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta, tzinfo

FORMS = "ms since 1970, now, 2026-11-22 17:30:01, 2026-11-22T17:30+01:00, 17:30, yesterday 17:30, -30m or 2h ago"
"""The forms, for a sentence about a text that has none of them."""
_MS = re.compile(r"[+-]?\d{1,18}")
_DAY = r"(?P<day>\d{4}-\d{1,2}-\d{1,2}|today|yesterday)"
_CLOCK = r"(?P<hour>\d{1,2}):(?P<minute>\d{1,2})(?::(?P<second>\d{1,2})(?:[.,:](?P<fraction>\d{1,6}))?)?"
_ZONE = r"(?P<zone>Z|[+-]\d{2}:?\d{2})"
_MOMENT = re.compile(rf"{_DAY}(?:[#T ]\s*{_CLOCK}\s*{_ZONE}?)?|(?:{_CLOCK.replace('?P<', '?P<_')})", re.IGNORECASE)
_AGO = re.compile(r"-\s*(\d{1,9})\s*(ms|s|m|h|d|w)|(\d{1,9})\s*(ms|s|m|h|d|w)\s+ago", re.IGNORECASE)
_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def parse_time(text: str, now: int, zone: tzinfo | None = None) -> int:
    """A point of time in ms since 1970.

    ``now`` is the current time in ms; ``zone`` counts where the text names none (None: this machine's). A plain number
    is ms and may be negative. Raises ValueError with a sentence.
    """
    text = text.strip()
    if text.lower() == "now":
        return now
    if _MS.fullmatch(text):
        return int(text)
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return now - int(ago[1] or ago[3]) * _UNITS[(ago[2] or ago[4]).lower()]
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise ValueError(f"'{text}' is no time: give {FORMS}")
    parts = found.groupdict()
    parts |= {name[1:]: value for name, value in parts.items() if name.startswith("_") and value is not None}
    fraction = int((parts["fraction"] or "0").ljust(6, "0")) if "#" not in text else int(parts["fraction"] or 0) * 1000
    try:
        day = _day(parts["day"] or "today", datetime.fromtimestamp(now / 1000, zone).date())
        clock = (int(parts["hour"] or 0), int(parts["minute"] or 0), int(parts["second"] or 0), fraction)
        local = datetime(day.year, day.month, day.day, *clock, tzinfo=_zone(parts["zone"]) or zone)
    except ValueError as error:
        raise ValueError(f"'{text}' is no time: {error}") from None
    return _ms(_existing(text, local))


def _day(text: str, today: date) -> date:
    if text.lower() == "today":
        return today
    if text.lower() == "yesterday":
        return today - timedelta(days=1)
    year, month, day = map(int, text.split("-"))
    return date(year, month, day)


def _zone(text: str | None) -> tzinfo | None:
    return None if text is None else datetime.strptime(text.upper().replace("Z", "+0000"), "%z").tzinfo


def _existing(text: str, local: datetime) -> datetime:
    first, second = _ms(local.replace(fold=0)), _ms(local.replace(fold=1))
    if first == second:
        return local
    back = datetime.fromtimestamp(first / 1000, local.tzinfo).replace(fold=0)
    if back != local.replace(fold=0):
        raise ValueError(f"'{text}' does not exist: the clocks of this zone skip it; name the zone, such as +01:00")
    raise ValueError(f"'{text}' exists twice: the clocks of this zone are set back; name the zone, such as +01:00")


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
