"""A distribution as counts in buckets, for metrics: cheap enough to be counted where requests are handled.

Owns the counts and the sum. Must not know what is measured, or who reads it. Invariant: adding allocates nothing and
takes no lock; a histogram belongs to one thread.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

OTHER = "_other"
"""The labels of what has no series of its own."""


class Histogram:
    """Counts of values by upper bound, as Prometheus counts them: a value equal to a bound is in that bucket."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """The values of each bucket, not of those below it too; the last one has no bound."""
        self.sum = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    def merge(self, other: Histogram) -> None:
        """Add the values of another histogram with the same bounds."""
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.sum += other.sum

    @property
    def cumulative(self) -> list[tuple[str, float]]:
        """The number of values up to each bound, and of all (``+Inf``)."""
        names = [*map(repr, self.bounds), "+Inf"]
        return list(zip(names, accumulate(self.counts), strict=True))
