"""Long polling: pulls that wait until their queue grows (PullRequestHoldService in 4.9.7).

Owns which pull waits for what, and knows nothing else of pulls: a handler enters here, waits until the hold ends, and
reads again. The store wakes the waiters (``arrived``). Invariant: a hold that has ended, for whatever reason, is no
longer in the table.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Generator


class Hold:
    """One waiting pull; ``await`` returns when the hold ends."""

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
        """Seconds left of its time; 0 if none are left or the broker stops."""
        return 0.0 if self._holds.closed else max(self._until - asyncio.get_running_loop().time(), 0.0)

    def end(self) -> None:
        """End the hold; a second call has no effect."""
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
    """All held pulls, at most ``limit``, so that clients cannot fill the memory."""

    def __init__(self, limit: int = 200_000) -> None:
        self._limit = limit
        self._waiting: dict[tuple[str, int], set[Hold]] = {}
        self._count = 0
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether new holds are refused."""
        return self._closed

    def __len__(self) -> int:
        return self._count

    def enter(self, topic: str, queue_id: int, seconds: float, codes: frozenset[int] | None = None) -> Hold | None:
        """Hold a pull until a message of this queue arrives, ``seconds`` pass, or the broker stops.

        ``codes`` are the hashes of the wanted tags, None for any message. Returns None if the table is full.
        """
        if self._closed or self._count >= self._limit:
            return None
        hold = Hold(self, (topic, queue_id), seconds, codes)
        self._waiting.setdefault(hold.key, set()).add(hold)
        self._count += 1
        return hold

    def forget(self, hold: Hold) -> None:
        """Remove a hold from the table, if it is there."""
        holds = self._waiting.get(hold.key)
        if holds is not None and hold in holds:
            holds.remove(hold)
            self._count -= 1
            if not holds:
                del self._waiting[hold.key]

    def arrived(self, topic: str, queue_id: int, _end: int, codes: Collection[int]) -> None:
        """Wake the pulls that wait for messages with these tag hashes. The store calls this on each arrival."""
        holds = self._waiting.get((topic, queue_id))
        if holds:
            for hold in tuple(holds):
                if hold.codes is None or not hold.codes.isdisjoint(codes):
                    hold.end()

    def close(self) -> None:
        """End all holds and refuse new ones."""
        self._closed = True
        for holds in tuple(self._waiting.values()):
            for hold in tuple(holds):
                hold.end()
