"""The end of an application by a signal: the first SIGTERM or Ctrl-C asks for it, a second one ends at once."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Iterable

from eruca.client.errors import UsageError


@contextlib.asynccontextmanager
async def until_signal() -> AsyncIterator[asyncio.Event]:
    """An event that the first SIGTERM or SIGINT sets; the next one has its usual effect."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    numbers = (signal.SIGTERM, signal.SIGINT)

    def end() -> None:
        ended.set()
        _leave(loop, numbers)

    try:
        for number in numbers:
            loop.add_signal_handler(number, end)
    except NotImplementedError:  # Windows: Ctrl-C cancels the runner's task instead
        pass
    except (RuntimeError, ValueError):
        raise UsageError("run() was called outside the main thread: use `async with app` there.") from None
    try:
        yield ended
    finally:
        if not ended.is_set():
            _leave(loop, numbers)


def _leave(loop: asyncio.AbstractEventLoop, numbers: Iterable[signal.Signals]) -> None:
    """Let signals have their usual effect again."""
    for number in numbers:
        with contextlib.suppress(NotImplementedError):
            loop.remove_signal_handler(number)
