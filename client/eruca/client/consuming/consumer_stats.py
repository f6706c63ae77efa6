"""Consumer statistics by topic: messages pulled and consumed, failures, and times.

Pure; time is an argument, in seconds. Rates cover the last minute and failures the last hour, computed from samples of
growing sums; the current sums count at once (Java's are up to 10 s old). Facts: ConsumerStatsManager and StatsItem in
4.9.7.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import msgspec

from eruca.protocol.bodies import ConsumeStatus

SAMPLE_EVERY = 10.0
SAMPLES_OF_A_MINUTE = 6
HOUR_EVERY = 600.0
SAMPLES_OF_AN_HOUR = 6


class Sums(NamedTuple):
    """Sums at a point in time: messages, calls, and seconds of calls."""

    at: float
    consumed: int
    failed: int
    runs: int
    run_seconds: float
    pulled: int
    pulls: int
    pull_seconds: float


class TopicStats(msgspec.Struct):
    """The sums of one topic since the start."""

    began: float
    consumed: int = 0
    failed: int = 0
    retried: int = 0
    """Messages that were sent back, or put back into their queue, to come again."""
    dead: int = 0
    """Messages that became dead letters."""
    runs: int = 0
    """Calls of the listener."""
    run_seconds: float = 0.0
    pulled: int = 0
    pulls: int = 0
    """Pulls that returned messages."""
    pull_seconds: float = 0.0
    minute: deque[Sums] = msgspec.field(default_factory=lambda: deque(maxlen=SAMPLES_OF_A_MINUTE))
    hour: deque[Sums] = msgspec.field(default_factory=lambda: deque(maxlen=SAMPLES_OF_AN_HOUR))

    def __post_init__(self) -> None:
        self.minute.append(self.sums(self.began))
        self.hour.append(self.minute[0])

    def sums(self, now: float) -> Sums:
        """The sums now."""
        return Sums(
            now,
            self.consumed,
            self.failed,
            self.runs,
            self.run_seconds,
            self.pulled,
            self.pulls,
            self.pull_seconds,
        )

    def sample(self, now: float) -> None:
        """Record the sums if a sample is due; call it every few seconds."""
        if now - self.minute[-1].at >= SAMPLE_EVERY:
            self.minute.append(self.sums(now))
        if now - self.hour[-1].at >= HOUR_EVERY:
            self.hour.append(self.sums(now))

    def status(self, now: float) -> ConsumeStatus:
        """The statistics as brokers and operators get them (307): times in ms, rates in messages per second."""
        sums, then, hour = self.sums(now), self.minute[0], self.hour[0]
        seconds = max(now - then.at, 1.0)
        runs, run_seconds = sums.runs - then.runs, sums.run_seconds - then.run_seconds
        if not runs:
            runs, run_seconds = sums.runs - hour.runs, sums.run_seconds - hour.run_seconds
        return ConsumeStatus(
            consume_failed_msgs=sums.failed - hour.failed,
            consume_failed_tps=(sums.failed - then.failed) / seconds,
            consume_ok_tps=(sums.consumed - then.consumed) / seconds,
            consume_rt=_average_ms(run_seconds, runs),
            pull_rt=_average_ms(sums.pull_seconds - then.pull_seconds, sums.pulls - then.pulls),
            pull_tps=(sums.pulled - then.pulled) / seconds,
        )


def _average_ms(seconds: float, count: int) -> float:
    return seconds * 1000 / count if count else 0.0


class ConsumerStats(dict[str, TopicStats]):
    """The statistics of each topic; those of a new topic are created on access."""

    def __init__(self, now: float) -> None:
        super().__init__()
        self._began = now

    def __missing__(self, topic: str) -> TopicStats:
        stats = self[topic] = TopicStats(self._began)
        return stats

    @property
    def consumed(self) -> int:
        """Messages consumed since the start."""
        return sum(each.consumed for each in self.values())

    @property
    def failed(self) -> int:
        """Messages that a listener failed to consume."""
        return sum(each.failed for each in self.values())

    @property
    def retried(self) -> int:
        """Messages that were to come again."""
        return sum(each.retried for each in self.values())

    @property
    def dead(self) -> int:
        """Messages that became dead letters."""
        return sum(each.dead for each in self.values())

    def sample(self, now: float) -> None:
        """Sample all topics."""
        for each in self.values():
            each.sample(now)
