"""Room for parts of the master's log and tables that wait for the driver: a connection that fills it reads no more.

Owns the count, and what ends when there is room again. Must not know what waits, nor who brought it.
"""

from __future__ import annotations

import asyncio
from typing import Final

ROOM: Final = 64
"""Parts that may wait."""


class FrameRoom:
    """``enter`` for each part that waits, ``leave`` for each that is taken out."""

    def __init__(self) -> None:
        self._waiting = 0
        self._full: asyncio.Future[None] | None = None

    def enter(self) -> asyncio.Future[None] | None:
        """One more waits; returns what ends when there is room for the next one, None where there is."""
        self._waiting += 1
        if self._waiting < ROOM:
            return None
        if self._full is None:
            self._full = asyncio.get_running_loop().create_future()
        return self._full

    def leave(self) -> None:
        """One waits no more."""
        self._waiting -= 1
        if self._full is not None and self._waiting < ROOM:
            full, self._full = self._full, None
            if not full.done():
                full.set_result(None)
