"""Times, durations, windows and sizes as people read and write them, and the checks of lists and words.

Times are ms since 1970, or ISO 8601 (UTC where no zone is given), or a duration back from now such as ``2h``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime

from eruca.remoting.clock import now_ms
from eruca.spark_connector.errors import BadOption
from eruca.spark_connector.option_parsers import duration, timestamp


def read_time(given: str | int, at: int) -> int:
    """A time in ms since 1970; ``at`` is the present. Raises BadOption."""
    try:
        return timestamp(str(given), at)
    except ValueError as error:
        raise BadOption(f"The time cannot be read: {error}.") from None


def read_duration(given: str, what: str) -> int:
    """A duration in ms; ``what`` it is. Raises BadOption."""
    try:
        return duration(given)
    except ValueError as error:
        raise BadOption(f'The {what} "{given}" cannot be read: {error}.') from None


def read_window(given: str) -> int:
    """The length of a window in ms. Raises BadOption."""
    length = read_duration(given, "window")
    if length < 1:
        raise BadOption("A window is 1 ms at least.")
    return length


def read_interval(start: str | int | None, end: str | int | None) -> tuple[int, int | None]:
    """Both ends in ms; without a start everything, and None without an end: what is there. Raises BadOption."""
    at = now_ms()
    first = 0 if start is None else read_time(start, at)
    last = None if end is None else read_time(end, at)
    if last is not None and last > at:
        raise BadOption(f"The end {spell_time(last)} lies in the future: what comes until then cannot be read yet.")
    if last is None and first >= at:
        raise BadOption(f"The start {spell_time(first)} lies in the future: nothing was stored since.")
    if last is not None and first >= last:
        raise BadOption(f"The start {spell_time(first)} is not before the end {spell_time(last)}: exchange them.")
    return first, last


def check_lists(**given: object) -> None:
    """Raise BadOption for an argument, given by its name, that is one text: it would count as a list of its letters."""
    for name, value in given.items():
        if isinstance(value, str):
            raise BadOption(f'{name}="{value}" is one text: give a list, {name}=["{value}"].')


def check_words(name: str, given: Iterable[str], allowed: Sequence[str]) -> None:
    """Raise BadOption for a word of the argument ``name`` that is none of those allowed."""
    for word in given:
        if word not in allowed:
            raise BadOption(f'{name} cannot be "{word}": {" or ".join(allowed)} is expected.')


def spell_time(ms: int) -> str:
    """A time for people, UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")


def spell_times(stamps: Collection[int]) -> tuple[dict[int, str], str]:
    """Times for the column of a table, as short as they differ, and what they have in common: a day or a year, UTC."""
    times = {ms: datetime.fromtimestamp(ms / 1000, UTC) for ms in stamps}
    least = next((unit for unit, length in _UNITS.items() if all(ms % length == 0 for ms in stamps)), "milliseconds")
    spelled = {ms: each.isoformat(sep=" ", timespec=least).replace("+00:00", "") for ms, each in times.items()}
    common = len("2026-11-27") if len({each.date() for each in times.values()}) == 1 else len("2026")
    if not times or len({each.year for each in times.values()}) > 1:
        return spelled, "UTC"
    return {ms: each[common + 1 :] for ms, each in spelled.items()}, f"{next(iter(spelled.values()))[:common]} UTC"


_UNITS = {"minutes": 60_000, "seconds": 1000}


def spell_bytes(count: int) -> str:
    """A size for people."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
