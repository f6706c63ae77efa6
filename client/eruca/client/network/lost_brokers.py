"""Brokers whose connection ended, in a client that listens to events: each is looked for until it is back, or has left.

Owns the pauses between two looks. Without it, a client that calls nobody would learn of a broker's return with its next
heartbeat. Must not know what a connection is for: who owns it connects by ``greet``, and says by ``is_missed`` whether
that is still wanted. Invariant: a broker is looked for by one task at most.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from eruca.protocol.errors import ProtocolError, Refused
from eruca.remoting import RemotingError
from eruca.remoting.shared_tasks import SharedTasks

FIRST_PAUSE: Final = 0.5
"""Seconds, at most, until the first look; each later pause is twice as long, up to ``LONGEST_PAUSE``."""
LONGEST_PAUSE: Final = 5.0


class LostBrokers:
    """Looks for brokers by their addresses; ``greet`` connects to one, ``is_missed`` is asked before each look."""

    def __init__(self, greet: Callable[[str], Awaitable[object]], is_missed: Callable[[str], bool]) -> None:
        self._greet = greet
        self._is_missed = is_missed
        self._looks: SharedTasks[str, None] = SharedTasks()

    def look_for(self, address: str) -> None:
        """The connection to the broker there has ended."""
        self._looks.start(address, partial(self._look, address))

    async def close(self) -> None:
        """Look no more."""
        await self._looks.close()

    async def _look(self, address: str) -> None:
        pause = FIRST_PAUSE
        while self._is_missed(address):
            await asyncio.sleep(random.uniform(pause / 2, pause))  # not all clients at once
            pause = min(pause * 2, LONGEST_PAUSE)
            with contextlib.suppress(Refused, RemotingError, ProtocolError):
                await self._greet(address)
