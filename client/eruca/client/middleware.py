"""Middleware: coroutine functions around a listener, which may change what it gets and what becomes of it.

Owns how they are nested, and in which task and thread each part runs. ``await call_next(message)`` calls the next
middleware, and at last the listener, and returns its outcome, which is checked: None, or one of the classes that a
listener may return. What a listener raises is raised there. A middleware may return another outcome, raise, call
``call_next`` again or not at all, and give it another argument, which is what the listener gets then. One that returns
None where ``call_next`` returned Later, Reject or Suspend mostly lacks a ``return``, which the log says once. Knows
nothing of queues, offsets and retries. Invariants: the first of a list is the outermost; a middleware runs in the event
loop, the listener where it would run without (a plain function in its thread, in the context of the middleware that
called it); calls of ``call_next`` for one message never run side by side in two threads; without middleware nothing
here runs.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import Any, Protocol, runtime_checkable

from eruca.client import callbacks
from eruca.client.errors import UsageError
from eruca.client.log import log
from eruca.client.outcomes import Later, Listener, Outcome, Reject, Suspend

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
_MOST_TASKS = 100
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
        callbacks.check_callable(each, f"The middleware {callbacks.name_of(each)}", "message", "call_next")
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

    chain, given = tuple(_Link(each, group) for each in (named, *middleware)), listener
    if not callbacks.is_coroutine_function(listener):
        return _in_threads(given, chain, check)

    async def last(argument: Any) -> Outcome:
        called: Any = given
        outcome = check(await called(argument))
        if outcome is not None or chain[-1].came:
            chain[-1].note(outcome)
        return outcome

    return _nested(last, chain, check)


class _Link:
    """A middleware of one consumer, and what ``call_next`` returned to it last, in each task that it runs in."""

    __slots__ = ("_group", "_told", "came", "middleware")

    def __init__(self, middleware: Middleware, group: str) -> None:
        self.middleware = middleware
        self.came: dict[asyncio.Task[Any] | None, Outcome] = {}
        """Outcomes by which something is not consumed, until the middleware returns."""
        self._group = group
        self._told = False

    def note(self, outcome: Outcome) -> None:
        """``call_next`` returned this."""
        task = asyncio.current_task()
        self.came.pop(task, None)
        if isinstance(outcome, Later | Reject | Suspend) and not self._told:
            if len(self.came) >= _MOST_TASKS:  # of tasks that the middleware itself began, and which have ended
                self.came.clear()
            self.came[task] = outcome

    def compare(self, outcome: Outcome) -> None:
        """The middleware returned this: tell once if that loses what ``call_next`` returned."""
        came = self.came.pop(asyncio.current_task(), None)
        if came is not None and outcome is None and not self._told:
            self._told = True
            log.warning(
                "the middleware %s of %s returned None where call_next returned %r: what the listener did not consume "
                "counts as consumed; write `return await call_next(message)`",
                callbacks.name_of(self.middleware),
                self._group,
                came,
            )


def _nested(last: CallNext, chain: Sequence[_Link], check: Callable[[Any], Outcome]) -> CallNext:
    """What calls the first middleware of a chain that ends with ``last``."""
    inner = last
    for outer, link in zip((*reversed(chain[:-1]), None), reversed(chain), strict=True):
        inner = _before(link, inner, check, outer)
    return inner


def _before(link: _Link, call_next: CallNext, check: Callable[[Any], Outcome], outer: _Link | None) -> CallNext:
    middleware = link.middleware

    async def call(argument: Any) -> Outcome:
        try:
            outcome = check(await middleware(argument, call_next))
        except BaseException:
            link.came.pop(asyncio.current_task(), None)
            raise
        if link.came:
            link.compare(outcome)
        if outer is not None and (outcome is not None or outer.came):
            outer.note(outcome)
        return outcome

    return call


def _in_threads(listener: Any, chain: Sequence[_Link], check: Callable[[Any], Outcome]) -> Listener:
    """A plain function: its thread waits while middleware runs in the event loop, and runs the listener when asked."""
    loop = asyncio.get_running_loop()

    def function(message: Any) -> Outcome:
        asked: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()

        async def last(argument: Any) -> Outcome:
            answer: asyncio.Future[Outcome] = loop.create_future()
            asked.put((contextvars.copy_context(), argument, answer))
            outcome = await answer
            if outcome is not None or chain[-1].came:
                chain[-1].note(outcome)
            return outcome

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
