"""What access control has refused: counted by reason for the metrics, and reported in the log.

Owns the counts and how often there is a line: the first refusal of a minute for a reason and an address. Must not know
why something is refused. A refused change is only counted here: its line is ``remoting.audit``'s. Invariant: no secret
is part of a line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import structlog

from eruca.remoting.clock import monotonic_ms

REPORTED_FOR = 60_000
"""Ms after a line about a reason and an address until there is another."""
MOST_REPORTED = 10_000
"""Reasons and addresses that are remembered for that."""

log = structlog.get_logger("eruca.access.audit")


class Tally:
    """The refusals of one daemon; ``refused`` has their number by reason."""

    def __init__(self, monotonic: Callable[[], int] = monotonic_ms) -> None:
        self.refused: Counter[str] = Counter()
        self._monotonic = monotonic
        self._reported: dict[tuple[str, str], tuple[int, int]] = {}
        """By reason and address: until when there is no line, and how many there would have been."""

    def count(self, reason: str) -> None:
        """Count a refusal of which something else says a line."""
        self.refused[reason] += 1

    def add(self, reason: str, address: str, **what: object) -> None:
        """Count a refusal of a peer at an address without its port; ``what`` is for the line, but for empty texts."""
        self.count(reason)
        now, place = self._monotonic(), (reason, address)
        until, more = self._reported.get(place, (0, 0))
        if now < until:
            self._reported[place] = until, more + 1
            return
        if len(self._reported) >= MOST_REPORTED:
            self._reported.clear()
        self._reported[place] = now + REPORTED_FOR, 0
        told = {name: value for name, value in what.items() if value != ""}
        log.warning("access_refused", reason=reason, **told, more=more)
