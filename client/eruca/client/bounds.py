"""Timeouts of calls: ``timeout=`` of the methods that ask brokers.

Owns the rule: a timeout covers the whole call, however many requests it makes; each request may take what is left of it
instead of its own default. Without a timeout the defaults apply. Tasks that outlive the call are not bounded: they are
created with the context that ``unbounded`` returns.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, ParamSpec, TypeVar

from eruca.client.config import check_positive
from eruca.client.errors import CallTimeout

P = ParamSpec("P")
R = TypeVar("R")
_LEAST = 0.001
"""Seconds that a request gets at least."""


_end: ContextVar[float | None] = ContextVar("end", default=None)
"""When the current call must end, by the loop's time."""


@contextlib.asynccontextmanager
async def within(timeout: float, what: str) -> AsyncIterator[None]:
    """Raise CallTimeout unless the block, named ``what``, ends within ``timeout`` seconds. Raises BadConfig."""
    check_positive(timeout=timeout)
    end = asyncio.get_running_loop().time() + timeout
    token = _end.set(end)
    try:
        async with asyncio.timeout_at(end):
            yield
    except CallTimeout:
        raise
    except TimeoutError:
        raise CallTimeout(f"{what} was not done within its timeout={timeout} seconds") from None
    finally:
        _end.reset(token)


def left(default: float) -> float:
    """Seconds that a request may take: what the call has left, or the default where it has no timeout."""
    end = _end.get()
    return default if end is None else max(end - asyncio.get_running_loop().time(), _LEAST)


def unbounded() -> Context | None:
    """The context for a task that outlives the call under way; None, which is a task's default, outside of one."""
    if _end.get() is None:
        return None
    context = copy_context()
    context.run(_end.set, None)
    return context


def bounded(call: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """For a coroutine function with a keyword ``timeout``: seconds until it raises CallTimeout, None for no end."""

    @functools.wraps(call)
    async def limited(*args: P.args, **kwargs: P.kwargs) -> R:
        timeout: Any = kwargs.get("timeout")
        if timeout is None:
            return await call(*args, **kwargs)
        async with within(timeout, call.__name__):
            return await call(*args, **kwargs)

    return limited
