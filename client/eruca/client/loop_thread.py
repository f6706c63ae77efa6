"""The one thread with an event loop in which all blocking clients of a process live.

Owns the thread: it is made when it is first needed, ends with the interpreter, after what the program itself registered
with ``atexit``, and never keeps it alive; in a forked child it is not there. Whoever uses it then is told so.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from eruca.client.errors import ForkedClient, StateError
from eruca.client.network import identity
from eruca.remoting.loop import new_loop

R = TypeVar("R")


class LoopThread:
    """The thread; use ``loop_thread``."""

    def __init__(self) -> None:
        self.forks = identity.fork_count()
        self.loop = new_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="eruca-client", daemon=True)
        self._thread.start()
        self._ended = False

    @property
    def left_behind(self) -> bool:
        """Whether this is a forked child, in which the thread is not there."""
        return self.forks != identity.fork_count()

    @property
    def over(self) -> bool:
        """Whether nothing runs there any more."""
        return self._ended or self.left_behind

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine there and wait for it; an interrupt of the wait cancels it."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def submit(self, work: Coroutine[Any, Any, R]) -> concurrent.futures.Future[R]:
        """Run a coroutine there."""
        try:
            if self.left_behind:
                raise ForkedClient(
                    "This client was made before a fork: its thread and connections belong to the parent process. "
                    "Make the client in the process that uses it (in the worker, not in the module that forks)."
                )
            if self._ended and not threading.current_thread().daemon:  # those wait, and end with the interpreter
                raise StateError(
                    "The interpreter is ending, and this client with it: use it before, and stop it by `with`."
                )
            if threading.current_thread() is self._thread:
                raise StateError(
                    "A blocking client was called in its own event loop, which would wait for itself: use the "
                    "asynchronous client of eruca.client in coroutines."
                )
        except StateError:
            work.close()
            raise
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def end(self) -> None:
        """Let the thread end, for ever."""
        if not self.over:
            self._ended = True
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(1.0)


_lock = threading.Lock()
_thread: LoopThread | None = None


def loop_thread() -> LoopThread:
    """The thread of this process."""
    global _thread
    with _lock:
        if _thread is None or _thread.left_behind:
            _thread = LoopThread()
        return _thread


@atexit.register
def _end() -> None:
    """Registered with the import: what a program registers later, such as its own ``stop``, is called before."""
    if _thread is not None:
        _thread.end()
