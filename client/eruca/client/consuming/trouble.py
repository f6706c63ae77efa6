"""One trouble that lasts, such as a broker that is away: told when it begins and now and then, not at each attempt."""

from __future__ import annotations

from eruca.client.consuming.listeners import clock
from eruca.client.log import log

TELL_AGAIN = 60.0
"""Seconds after which the same is told again; meanwhile it goes to the log as DEBUG."""


class Trouble:
    """What was told last, and when."""

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
