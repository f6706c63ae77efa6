"""The client's logger: ``logging.getLogger("eruca.client")``, silent unless the application configures logging.

Owns the rule for what goes wrong again and again: it is told once a minute.
"""

from __future__ import annotations

import logging
import time

TELL_AGAIN = 60.0
"""Seconds until a warning that repeats is told again."""

log = logging.getLogger("eruca.client")
log.addHandler(logging.NullHandler())


class Warnings:
    """Warnings by what they are about: the same one is told again only after a while, another one at once."""

    def __init__(self) -> None:
        self._told: dict[object, tuple[str, float]] = {}

    def tell(self, about: object, text: str) -> None:
        """Something is wrong."""
        last, at = self._told.get(about, ("", 0.0))
        if text != last or time.monotonic() - at >= TELL_AGAIN:
            self._told[about] = text, time.monotonic()
            log.warning("%s", text)

    def forget(self, about: object) -> None:
        """It is well again: the next warning is a new one."""
        self._told.pop(about, None)
