"""The client's logger: ``logging.getLogger("eruca.client")``, silent unless the application configures logging.

Owns the rule for what goes wrong again and again: it is told once a minute.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict

TELL_AGAIN = 60.0
"""Seconds until a warning that repeats is told again; meanwhile it goes to the log as DEBUG."""
clock = time.monotonic

log = logging.getLogger("eruca.client")
log.addHandler(logging.NullHandler())


class Trouble:
    """One trouble that lasts, such as a broker that is away: what was told of it last, and when."""

    __slots__ = ("_told", "_told_at")

    def __init__(self) -> None:
        self._told = ""
        self._told_at = 0.0

    def tell(self, text: str) -> None:
        """A warning, unless it was given a moment ago."""
        now = clock()
        if text == self._told and now - self._told_at < TELL_AGAIN:
            log.debug("%s", text)
            return
        self._told, self._told_at = text, now
        log.warning("%s", text)

    def over(self) -> None:
        """It went well again: the next trouble is told at once."""
        self._told = ""


class Warnings:
    """Troubles by what they are about."""

    def __init__(self) -> None:
        self._troubles: defaultdict[object, Trouble] = defaultdict(Trouble)

    def tell(self, about: object, text: str) -> None:
        """Something is wrong."""
        self._troubles[about].tell(text)

    def forget(self, about: object) -> None:
        """It is well again: the next warning is a new one."""
        self._troubles.pop(about, None)
