"""Pulls that wait for their queue to grow (long polling).

Owns who waits for what, and nothing of the pulls themselves: the handler is one straight line that waits here and
then reads again. The log wakes the waiters (``arrived``). Invariant: whoever is woken, times out or is cancelled is
not in the table any more.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class _Waiter:
    future: asyncio.Future[None]
    codes: frozenset[int] | None


class Holds:
    """All held pulls; at most ``limit`` of them, so that clients cannot fill the memory."""

    def __init__(self, limit: int = 200_000) -> None:
        self._limit = limit
        self._waiting: dict[tuple[str, int], set[_Waiter]] = {}
        self._count = 0
        self._closed = False

    def __len__(self) -> int:
        return self._count

    @property
    def open(self) -> bool:
        """Whether one more may wait."""
        return not self._closed and self._count < self._limit

    async def wait(self, topic: str, queue_id: int, seconds: float, codes: frozenset[int] | None = None) -> None:
        """Return when a message of this queue arrived, after ``seconds``, or when the broker stops.

        ``codes`` are the hashes of the tags that are waited for, None for any message.
        """
        if not self.open:
            return
        loop = asyncio.get_running_loop()
        waiter = _Waiter(loop.create_future(), codes)
        key = (topic, queue_id)
        self._waiting.setdefault(key, set()).add(waiter)
        self._count += 1
        timer = loop.call_later(seconds, _wake, waiter.future)
        try:
            await waiter.future
        finally:
            timer.cancel()
            self._count -= 1
            waiters = self._waiting.get(key)
            if waiters is not None:
                waiters.discard(waiter)
                if not waiters:
                    del self._waiting[key]

    def arrived(self, topic: str, queue_id: int, tags_code: int | None = None) -> None:
        """A message can be read; ``tags_code`` is the hash of its tag, None to wake whoever waits."""
        waiters = self._waiting.get((topic, queue_id))
        if waiters:
            for waiter in waiters:
                if tags_code is None or waiter.codes is None or tags_code in waiter.codes:
                    _wake(waiter.future)

    def close(self) -> None:
        """Wake everyone; nobody waits any more."""
        self._closed = True
        for waiters in self._waiting.values():
            for waiter in waiters:
                _wake(waiter.future)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
