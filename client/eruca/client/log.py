"""The client's logger: ``logging.getLogger("eruca.client")``, silent unless the application configures logging.

Owns the rule for warnings that repeat: they are logged once a minute.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable

REPEAT_AFTER = 60.0
"""Seconds until a repeated warning is logged again; meanwhile it is logged as DEBUG."""

log = logging.getLogger("eruca.client")
log.addHandler(logging.NullHandler())


class Trouble:
    """One lasting problem, such as an unreachable broker: the last warning and its time."""

    __slots__ = ("_clock", "_logged", "_logged_at")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._logged = ""
        self._logged_at = 0.0

    def warn(self, text: str) -> None:
        """Log a warning, unless the same was logged recently."""
        now = self._clock()
        if text == self._logged and now - self._logged_at < REPEAT_AFTER:
            log.debug("%s", text)
            return
        self._logged, self._logged_at = text, now
        log.warning("%s", text)

    def over(self) -> None:
        """The problem is over: log the next warning at once."""
        self._logged = ""


class Warnings:
    """Lasting problems by subject."""

    def __init__(self) -> None:
        self._troubles: defaultdict[object, Trouble] = defaultdict(Trouble)

    def warn(self, about: object, text: str) -> None:
        """Log a warning about a subject."""
        self._troubles[about].warn(text)

    def forget(self, about: object) -> None:
        """The problem of a subject is over."""
        self._troubles.pop(about, None)
