"""The standard input, as it comes, while the event loop goes on.

A thread of its own reads the descriptor, also a file's or a terminal's, which event loops cannot wait for. It ends with
the process: an interrupt does not wait for a line.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from concurrent.futures import CancelledError, wait
from threading import Thread

_SIZE = 1 << 16
_WAITING = 4
"""Pieces that are read ahead."""
_LOOK = 0.5
"""Seconds between two looks whether the loop has ended: one that ends drops what it was given, without a word."""


async def lines_of(descriptor: int) -> AsyncIterator[list[bytes]]:
    """The lines without their ends, as many at once as are there; a last one without an end counts. Raises OSError."""
    rest = b""
    async for piece in pieces_of(descriptor):
        *lines, rest = (rest + piece).split(b"\n")
        if lines:
            yield [line.removesuffix(b"\r") for line in lines]
    if rest:
        yield [rest]


async def pieces_of(descriptor: int) -> AsyncIterator[bytes]:
    """What is read, as it comes: a terminal gives lines, or keys where it is set so. Raises OSError."""
    loop, pieces = asyncio.get_running_loop(), asyncio.Queue[bytes | OSError](_WAITING)

    def read() -> None:
        piece: bytes | OSError = b"\n"
        while piece and not isinstance(piece, OSError):
            try:
                piece = os.read(descriptor, _SIZE)
            except OSError as error:
                piece = error
            put = pieces.put(piece)
            try:
                taken = asyncio.run_coroutine_threadsafe(put, loop)
                while not taken.done() and not loop.is_closed():
                    wait([taken], timeout=_LOOK)
                taken.result(0)
            except (RuntimeError, CancelledError, TimeoutError):
                return put.close()  # the loop has ended

    Thread(target=read, name="standard input", daemon=True).start()
    while piece := await pieces.get():
        if isinstance(piece, OSError):
            raise piece
        yield piece
