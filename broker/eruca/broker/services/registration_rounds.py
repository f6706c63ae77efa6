"""The registrations at one nameserver: one after the other, and what each has to carry.

Owns which topics a nameserver may lack, and who waits for the next answer. Why it must be known: a nameserver passes
over the topics of a registration whose data version it has, so all topics that have changed since the version that it
answered last go together (4.9.7, RouteInfoManager.registerBroker). Those alone are enough only over the connection of
that answer, since a nameserver forgets a broker with its connection; where anything is in doubt, the whole table goes.
Must not know the request. Invariant: what is not carried was carried by a registration that was answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

MOST_ALONE = 1000
"""Topics that have changed, beyond which the whole table is registered."""


class Rounds:
    """The registrations at one nameserver; one is under way at a time."""

    def __init__(self) -> None:
        self.due = asyncio.Event()
        """Set when the next registration shall not wait for its period."""
        self._known: object | None = None
        """The connection over which the nameserver got to know all topics but those that changed; None in doubt."""
        self._changed: dict[str, None] = {}
        self._waiting: list[asyncio.Future[None]] = []
        self._rests = False

    @property
    def in_doubt(self) -> bool:
        """Whether the next registration must carry the whole table."""
        return self._known is None

    # ------------------------------------------------------------------ what changes

    def changed(self, topic: str) -> None:
        """Note that the nameserver does not have this topic as it is now."""
        if self._known is not None:
            self._changed[topic] = None
            if len(self._changed) > MOST_ALONE:
                self.doubt()

    def doubt(self) -> None:
        """Let the next registration carry the whole table."""
        self._known = None
        self._changed.clear()

    # ------------------------------------------------------------------ a registration

    def begin(self) -> list[asyncio.Future[None]]:
        """Begin a registration; who waits for it."""
        self.due.clear()
        waiting, self._waiting = self._waiting, []
        return waiting

    def carried(self, connection: object) -> list[str] | None:
        """The topics of a registration that leaves now over this connection; None for the whole table.

        Call ``doubt`` afterwards if the nameserver has not taken it, or may not have.
        """
        carried = [*self._changed] if self._known is connection else None
        self._known, self._changed = connection, {}
        return carried

    # ------------------------------------------------------------------ those who wait

    def over(self) -> asyncio.Future[None]:
        """Let a registration begin soon; the future ends when it is answered or has failed."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._rests:
            waiter.set_result(None)
        else:
            self._waiting.append(waiter)
            self.due.set()
        return waiter

    async def rest(self, seconds: float) -> None:
        """Register nothing for so long; nobody waits meanwhile."""
        self._rests = True
        try:
            release(self.begin())
            await asyncio.sleep(seconds)
        finally:
            self._rests = False

    def end(self) -> None:
        """Register no more; nobody waits any longer."""
        self._rests = True
        release(self.begin())


def release(waiting: Iterable[asyncio.Future[None]]) -> None:
    """Tell those who waited for a registration that it is over."""
    for waiter in waiting:
        if not waiter.done():
            waiter.set_result(None)
