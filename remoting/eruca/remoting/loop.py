"""Which event loop runs: uvloop where it is installed, asyncio's own elsewhere; what a daemon does once it is up."""

from __future__ import annotations

import asyncio
import gc
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


def settled() -> None:
    """To be called by a daemon once it is up: what is there now stays.

    A full collection that looked through all of it would hold up everything for long.
    """
    gc.freeze()
