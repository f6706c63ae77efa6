"""Pulls that wait for their queue to grow (long polling).

Owns who waits for what, and nothing of the pulls themselves: a handler enters here, waits for the hold to end, and
then reads again. The log wakes the waiters (``arrived``). Invariant: a hold that has ended, however it did, is not in
the table any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Generator


class Hold:
    """One waiting pull; awaiting it returns when it ends."""

    __slots__ = ("_future", "_holds", "_timer", "_until", "codes", "key")

    def __init__(self, holds: Holds, key: tuple[str, int], seconds: float, codes: frozenset[int] | None) -> None:
        loop = asyncio.get_running_loop()
        self.key = key
        self.codes = codes
        self._holds = holds
        self._future: asyncio.Future[None] = loop.create_future()
        self._timer = loop.call_later(seconds, self.end)
        self._until = loop.time() + seconds

    @property
    def rest(self) -> float:
        """Seconds that are left of its time, 0 where there are none or the broker stops."""
        return 0.0 if self._holds.closed else max(self._until - asyncio.get_running_loop().time(), 0.0)

    def end(self) -> None:
        """Wake who waits; again is harmless."""
        self._timer.cancel()
        self._holds.forget(self)
        if not self._future.done():
            self._future.set_result(None)

    def __await__(self) -> Generator[None, None, None]:
        try:
            yield from self._future
        finally:
            self.end()


class Holds:
    """All held pulls; at most ``limit`` of them, so that clients cannot fill the memory."""

    def __init__(self, limit: int = 200_000) -> None:
        self._limit = limit
        self._waiting: dict[tuple[str, int], set[Hold]] = {}
        self._count = 0
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether nobody may wait any more."""
        return self._closed

    def __len__(self) -> int:
        return self._count

    def enter(self, topic: str, queue_id: int, seconds: float, codes: frozenset[int] | None = None) -> Hold | None:
        """Wait from now on for a message of this queue, ``seconds``, or the broker's stop, whatever comes first.

        ``codes`` are the hashes of the tags that are waited for, None for any message. None where no more may wait.
        """
        if self._closed or self._count >= self._limit:
            return None
        hold = Hold(self, (topic, queue_id), seconds, codes)
        self._waiting.setdefault(hold.key, set()).add(hold)
        self._count += 1
        return hold

    def forget(self, hold: Hold) -> None:
        """Take a hold out of the table, if it is in there."""
        holds = self._waiting.get(hold.key)
        if holds is not None and hold in holds:
            holds.remove(hold)
            self._count -= 1
            if not holds:
                del self._waiting[hold.key]

    def arrived(self, topic: str, queue_id: int, _end: int, codes: Collection[int]) -> None:
        """Messages with tags of these hashes can be read; what the store calls on each arrival."""
        holds = self._waiting.get((topic, queue_id))
        if holds:
            for hold in tuple(holds):
                if hold.codes is None or not hold.codes.isdisjoint(codes):
                    hold.end()

    def close(self) -> None:
        """Wake everyone; nobody waits any more."""
        self._closed = True
        for holds in tuple(self._waiting.values()):
            for hold in tuple(holds):
                hold.end()
