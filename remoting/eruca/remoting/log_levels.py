"""From which level on each logger of a daemon is logged, and until when.

Owns the rules in force and their expiry, by the monotonic clock. Must not know how events are written. Thread-safe.
Invariants: of the rules that fit a logger the most specific one counts; a rule whose time is over has no effect from
the next look (``expire``) on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from eruca.remoting.log_settings import LevelRule, level_rules

DEFAULT = logging.INFO
OURS = "eruca"
"""The first name of our loggers; others are those of ``logging``, which filter by themselves."""


class _InForce(NamedTuple):
    rule: LevelRule
    until: float | None


class LogLevels:
    """The levels of one daemon; ``changed`` is called after each change, from whatever thread made it."""

    def __init__(
        self, changed: Callable[[], object] = lambda: None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._changed = changed
        self._monotonic = monotonic
        self._lock = threading.RLock()
        self._rules: tuple[_InForce, ...] = ()
        self._found: dict[str, int] = {}
        self.text = ""
        """The text that was set last."""

    def set(self, text: str) -> None:
        """Replace all rules by those of an allowed text of ``logLevel``; their times begin now."""
        now = self._monotonic()
        self.text = text
        self._put(
            tuple(
                _InForce(rule, now + rule.seconds if rule.seconds is not None else None) for rule in level_rules(text)
            )
        )

    def expire(self) -> list[str]:
        """Drop the rules whose time is over; returns their texts."""
        now = self._monotonic()
        with self._lock:
            over = [each for each in self._rules if each.until is not None and now >= each.until]
            if over:
                self._put(tuple(each for each in self._rules if each not in over))
        return [each.rule.text for each in over]

    def of(self, logger: str) -> int:
        """The level from which on a logger is logged."""
        found = self._found.get(logger)
        if found is None:
            rules = [rule for rule, _ in self._rules if _fits(rule.logger, logger)]
            best = max(rules, key=lambda rule: len(rule.logger), default=None)
            found = self._found[logger] = best.level if best is not None else DEFAULT
        return found

    @property
    def least(self) -> int:
        """No logger has a lower level."""
        return min((each.rule.level for each in self._rules), default=DEFAULT)

    def _put(self, rules: tuple[_InForce, ...]) -> None:
        with self._lock:
            for each in self._rules:
                _tell(each.rule, logging.NOTSET)
            self._rules, self._found = rules, {}
            for each in rules:
                _tell(each.rule, each.rule.level)
        self._changed()


def _fits(prefix: str, logger: str) -> bool:
    return not prefix or logger == prefix or logger.startswith(f"{prefix}.")


def _tell(rule: LevelRule, level: int) -> None:
    """A logger of ``logging`` that a rule names has its level too; unnamed ones begin with WARNING, as ever."""
    if rule.logger and not _fits(OURS, rule.logger):
        logging.getLogger(rule.logger).setLevel(level)
