"""Calls of user functions: coroutine functions in the event loop, other functions in a thread.

Invariant: a function that blocks never blocks the event loop.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from types import FunctionType
from typing import Any

from eruca.client.errors import UsageError


def is_coroutine_function(function: Any) -> bool:
    """Whether a call returns a coroutine; true also for partials and objects with an asynchronous ``__call__``."""
    if type(function) is FunctionType and not function.__dict__:  # without a mark: its code says it
        return bool(function.__code__.co_flags & inspect.CO_COROUTINE)
    while isinstance(function, functools.partial):
        function = function.func
    target = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    return inspect.iscoroutinefunction(target)


def check_callable(function: object, what: str) -> None:
    """Raise UsageError unless ``function``, named ``what`` in the sentence, can be called."""
    if not callable(function):
        raise UsageError(
            f"{what} is of type {type(function).__name__}: a function or a coroutine function is expected."
        )


async def call(function: Any, *args: object) -> Any:
    """The result of ``function(*args)``, of either kind; raises what it raises.

    Raises UsageError if something that it awaits was cancelled, but not the caller.
    """
    try:
        if is_coroutine_function(function):
            return await function(*args)
        result = await asyncio.to_thread(function, *args)
        return await result if inspect.isawaitable(result) else result
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise UsageError(f"The function was cancelled by what it awaited: {error!r}") from error
