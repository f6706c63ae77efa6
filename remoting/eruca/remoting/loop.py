"""Which event loop runs: uvloop where it is installed, asyncio's own elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on the best loop there is."""
    return asyncio.Runner(loop_factory=new_loop).run(main)


def new_loop() -> asyncio.AbstractEventLoop:
    """An event loop of that kind; the caller runs and closes it."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
