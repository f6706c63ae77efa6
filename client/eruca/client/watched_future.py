"""Failures that nobody asks for, in one line of the log: of futures of blocking clients, and of asyncio's.

Owns when a failure counts as asked for: somebody called ``result`` or ``exception``, or added a callback. Asyncio knows
the same of its futures, and hands what it finds to the handler of its loop, which is ours where the program has set
none. Of many failures one is logged a minute.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable
from typing import Any, TypeVar

from eruca.client.errors import ClientError
from eruca.client.log import Rarely

R = TypeVar("R")
_rarely = Rarely()


class WatchedFuture(concurrent.futures.Future[R]):
    """Ends as the future that it follows; ``what`` names the work in the log."""

    def __init__(self, followed: concurrent.futures.Future[R], what: str) -> None:
        super().__init__()
        self._followed = followed
        self._what = what
        self._asked = False
        followed.add_done_callback(self._end)

    def _end(self, followed: concurrent.futures.Future[R]) -> None:
        if followed.cancelled():
            super().cancel()
        if not self.set_running_or_notify_cancel():
            return
        error = followed.exception()
        if error is None:
            self.set_result(followed.result())
        else:
            self.set_exception(error)

    def cancel(self) -> bool:
        """Cancel the work, too."""
        self._followed.cancel()
        return super().cancel()

    def result(self, timeout: float | None = None) -> R:
        """As of every future."""
        self._asked = True
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """As of every future."""
        self._asked = True
        return super().exception(timeout)

    def add_done_callback(self, fn: Callable[[concurrent.futures.Future[R]], Any]) -> None:
        """As of every future."""
        self._asked = True
        super().add_done_callback(fn)

    def __del__(self) -> None:
        if self._asked or not self.done() or self.cancelled():
            return
        error = super().exception(0)
        if error is not None:
            _rarely.warn(f"{self._what} failed, and nobody asked its future: {type(error).__name__}: {error}")


def fail(future: asyncio.Future[Any], error: BaseException) -> None:
    """End the future of a send with an error; if nobody asks for it, one line says so."""
    loop = future.get_loop()
    if loop.get_exception_handler() is None:
        loop.set_exception_handler(_handle)
    future.set_exception(error)


def _handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Asyncio has found an error that nobody handles."""
    error, future = context.get("exception"), context.get("future")
    unasked = str(context.get("message")).endswith("exception was never retrieved")
    if unasked and isinstance(error, ClientError) and not isinstance(future, asyncio.Task):
        _rarely.warn(f"A send failed, and nobody asked its future: {type(error).__name__}: {error}")
    else:
        loop.default_exception_handler(context)
