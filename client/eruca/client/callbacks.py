"""Calls of user functions: coroutine functions in the event loop, other functions in a thread.

Invariant: a function that blocks never blocks the event loop.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

from eruca.client.errors import UsageError


def is_coroutine_function(function: Any) -> bool:
    """Whether a call returns a coroutine; true also for partials and objects with an asynchronous ``__call__``."""
    if type(function) is FunctionType and not function.__dict__:  # without a mark: its code says it
        return bool(function.__code__.co_flags & inspect.CO_COROUTINE)
    return inspect.iscoroutinefunction(_called(function))


def check_callable(function: object, what: str, *arguments: str) -> None:
    """Raise UsageError unless ``function``, named ``what`` in the sentence, can be called.

    Where the names of the ``arguments`` are given, it has to take them by position.
    """
    if not callable(function):
        raise UsageError(
            f"{what} is of type {type(function).__name__}: a function or a coroutine function is expected."
        )
    if arguments and not _takes(function, len(arguments)):
        raise UsageError(
            f"{what} is called with {len(arguments)} argument{'s' * (len(arguments) > 1)}, "
            f"({', '.join(arguments)}), which it does not take."
        )


def name_of(function: object) -> str:
    """What its author calls a function, or the class of an object that can be called."""
    function = _without_arguments(function)
    return getattr(function, "__qualname__", type(function).__qualname__)


def check_no_generator(function: object, what: str) -> None:
    """Raise UsageError for a generator function of either kind, named ``what``: a call of it would run nothing."""
    target = _called(function)
    if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
        raise UsageError(
            f"{what} is a generator function, whose code would never run: write `return` in place of `yield`."
        )


def _without_arguments(function: Any) -> Any:
    """The function that partials stand around."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _called(function: Any) -> Any:
    """What a call runs: behind partials, and the ``__call__`` of an object."""
    function = _without_arguments(function)
    return function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004


def _takes(function: Callable[..., object], count: int) -> bool:
    """Whether a function can be called with ``count`` arguments; True for one that does not say what it takes."""
    if type(function) is FunctionType and not function.__dict__:
        code = function.__code__
        most, needed = code.co_argcount, code.co_argcount - len(function.__defaults__ or ())
        if not code.co_kwonlyargcount:
            return needed <= count and (count <= most or bool(code.co_flags & inspect.CO_VARARGS))
    try:
        inspect.signature(function, follow_wrapped=False).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:  # it is written in C
        return True
    return True


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
