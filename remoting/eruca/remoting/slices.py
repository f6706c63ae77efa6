"""Long work of handlers: on the event loop in slices of a millisecond, or in a thread.

Owns whose slice comes next: in each turn of the loop at most one handler has one, however many work at the same time.
So others wait for a millisecond, and not for the end of the work. What cannot be cut is done in a thread, one work at a
time. Must not know what the work is.

    async for queue_id in sliced(range(queues)):
        ...
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from time import monotonic
from typing import TypeVar

from eruca.protocol import fastjson
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import Refused

T = TypeVar("T")

SLICE = 0.001
"""Seconds."""
MOST_FOR_THREAD = 16
"""Works that wait for the thread, each with its request in memory."""
_SWITCH = 0.0005
"""Seconds until a thread must leave the interpreter to another one; usually 5 ms."""
_PIECE = 64 << 10
"""Bytes of a piece of a body, at least."""


class _Turns:
    """Those who wait for a slice, in order, and those who wait for the thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.in_thread = asyncio.Lock()
        self.for_thread = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def wait(self) -> asyncio.Future[None]:
        turn = self.loop.create_future()
        if not self._waiting:
            self.loop.call_soon(self._next)
        self._waiting.append(turn)
        return turn

    def _next(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # else its handler was cancelled
                turn.set_result(None)
                break
        if self._waiting:
            self.loop.call_soon(self._next)


class _ShortTurns:
    """Short turns of the process's threads, while any loop has work in one.

    A loop waits for the interpreter at each event, every time for as long as a switch takes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._usual = 0.0

    def __enter__(self) -> None:
        with self._lock:
            if not self._users:
                self._usual = sys.getswitchinterval()
                sys.setswitchinterval(_SWITCH)
            self._users += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                sys.setswitchinterval(self._usual)


_short_turns = _ShortTurns()
_of_thread = threading.local()


def _turns() -> _Turns:
    loop = asyncio.get_running_loop()
    turns: _Turns | None = getattr(_of_thread, "turns", None)
    if turns is None or turns.loop is not loop:
        turns = _of_thread.turns = _Turns(loop)
    return turns


def next_slice() -> asyncio.Future[None]:
    """Wait for the next slice of the running loop."""
    return _turns().wait()


async def in_thread(work: Callable[[], T]) -> T:
    """Do long work that holds the interpreter, in a thread. Raises Refused if too much waits for it."""
    turns = _turns()
    if turns.for_thread >= MOST_FOR_THREAD:
        raise Refused(ResponseCode.SYSTEM_BUSY, f"{MOST_FOR_THREAD} requests that take long are waiting already")
    turns.for_thread += 1
    try:
        async with turns.in_thread:
            with _short_turns:
                return await asyncio.to_thread(work)
    finally:
        turns.for_thread -= 1


async def sliced(items: Iterable[T]) -> AsyncIterator[T]:
    """The items; when a slice is over, the next one comes with the next slice.

    What the items are taken from must not change meanwhile: give a copy, or a range.
    """
    until = monotonic() + SLICE
    for item in items:
        yield item
        if monotonic() > until:
            await next_slice()
            until = monotonic() + SLICE


def batches(items: Sequence[T], size: int = 64) -> Iterable[Sequence[T]]:
    """The items, ``size`` at a time, for work that is cheaper for many at once."""
    return (items[at : at + size] for at in range(0, len(items), size))


async def encoded(value: object) -> list[bytes]:
    """The COMPACT text of a body, made in slices; in pieces, as a ``Reply`` takes them.

    Its tables may change meanwhile: the text has each of their entries as it was at some time of the work.
    """
    pieces: list[bytes] = []
    texts: list[str] = []
    size = 0
    async for text in sliced(fastjson.pieces(value)):
        texts.append(text)
        size += len(text)
        if size >= _PIECE:
            pieces.append("".join(texts).encode())
            texts.clear()
            size = 0
    pieces.append("".join(texts).encode())
    return pieces
