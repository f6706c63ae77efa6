"""How long the event loop of a test works without a break, in CPU time of its thread: other programs do not count."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from time import thread_time

from tests.support.pace import slowness


class Turns:
    """The longest turn so far, in seconds."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.count = 0

    async def run(self) -> None:
        last = thread_time()
        while True:
            await asyncio.sleep(0)
            now = thread_time()
            self.longest = max(self.longest, now - last)
            self.count += 1
            last = now


@asynccontextmanager
async def turns_of_the_loop() -> AsyncIterator[Turns]:
    """Watches the loop meanwhile. What is there already is no matter of the garbage collector's, as in a daemon."""
    gc.collect()
    gc.freeze()
    turns = Turns()
    task = asyncio.create_task(turns.run())
    try:
        await asyncio.sleep(0)
        yield turns
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        gc.unfreeze()


async def turns_during(work: Callable[[], Awaitable[object]], within: float) -> Turns:
    """The turns while ``work`` is done: again, up to five times, while a turn took longer than ``within`` seconds.

    The seconds are those of a core of the usual pace. A shared machine may also take the core away within a turn and
    count that as the thread's. What the product does too long it does so each time.
    """
    for _ in range(5):
        before = slowness()
        async with turns_of_the_loop() as turns:
            await work()
        turns.longest /= (before + slowness()) / 2
        if turns.longest < within:
            break
    return turns
