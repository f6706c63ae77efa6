"""The sends of one turn of the event loop, and those that wait until fewer are under way.

Owns the order in which sends leave, and the back-pressure: a broker that gets more than it can do in time refuses the
rest ("[TIMEOUT_CLEAN_QUEUE]broker busy"), and memory is finite. So the number and the bytes of the sends under way are
bounded, as by backPressureForAsyncSendNum and -Size in Java's client of RocketMQ 5, where callers are blocked instead.
The timeout of a send begins when it leaves the accumulator. A send is counted until it has ended, with all its
attempts; one that is larger than the bound goes alone. Kafka's word for this is RecordAccumulator.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable

from eruca.client.producing.send import Send

MAX_IN_FLIGHT = 1024
"""Sends under way."""
MAX_IN_FLIGHT_SIZE = 100 * 1024 * 1024
"""Bytes of their bodies (backPressureForAsyncSendSize)."""


class Accumulator:
    """Gathers sends and hands them to ``drain`` at the end of each turn of the loop.

    At most ``max_count`` sends, or ``max_size`` bytes, are under way at once; the others wait in their order.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        drain: Callable[[list[Send]], None],
        max_count: int = MAX_IN_FLIGHT,
        max_size: int = MAX_IN_FLIGHT_SIZE,
    ) -> None:
        self._loop = loop
        self._drain = drain
        self._max_count = max_count
        self._max_size = max_size
        self._count = 0
        self._size = 0
        self._waiting: deque[Send] = deque()
        self._pending: list[Send] = []
        self._idle: asyncio.Event | None = None

    def __len__(self) -> int:
        """Number of sends that were appended and have not ended."""
        return self._count + len(self._waiting)

    def not_begun(self) -> list[Send]:
        """The sends that leave at the end of this turn, and those that wait for their own."""
        return [*self._pending, *self._waiting]

    def append(self, send: Send) -> None:
        """A send begins: at the end of this turn, or when there is room for it."""
        count, size = self._count, len(send.body)
        if count >= self._max_count or (count and self._size + size > self._max_size) or self._waiting:
            self._waiting.append(send)
            return
        self._count = count + 1
        self._size += size
        send.size = size
        if not self._pending:
            self._loop.call_soon(self._end_turn)
        self._pending.append(send)

    def reenqueue(self, send: Send) -> None:
        """Put a send that is counted already, or is not to be counted, among those of this turn."""
        if not self._pending:
            self._loop.call_soon(self._end_turn)
        self._pending.append(send)

    def let_go(self, sends: list[Send]) -> None:
        """Have sends that waited leave in this turn, before those that were started after them."""
        if not self._pending:
            self._loop.call_soon(self._end_turn)
        self._pending[:0] = sends

    def hold(self, send: Send) -> None:
        """A send begins whose body is being compressed; it leaves after ``admit``, and those that follow after it."""
        self._waiting.append(send)

    def take_pending(self) -> list[Send]:
        """The sends that leave in this turn, which the caller takes over."""
        pending, self._pending = self._pending, []
        return pending

    def ended(self, size: int, count: int = 1) -> None:
        """``count`` sends with ``size`` bytes have ended: others may begin."""
        self._count -= count
        self._size -= size
        if self._waiting:
            self.admit()
        elif self._idle is not None and not self._count:
            self._idle.set()

    def admit(self) -> None:
        """Let sends that wait begin as far as there is room, and their bodies are compressed."""
        waiting = self._waiting
        while waiting:
            send = waiting[0]
            if send.future.done():  # its caller has cancelled it
                waiting.popleft()
                continue
            if send.packing:
                break
            count, size = self._count, len(send.body)
            if count >= self._max_count or (count and self._size + size > self._max_size):
                break
            waiting.popleft()
            self._count = count + 1
            self._size += size
            send.size = size
            self.reenqueue(send)
        if self._idle is not None and not self._count and not waiting:
            self._idle.set()

    def _end_turn(self) -> None:
        pending, self._pending = self._pending, []
        if pending:
            self._drain(pending)

    async def wait_idle(self, timeout: float) -> None:
        """Let the sends of this turn leave, and wait until none is under way, for ``timeout`` seconds at most."""
        self._end_turn()
        if self._count or self._waiting:
            if self._idle is None or self._idle.is_set():
                self._idle = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._idle.wait()
