"""Work that a broker repeats as long as it runs, most of it saves: a disk that fails now is tried again.

Owns the pause and what is said of failures. Must not know the work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from eruca.remoting.log_repeats import Repeats

log = structlog.get_logger("eruca.broker")


async def repeated(seconds: float, work: Callable[[], Awaitable[None]]) -> None:
    """Do ``work`` after each pause, until cancelled."""
    repeats = Repeats()
    while True:
        await asyncio.sleep(seconds)
        try:
            await work()
        except OSError as error:
            again = repeats.failed(error.errno)
            if again is not None:
                log.error("state_not_saved", error=str(error), **again)
        else:
            repeats.forget()
