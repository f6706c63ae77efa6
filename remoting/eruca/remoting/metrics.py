"""The metrics of a daemon: what there is, and how each is read at a scrape.

Owns the list of families, the labels that all of them carry, and the bound of the series of each. Counts nothing: the
parts of a daemon have plain attributes, which are read when somebody asks. Must not know any format. Invariant: no
family has more series than ``most``; what is beyond it is in the series whose labels are ``_other``.

A part adds a family with one line, before the daemon serves::

    metrics.counter("eruca_refusals_total", "Requests refused by access control.", lambda: guard.refused, "reason")

``read`` returns a number; or, for a family with labels, a mapping from label values to numbers, or pairs of those. A
single label needs no tuple. Instead of a number it returns a ``Histogram`` for a family made by ``histogram``. What
takes long is a coroutine function, which works in slices (``remoting.slices``).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from eruca.remoting.addresses import LAST_PORT, is_host
from eruca.remoting.histogram import OTHER, Histogram
from eruca.remoting.listener import PortKeys, try_port
from eruca.remoting.settings import Finding, setting
from eruca.remoting.slices import sliced

MOST_SERIES = 2000
"""Series of a family, unless the operator wants another number."""
METRICS_KEYS = PortKeys("metricsPort", "metricsBind", " (0: none)")
_LABELS = r"(\s*[A-Za-z_][A-Za-z0-9_]*\s*:[^:,]*(,|$))*"

Value = float | Histogram
Labels = tuple[str, ...]
Row = tuple[Labels, Value]
Rows = Value | Mapping[Any, Any] | Iterable[tuple[Any, Any]]
"""What a read returns; label values are tuples, or texts where there is one label."""
Read = Callable[[], Rows | Awaitable[Rows]]
Merge = Callable[[Iterable[float]], float]


class Kind(StrEnum):
    """The type of a family."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Family(NamedTuple):
    """One metric: its name, type and meaning, its own labels, and how values are joined in ``_other``."""

    name: str
    kind: Kind
    meaning: str
    labels: Labels = ()
    merge: Merge = sum


class _Source(NamedTuple):
    families: tuple[Family, ...]
    read: Callable[[], Any]


class Metrics:
    """The families of one daemon. ``labels`` are those that every series carries."""

    def __init__(self, labels: Mapping[str, str], most: Callable[[], int] = lambda: MOST_SERIES) -> None:
        self.labels = dict(labels)
        self._most = most
        self._sources: list[_Source] = []
        self._names: set[str] = set()
        self._limits: dict[str, tuple[Callable[[], float], Callable[[], float]]] = {}

    @property
    def families(self) -> list[Family]:
        """All families, in the order in which they were added."""
        return [family for source in self._sources for family in source.families]

    def counter(self, name: str, meaning: str, read: Read, *labels: str) -> None:
        """Add a family of numbers that only grow."""
        self.several((Family(name, Kind.COUNTER, meaning, labels),), _only(read))

    def gauge(self, name: str, meaning: str, read: Read, *labels: str, merge: Merge = sum) -> None:
        """Add a family of numbers that rise and fall."""
        self.several((Family(name, Kind.GAUGE, meaning, labels, merge),), _only(read))

    def histogram(self, name: str, meaning: str, read: Read, *labels: str) -> None:
        """Add a family of distributions."""
        self.several((Family(name, Kind.HISTOGRAM, meaning, labels),), _only(read))

    def several(
        self, families: Sequence[Family], read: Callable[[], Sequence[Rows] | Awaitable[Sequence[Rows]]]
    ) -> None:
        """Add families that are found out together: ``read`` returns the rows of each. Raises ValueError for a name
        that is taken."""
        for family in families:
            if family.name in self._names:
                raise ValueError(f"there is a metric {family.name} already")
            self._names.add(family.name)
        self._sources.append(_Source(tuple(families), read))

    def limit(self, name: str, most: Callable[[], float], used: Callable[[], float]) -> None:
        """Add a limit of the daemon, and what is used of it, so that alerts need no constants."""
        if not self._limits:
            self.gauge("eruca_limit", "What there may be; 0 where there is no limit.", lambda: self._of(0), "limit")
            self.gauge("eruca_limit_used", "What there is of what is limited.", lambda: self._of(1), "limit")
        self._limits[name] = most, used

    def _of(self, which: int) -> dict[str, float]:
        return {name: reads[which]() for name, reads in self._limits.items()}

    @property
    def sources(self) -> list[_Source]:
        """What is read at a scrape, one after the other."""
        return list(self._sources)

    async def rows(self, source: _Source) -> list[list[Row]]:
        """The series of each family of a source, within their bound."""
        found = source.read()
        if inspect.isawaitable(found):
            found = await found
        return [await self._bounded(family, rows) for family, rows in zip(source.families, found, strict=True)]

    async def _bounded(self, family: Family, rows: Rows) -> list[Row]:
        if isinstance(rows, float | int | Histogram):
            return [((), rows)]
        kept: list[Row] = []
        rest: list[Value] = []
        most, taken = self._most(), 0
        pairs = rows.items() if isinstance(rows, Mapping) else rows
        async for labels, value in sliced(list(pairs)):
            labels = labels if isinstance(labels, tuple) else (str(labels),)
            if len(labels) != len(family.labels):
                raise ValueError(f"{family.name} has the labels {family.labels}, not {labels}")
            taken += len(value.counts) + 2 if isinstance(value, Histogram) else 1
            if taken <= most:
                kept.append((labels, value))
            else:
                rest.append(value)
        if rest:
            kept.append(((OTHER,) * len(family.labels), _joined(rest, family.merge)))
        return kept


def _only(read: Read) -> Callable[[], Awaitable[tuple[Rows]]]:
    """A read of one family as that of several."""

    async def rows() -> tuple[Rows]:
        found = read()
        return (await found if inspect.isawaitable(found) else found,)

    return rows


def _joined(values: list[Value], merge: Merge) -> Value:
    first = values[0]
    if not isinstance(first, Histogram):
        return merge(value for value in values if not isinstance(value, Histogram))
    whole = Histogram(first.bounds)
    for value in values:
        if isinstance(value, Histogram):
            whole.merge(value)
    return whole


class ExporterType(StrEnum):
    """How metrics leave a daemon in RocketMQ 5; here Prometheus fetches them, or nobody does."""

    DISABLE = "DISABLE"
    OTLP_GRPC = "OTLP_GRPC"
    PROM = "PROM"
    LOG = "LOG"


@dataclass(kw_only=True)
class MetricsSettings:
    """The port of health and metrics, and what the metrics carry; the keys but the first two are RocketMQ 5's."""

    metrics_port: int | None = setting(None, at_least=0, at_most=LAST_PORT)
    """Empty: 5557 of a broker, 5558 of a nameserver, if it is free; 0: none. One that is set must be free."""
    metrics_bind: str = setting("127.0.0.1", valid=is_host, words="an address of this machine, 0.0.0.0 or ::")
    """The address to listen on."""
    metrics_exporter_type: ExporterType = ExporterType.PROM
    """Only PROM is there; any other one switches /metrics off."""
    metrics_label: str = setting("", pattern=_LABELS, words="label:value pairs, joined by commas")
    """Labels that every series carries."""
    metrics_otel_cardinality_limit: int = setting(MOST_SERIES, at_least=1, at_most=50_000, live=True)
    """The most series of a metric; what is beyond is in one with the labels _other."""

    def collisions(self, others: Mapping[int, str]) -> Iterator[Finding]:
        """That the port is another one of the daemon's."""
        if self.metrics_port and self.metrics_port in others:
            yield Finding("metricsPort", f"{self.metrics_port} is {others[self.metrics_port]}, too: set another one")

    def taken(self) -> Iterator[Finding]:
        """Why a port that was chosen cannot be had."""
        fault = try_port(self.metrics_bind, self.metrics_port, METRICS_KEYS) if self.metrics_port else None
        if fault is not None:
            yield Finding(fault.key, f"does not work, the daemon {fault}")

    @property
    def labels(self) -> dict[str, str]:
        """The operator's labels."""
        pairs = [pair.partition(":") for pair in re.split(r"\s*,\s*", self.metrics_label.strip()) if pair]
        return {name.strip(): value.strip() for name, _, value in pairs}

    @property
    def off(self) -> str | None:
        """Why there are no metrics; None where there are."""
        if self.metrics_exporter_type is ExporterType.PROM:
            return None
        return f"metricsExporterType is {self.metrics_exporter_type.name}; with PROM the metrics are here"
