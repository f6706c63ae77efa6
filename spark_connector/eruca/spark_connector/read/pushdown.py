"""Filters that Spark pushes down: those on queues, offsets, store times and tags limit what is read.

Owns the translation. Makes no request. Spark applies every filter again to the rows, so the translation must only never
leave out a row that passes.
A store time is a bound as exact as ``startingTimestamp``: it needs store times that rise within a queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from eruca.client import MessageQueue

NEVER: Final = 1 << 62


@dataclass(frozen=True)
class Bounds:
    """Numbers from ``low`` up to, and without, ``high``."""

    low: int = 0
    high: int = NEVER

    def also(self, low: int, high: int) -> Bounds:
        """Both bounds."""
        return Bounds(max(self.low, low), min(self.high, high))


@dataclass(frozen=True)
class PushedFilters:
    """What filters leave: names and ids of queues (None: all), offsets, times in ms since 1970, tags (None: all)."""

    topics: frozenset[str] | None = None
    brokers: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    offsets: Bounds = Bounds()
    times: Bounds = Bounds()
    tags: frozenset[str] | None = None

    def has(self, queue: MessageQueue) -> bool:
        """Whether rows of this queue can pass."""
        return (
            (self.topics is None or queue.topic in self.topics)
            and (self.brokers is None or queue.broker_name in self.brokers)
            and (self.queue_ids is None or queue.queue_id in self.queue_ids)
        )

    @property
    def tag_expression(self) -> str | None:
        """The tags as brokers filter by them; None where all pass, or where a tag cannot be said so."""
        if not self.tags or any(not tag or tag.strip() != tag or "|" in tag or tag == "*" for tag in self.tags):
            return None
        return " || ".join(sorted(self.tags))


def read_filters(filters: Iterable[Filter]) -> PushedFilters:
    """What all of these filters leave; those that say nothing useful here are passed over."""
    found: dict[str, Any] = {}
    for each in filters:
        attribute = getattr(each, "attribute", None)
        name = attribute[0] if isinstance(attribute, tuple) and len(attribute) == 1 else None
        if name in _SETS and isinstance(each, EqualTo | In):
            field = _SETS[name]
            values = frozenset(each.value if isinstance(each, In) else (each.value,)) - {None}
            found[field] = values if field not in found else found[field] & values
        elif name in _NUMBERS:
            field, as_number = _NUMBERS[name]
            if (limits := _limits(each, as_number)) is not None:
                found[field] = found.get(field, Bounds()).also(*limits)
    return PushedFilters(**found)


def _limits(condition: Filter, as_number: Callable[[Any], int | None]) -> tuple[int, int] | None:
    """The numbers that can pass, rounded so that none is left out."""
    if isinstance(condition, In):
        numbers = [as_number(value) for value in condition.value if value is not None]
        known = [number for number in numbers if number is not None]
        return (min(known), max(known) + 1) if known and len(known) == len(numbers) else None
    if not isinstance(condition, EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
        return None
    number = as_number(condition.value)
    if number is None:
        return None
    low = 0 if isinstance(condition, LessThan | LessThanOrEqual) else number
    high = NEVER if isinstance(condition, GreaterThan | GreaterThanOrEqual) else number + 1
    return low, high


def _offset(value: Any) -> int | None:
    return value if type(value) is int else None


def _milliseconds(value: Any) -> int | None:
    """A timestamp's ms, rounded down."""
    if not isinstance(value, datetime):
        return None
    passed = (value if value.tzinfo is not None else value.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return (passed.days * 86_400 + passed.seconds) * 1000 + passed.microseconds // 1000


_SETS: Final = {"topic": "topics", "brokerName": "brokers", "queueId": "queue_ids", "tags": "tags"}
_NUMBERS: Final[dict[str, tuple[str, Callable[[Any], int | None]]]] = {
    "queueOffset": ("offsets", _offset),
    "storeTimestamp": ("times", _milliseconds),
}
