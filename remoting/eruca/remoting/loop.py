"""The event loop: uvloop if it is installed, else asyncio's own; forks; the freeze of a started daemon."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any, TypeVar

from eruca.remoting.operating_system import after_fork_in_child

T = TypeVar("T")

_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


after_fork_in_child(_count_fork)


def fork_count() -> int:
    """The number of forks between the first process and this one, for objects that belong to one process."""
    return _forks


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on the best available loop."""
    return asyncio.Runner(loop_factory=new_loop).run(main)


def new_loop() -> asyncio.AbstractEventLoop:
    """An event loop of that kind; the caller runs and closes it."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def settled() -> None:
    """Exclude all present objects from garbage collection. A daemon calls it once it has started.

    A full collection over all of them would block the loop for long.
    """
    gc.freeze()
