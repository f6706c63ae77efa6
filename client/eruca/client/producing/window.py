"""How many sends of one producer are under way: the others wait here, in their order, and nothing of them is sent.

Owns the counts, and who waits. A broker that gets more than it can do in time refuses the rest ("[TIMEOUT_CLEAN_QUEUE]
broker busy"), and memory is not without end: so there is a bound, as backPressureForAsyncSendNum and -Size in Java's
client of RocketMQ 5, where callers are blocked instead. The time of a send begins when it may go. A send is counted
until it has ended, with all its attempts; one that is larger than the bound goes alone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eruca.client.producing.sends import Send

MAX_IN_FLIGHT = 1024
"""Sends under way."""
MAX_IN_FLIGHT_SIZE = 100 * 1024 * 1024
"""Bytes of their bodies (backPressureForAsyncSendSize)."""


class Window:
    """At most ``most`` sends, or ``most_bytes`` bytes, are under way at once."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._count = 0
        self._size = 0
        self._waiting: deque[Send] = deque()
        self._admitting = False
        self._idle: asyncio.Event | None = None

    def enter(self, send: Send) -> None:
        """Let a send begin, at once or when there is room."""
        if self.take(send.size):
            send.attempt()
        else:
            self._waiting.append(send)

    def take(self, size: int, *, waited: bool = False) -> bool:
        """Count one more with a body of so many bytes, if it may begin at once: those that ``waited`` come first."""
        count = self._count
        if count >= self._most or (count and self._size + size > self._most_bytes) or (self._waiting and not waited):
            return False
        self._count = count + 1
        self._size += size
        return True

    def leave(self, size: int, count: int = 1) -> None:
        """Sends, so many, with bodies of so many bytes have ended: others may begin."""
        self._count -= count
        self._size -= size
        if self._waiting and not self._admitting:
            self._admit()
        if self._idle is not None and not self._count:
            self._idle.set()

    def _admit(self) -> None:
        """Let those that wait begin as far as there is room; one that fails at once makes room for the next."""
        waiting = self._waiting
        self._admitting = True
        try:
            while waiting:
                send = waiting[0]
                given_up = send.future.done()
                if not given_up and not self.take(send.size, waited=True):
                    break
                waiting.popleft()
                if not given_up:
                    send.start = send.session.loop.time()
                    send.attempt()
        finally:
            self._admitting = False

    async def quiet(self, timeout: float) -> None:
        """Wait until no send is under way, for ``timeout`` seconds at most."""
        if self._count:
            if self._idle is None or self._idle.is_set():
                self._idle = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._idle.wait()
