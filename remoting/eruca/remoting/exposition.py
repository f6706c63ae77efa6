"""A scrape: the metrics of a daemon as a text for Prometheus, made in slices.

Owns the format, by prometheus-client, which is imported at the first scrape and need not be installed. One scrape is
made at a time. Must not know what is measured. Invariant: a family that cannot be read is left out, counted and logged,
and spoils no other one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import monotonic
from typing import Any

from eruca.remoting.histogram import Histogram
from eruca.remoting.log import log
from eruca.remoting.metrics import Family, Kind, Metrics, Row
from eruca.remoting.slices import batches, next_slice, sliced

MISSING = "install the extra with prometheus-client, which writes this format: pip install 'eruca-client[prometheus]'\n"
_AT_ONCE = 32
"""Series that are written without a look at the time."""


class Unavailable(Exception):
    """There can be no scrape; the message says what to do."""


class Exposition:
    """The scrapes of one daemon's metrics."""

    def __init__(self, metrics: Metrics) -> None:
        self.failed = 0
        """Families that could not be read, in all scrapes."""
        self.seconds = 0.0
        """What the last scrape took, with the work of others meanwhile."""
        self._metrics = metrics
        self._lock = asyncio.Lock()
        metrics.counter(
            "eruca_metrics_failed_total", "Metrics that a scrape left out as they could not be read.", self._failed
        )
        metrics.gauge("eruca_scrape_seconds", "Seconds that the last scrape took.", lambda: self.seconds)

    def _failed(self) -> int:
        return self.failed

    async def scrape(self, accept: str = "") -> tuple[str, bytes]:
        """The content type and the text, as the field Accept wants it. Raises Unavailable."""
        try:
            from prometheus_client.exposition import choose_encoder
        except ImportError:
            raise Unavailable(MISSING) from None
        encode, kind = choose_encoder(accept)
        async with self._lock:
            begun = monotonic()
            text = await self._text(encode)
            self.seconds = monotonic() - begun
        return kind, text + (b"# EOF\n" if "openmetrics" in kind else b"")

    async def _text(self, encode: Callable[[Any], bytes]) -> bytes:
        pieces: list[bytes] = []
        for source in self._metrics.sources:
            try:
                found = await self._metrics.rows(source)
                made = [
                    piece
                    for family, rows in zip(source.families, found, strict=True)
                    for piece in await self._family(encode, family, rows)
                ]
            except Exception:
                self.failed += len(source.families)
                log.exception("metrics_failed", metrics=", ".join(family.name for family in source.families))
            else:
                pieces += made
            await next_slice()
        return b"".join(pieces)

    async def _family(self, encode: Callable[[Any], bytes], family: Family, rows: list[Row]) -> list[bytes]:
        common = {name: value for name, value in self._metrics.labels.items() if name not in family.labels}
        names = [*common, *family.labels]
        values = list(common.values())
        pieces: list[bytes] = []
        async for some in sliced(batches(rows or [], _AT_ONCE) if rows else [()]):
            text = encode(_Scraped(_samples(family, names, values, some)))
            pieces.append(text if not pieces else _without_comments(text))
        pieces[0] = pieces[0].replace(b"# EOF\n", b"")
        return pieces


class _Scraped:
    """What prometheus-client takes for a registry."""

    def __init__(self, family: Any) -> None:
        self._family = family

    def collect(self) -> Iterator[Any]:
        yield self._family


def _samples(family: Family, names: Sequence[str], common: list[str], rows: Iterable[Row]) -> Any:
    """Some series of a family, for prometheus-client."""
    from prometheus_client import core

    if family.kind is Kind.HISTOGRAM:
        histogram = core.HistogramMetricFamily(family.name, family.meaning, labels=names)
        for labels, value in rows:
            assert isinstance(value, Histogram)
            histogram.add_metric([*common, *labels], buckets=value.cumulative, sum_value=value.sum)
        return histogram
    kind = core.CounterMetricFamily if family.kind is Kind.COUNTER else core.GaugeMetricFamily
    numbers = kind(family.name, family.meaning, labels=names)
    for labels, value in rows:
        assert not isinstance(value, Histogram)
        numbers.add_metric([*common, *labels], value)
    return numbers


def _without_comments(text: bytes) -> bytes:
    return b"".join(line for line in text.splitlines(keepends=True) if not line.startswith(b"#"))
