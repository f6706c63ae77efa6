"""Middleware: coroutine functions around a listener, which may change what it gets and what becomes of it.

Owns how they are nested, and in which task and thread each part runs. ``await call_next(message)`` calls the next
middleware, and at last the listener, and returns its outcome, which is checked: None, or one of the classes that a
listener may return. What a listener raises is raised there. A middleware may return another outcome, raise, call
``call_next`` again or not at all, and give it another argument, which is what the listener gets then. Knows nothing of
queues, offsets and retries. Invariants: the first of a list is the outermost; a middleware runs in the event loop, the
listener where it would run without (a plain function in its thread, in the context of the middleware that called it);
calls of ``call_next`` for one message never run side by side in two threads; without middleware nothing here runs.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
from collections.abc import Awaitable, Callable, Iterable
from contextvars import ContextVar
from typing import Any, Protocol, runtime_checkable

from eruca.client import callbacks
from eruca.client.errors import UsageError
from eruca.client.outcomes import Listener, Outcome

CallNext = Callable[[Any], Awaitable[Outcome]]
"""Calls what stands behind a middleware with a message (or a list of them), and returns its outcome."""
Middleware = Callable[[Any, CallNext], Awaitable[Outcome]]
"""``async def middleware(message, call_next)``: returns the outcome, mostly that of ``await call_next(message)``."""


@runtime_checkable
class ChecksItself(Protocol):
    """A middleware that a consumer asks at its start whether it can work."""

    async def works_here(self) -> None:
        """Raises ClientError where it cannot."""


async def check_works(chosen: Iterable[Middleware]) -> None:
    """Ask each middleware that can say it whether it can work. Raises ClientError."""
    for each in chosen:
        if isinstance(each, ChecksItself):
            await each.works_here()


_group: ContextVar[str | None] = ContextVar("group", default=None)
_Call = tuple[contextvars.Context, Any, asyncio.Future[Any]]


def check_middleware(given: Iterable[Middleware]) -> tuple[Middleware, ...]:
    """The middleware of a consumer. Raises UsageError for what is none."""
    if not isinstance(given, Iterable):
        raise UsageError(f"middleware={given!r} is not allowed: a list of coroutine functions is expected.")
    chosen = tuple(given)
    for each in chosen:
        if not callable(each) or not callbacks.is_coroutine_function(each):
            kind = "plain function" if callable(each) else type(each).__name__
            raise UsageError(
                f"A middleware that is a {kind} is not allowed: write `async def middleware(message, call_next)`."
            )
    return chosen


def consumer_group() -> str | None:
    """The group of the consumer whose middleware or listener runs here; None elsewhere, and without middleware."""
    return _group.get()


def around(
    listener: Listener, middleware: Iterable[Middleware], check: Callable[[Any], Outcome], group: str
) -> Listener:
    """The listener of a consumer of ``group``, of the same kind, with the middleware around it.

    A plain ``listener`` must return no awaitable. ``check`` returns an outcome that is allowed, and raises otherwise.
    """

    async def named(argument: Any, call_next: CallNext) -> Outcome:
        token = _group.set(group)
        try:
            return await call_next(argument)
        finally:
            _group.reset(token)

    chain, given = (named, *middleware), listener
    if not callbacks.is_coroutine_function(listener):
        return _in_threads(given, chain, check)

    async def last(argument: Any) -> Outcome:
        called: Any = given
        return check(await called(argument))

    return _nested(last, chain, check)


def _nested(last: CallNext, chain: tuple[Middleware, ...], check: Callable[[Any], Outcome]) -> CallNext:
    """What calls the first middleware of a chain that ends with ``last``."""
    inner = last
    for each in reversed(chain):
        inner = _before(each, inner, check)
    return inner


def _before(middleware: Middleware, call_next: CallNext, check: Callable[[Any], Outcome]) -> CallNext:
    async def call(argument: Any) -> Outcome:
        return check(await middleware(argument, call_next))

    return call


def _in_threads(listener: Any, chain: tuple[Middleware, ...], check: Callable[[Any], Outcome]) -> Listener:
    """A plain function: its thread waits while middleware runs in the event loop, and runs the listener when asked."""
    loop = asyncio.get_running_loop()

    def function(message: Any) -> Outcome:
        asked: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()

        async def last(argument: Any) -> Outcome:
            answer: asyncio.Future[Outcome] = loop.create_future()
            asked.put((contextvars.copy_context(), argument, answer))
            return await answer

        async def whole() -> Outcome:
            return await _nested(last, chain, check)(message)

        running = asyncio.run_coroutine_threadsafe(whole(), loop)
        running.add_done_callback(lambda _: asked.put(None))
        while (call := asked.get()) is not None:
            context, argument, answer = call
            try:
                outcome = check(context.run(listener, argument))
            except BaseException as error:
                loop.call_soon_threadsafe(_fail, answer, error)
            else:
                loop.call_soon_threadsafe(_answer, answer, outcome)
        return running.result()

    return function


def _answer(future: asyncio.Future[Outcome], outcome: Outcome) -> None:
    if not future.done():
        future.set_result(outcome)


def _fail(future: asyncio.Future[Outcome], error: BaseException) -> None:
    if future.done():
        return
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        future.set_exception(error)
    else:  # in the event loop these would end more than this call
        told = RuntimeError(f"The listener raised {type(error).__name__}: {error}")
        told.__cause__ = error
        future.set_exception(told)
