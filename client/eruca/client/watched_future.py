"""WatchedFuture: the future of a blocking client, which logs a failure that nobody asks for.

Owns when a failure counts as asked for: somebody called ``result`` or ``exception``, or added a callback. Asyncio does
the same for its futures. Of many failures one is logged a minute.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import Any, TypeVar

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
