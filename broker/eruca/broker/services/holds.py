"""Long polling: pulls that wait until their queue grows (PullRequestHoldService in 4.9.7).

Owns which pull waits for what, and knows nothing else of pulls: a handler enters here, waits until the hold ends, and
reads again. The store wakes the waiters (``arrived``). Invariants: a hold that has ended, for whatever reason, is no
longer in the table; no hold is longer than ``LONGEST``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Generator, Hashable

LONGEST = 60.0
"""Seconds of the longest hold. A client that vanished leaves its holds behind until they end."""
MOST_OF_ONE = 1024
"""Holds of one connection: a client that shares out queues has one for each of its queues."""
MOST = 200_000
"""Holds in all, so that clients cannot fill the memory."""
SHORT = 256
"""Characters of a subscription that count for nothing below."""
MOST_TEXT_OF_ONE, MOST_TEXT = 1 << 20, 8 << 20
"""Characters of all longer subscriptions, of the holds of one connection and of all holds; their tags take twenty times
as much memory."""
WOKEN_AT_ONCE = 64
"""Holds that end before the event loop runs others; each ends with an answer."""


class Hold:
    """One waiting pull; ``await`` returns when the hold ends."""

    __slots__ = ("_future", "_holds", "_timer", "_until", "codes", "dropped", "key", "owner", "text")

    def __init__(
        self,
        holds: Holds,
        key: tuple[str, int],
        owner: Hashable,
        seconds: float,
        codes: frozenset[int] | None,
        text: int,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.key = key
        self.owner = owner
        self.codes = codes
        self.text = text
        self.dropped = False
        """Whether it has ended because its topic was deleted."""
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


class _Share:
    """What one owner holds: pulls, and the characters of their long subscriptions."""

    __slots__ = ("count", "text")

    def __init__(self) -> None:
        self.count = self.text = 0


_NOTHING = _Share()


class Holds:
    """All held pulls: at most ``most``, and at most ``most_of_one`` of one owner, which is a connection.

    Long subscriptions have bounds of their own: ``most_text``, and ``most_text_of_one``.
    """

    def __init__(
        self,
        most: int = MOST,
        most_of_one: int = MOST_OF_ONE,
        most_text: int = MOST_TEXT,
        most_text_of_one: int = MOST_TEXT_OF_ONE,
    ) -> None:
        self.most, self.most_of_one = most, most_of_one
        self._most_text = most_text
        self._most_text_of_one = most_text_of_one
        self._waiting: dict[tuple[str, int], set[Hold]] = {}
        self._of: dict[Hashable, _Share] = {}
        self._all = _Share()
        self._arrived: deque[Hold] = deque()
        """Holds that end in one of the next turns of the loop."""
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether new holds are refused."""
        return self._closed

    def __len__(self) -> int:
        return self._all.count

    @property
    def most_of_an_owner(self) -> int:
        """The number of holds of the owner who has most."""
        return max((share.count for share in self._of.values()), default=0)

    def full(self, owner: Hashable, text: int = 0) -> bool:
        """Whether there is no room for another hold of this owner, with a subscription of ``text`` characters."""
        own = self._of.get(owner, _NOTHING)
        if self._all.count >= self.most or own.count >= self.most_of_one:
            return True
        return text > SHORT and (self._all.text + text > self._most_text or own.text + text > self._most_text_of_one)

    def enter(
        self,
        topic: str,
        queue_id: int,
        owner: Hashable,
        seconds: float,
        codes: frozenset[int] | None = None,
        text: int = 0,
    ) -> Hold | None:
        """Hold a pull until a message of this queue arrives, ``seconds`` pass (at most LONGEST), or the broker stops.

        ``codes`` are the hashes of the wanted tags, None for any message; ``text`` is the number of characters of the
        subscription in the pull. Returns None if there is no room.
        """
        if self._closed or self.full(owner, text):
            return None
        hold = Hold(self, (topic, queue_id), owner, min(seconds, LONGEST), codes, text if text > SHORT else 0)
        self._waiting.setdefault(hold.key, set()).add(hold)
        for share in (self._all, self._of.setdefault(owner, _Share())):
            share.count += 1
            share.text += hold.text
        return hold

    def forget(self, hold: Hold) -> None:
        """Remove a hold from the table, if it is there."""
        holds = self._waiting.get(hold.key)
        if holds is not None and hold in holds:
            holds.remove(hold)
            own = self._of[hold.owner]
            for share in (self._all, own):
                share.count -= 1
                share.text -= hold.text
            if not own.count:
                del self._of[hold.owner]
            if not holds:
                del self._waiting[hold.key]

    def arrived(self, topic: str, queue_id: int, _end: int, codes: Collection[int]) -> None:
        """Wake the pulls that wait for messages with these tag hashes. The store calls this on each arrival."""
        holds = self._waiting.get((topic, queue_id))
        if holds:
            self._wake([hold for hold in holds if hold.codes is None or not hold.codes.isdisjoint(codes)])

    def drop(self, topic: str) -> None:
        """Wake the pulls that wait for messages of a topic, which was deleted."""
        woken = [hold for (name, _), holds in self._waiting.items() if name == topic for hold in holds]
        for hold in woken:
            hold.dropped = True
        self._wake(woken)

    def end_all(self) -> None:
        """Wake all pulls that wait now."""
        self._wake([hold for holds in self._waiting.values() for hold in holds])

    def _wake(self, woken: list[Hold]) -> None:
        for hold in woken[:WOKEN_AT_ONCE]:
            hold.end()
        if len(woken) > WOKEN_AT_ONCE:
            if not self._arrived:
                asyncio.get_running_loop().call_soon(self._wake_more)
            self._arrived.extend(woken[WOKEN_AT_ONCE:])

    def _wake_more(self) -> None:
        for _ in range(min(WOKEN_AT_ONCE, len(self._arrived))):
            self._arrived.popleft().end()
        if self._arrived:
            asyncio.get_running_loop().call_soon(self._wake_more)

    def close(self) -> None:
        """End all holds and refuse new ones."""
        self._closed = True
        for holds in tuple(self._waiting.values()):
            for hold in tuple(holds):
                hold.end()
