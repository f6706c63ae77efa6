"""The client's logger: ``logging.getLogger("eruca.client")``.

It has no handler of its own. So Python's default counts until the application configures logging: warnings and errors,
such as that of a listener that raised, go to standard error. Owns the rule for warnings that repeat: they are logged
once a minute.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from eruca.protocol.queues import MessageQueue

REPEAT_AFTER = 60.0
"""Seconds until a repeated warning is logged again; meanwhile it is logged as DEBUG."""

log = logging.getLogger("eruca.client")


class Trouble:
    """One lasting problem, such as an unreachable broker: the last warning and its time."""

    __slots__ = ("_began", "_clock", "_logged", "_logged_at")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._logged = ""
        self._logged_at = 0.0
        self._began: datetime | None = None

    def warn(self, text: str, **fields: object) -> datetime | None:
        """Log a warning, unless the same was logged recently; ``fields`` go beside it (``extra`` of logging).

        Returns when the problem began; None for what was logged recently.
        """
        now = self._clock()
        began = self._began = self._began or datetime.now(UTC)
        if text == self._logged and now - self._logged_at < REPEAT_AFTER:
            log.debug("%s", text, extra=fields)
            return None
        self._logged, self._logged_at = text, now
        log.warning("%s", text, extra=fields)
        return began

    def over(self) -> None:
        """The problem is over: log the next warning at once."""
        self._logged = ""
        self._began = None


class Rarely:
    """Warnings that differ in their texts: one a minute is logged, with the number of those left out."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._logged_at: float | None = None
        self._left_out = 0

    def warn(self, text: str) -> None:
        """Log a warning, unless another one was logged recently."""
        now = self._clock()
        if self._logged_at is not None and now - self._logged_at < REPEAT_AFTER:
            self._left_out += 1
            log.debug("%s", text)
            return
        more = f" ({self._left_out} more since the last such warning)" if self._left_out else ""
        self._logged_at, self._left_out = now, 0
        log.warning("%s%s", text, more)


class Warnings:
    """Lasting problems by subject."""

    def __init__(self) -> None:
        self._troubles: defaultdict[object, Trouble] = defaultdict(Trouble)

    def warn(self, about: object, text: str, **fields: object) -> datetime | None:
        """Log a warning about a subject; returns as of ``Trouble``."""
        return self._troubles[about].warn(text, **fields)

    def forget(self, about: object) -> None:
        """The problem of a subject is over."""
        self._troubles.pop(about, None)


def often(count: int) -> str:
    """A number of times in words."""
    return "once" if count == 1 else f"{count} times"


def ranges(queues: Iterable[MessageQueue]) -> str:
    """Queues of one topic in few words: ``broker-a 0-7, broker-b 0, 2-3``; ``nothing`` for none."""
    by_broker: defaultdict[str, list[int]] = defaultdict(list)
    for queue in sorted(queues):
        by_broker[queue.broker_name].append(queue.queue_id)
    return ", ".join(f"{broker} {_runs(numbers)}" for broker, numbers in by_broker.items()) or "nothing"


def by_topic(queues: Iterable[MessageQueue]) -> str:
    """Queues of any topics in few words: ``Orders at broker-a 0-7; Bills at broker-b 0``."""
    topics: defaultdict[str, list[MessageQueue]] = defaultdict(list)
    for queue in queues:
        topics[queue.topic].append(queue)
    return "; ".join(f"{topic} at {ranges(each)}" for topic, each in sorted(topics.items()))


def _runs(numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{first}-{last}" if last > first else str(first) for first, last in runs)
