"""Waiters by offset: futures that end when the log is safe up to an offset, each with a deadline.

Used for the disk (GroupCommitService in RocketMQ) and for slaves (GroupTransferService). Owns the futures and one
timer. Knows the running event loop, and neither disk nor slaves.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import NamedTuple

from eruca.broker.store.results import Durability


class _Waiter(NamedTuple):
    end_offset: int
    deadline: float
    future: asyncio.Future[Durability]


class OffsetWaiters:
    """Futures that end when an offset is reached, or with ``expired`` at their deadline."""

    def __init__(self, expired: Durability) -> None:
        self._expired = expired
        self._waiting: list[_Waiter] = []
        self._timer: asyncio.TimerHandle | None = None

    def __bool__(self) -> bool:
        """Whether a future is waiting."""
        return bool(self._waiting)

    def add(self, end_offset: int, timeout: float) -> asyncio.Future[Durability]:
        """A future that ends when ``end_offset`` is released; with ``expired`` after ``timeout`` seconds."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Durability] = loop.create_future()
        self._waiting.append(_Waiter(end_offset, loop.time() + timeout, future))
        if self._timer is None:
            self._timer = loop.call_later(timeout, self._expire, loop)
        return future

    def refused(self) -> asyncio.Future[Durability]:
        """A future that has ended with ``expired``: there is nothing to wait for."""
        future: asyncio.Future[Durability] = asyncio.get_running_loop().create_future()
        future.set_result(self._expired)
        return future

    def release(self, end_offset: float, result: Durability) -> None:
        """End the futures of offsets up to ``end_offset``."""
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if waiter.future.done():
                continue
            if waiter.end_offset <= end_offset:
                waiter.future.set_result(result)
            else:
                self._waiting.append(waiter)
        if not self._waiting and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def release_all(self, result: Durability) -> None:
        """End all futures."""
        self.release(inf, result)

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        self._timer = None
        for waiter in self._waiting:
            if waiter.deadline <= now and not waiter.future.done():
                waiter.future.set_result(self._expired)
        self._waiting = [waiter for waiter in self._waiting if not waiter.future.done()]
        if self._waiting:
            self._timer = loop.call_later(max(self._waiting[0].deadline - now, 0.01), self._expire, loop)
