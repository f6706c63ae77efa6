"""An event loop in a thread: for programs, tests and Spark tasks that call coroutines from plain functions.

Owns the thread and its loop. The thread is a daemon: it never keeps the interpreter alive. A forked child has the
object but not the thread; work that is handed in there is refused and does not wait for ever.
Invariant: work that is refused is closed, never left unawaited.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import enum
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from eruca.remoting.loop import fork_count, new_loop
from eruca.remoting.operating_system import after_fork_in_child

R = TypeVar("R")
T = TypeVar("T")
_LOOK = 0.5
"""Seconds after which a thread that waits looks for signals."""


class Unusable(enum.Enum):
    """Why a thread accepts no work; the value is a sentence."""

    FORKED = "The event loop was started before a fork: it runs in the parent process only."
    ENDED = "The event loop has ended."
    OWN_THREAD = "A blocking call in the thread of its own event loop would wait for itself."


def unusable_error(reason: Unusable) -> Exception:
    """The error where the owner of a thread has no words of its own: RuntimeError."""
    return RuntimeError(reason.value)


def _awaited(future: concurrent.futures.Future[R]) -> R:
    """The result. A signal that comes just before the thread falls asleep does not wake it: so it wakes by itself."""
    while not future.done():
        try:
            return future.result(_LOOK)
        except TimeoutError:
            continue  # nothing yet; or it is the work's own error, which is raised below
    return future.result()


class LoopThread:
    """A running event loop in a daemon thread. Thread-safe.

    Args:
        name: the thread's name, as debuggers and profilers show it.
        error: returns the error to raise for work that cannot run.
        blocks: called before another event loop, in whose thread ``run`` was called, stands still.
    """

    def __init__(
        self,
        name: str,
        error: Callable[[Unusable], Exception] = unusable_error,
        blocks: Callable[[], object] | None = None,
    ) -> None:
        self.loop = new_loop()
        self._error = error
        self._blocks = blocks
        self._forks = fork_count()
        self._halted = False
        self._closed = False
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        try:
            self._thread.start()
        except BaseException:
            self.loop.close()
            raise

    @property
    def over(self) -> bool:
        """Whether nothing runs in the loop any more: after ``close`` or ``halt``, and in a forked child."""
        return self._halted or self._closed or self._forks != fork_count()

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine in the loop and return its result. An interrupt of the wait cancels the coroutine."""
        future = self.submit(work)
        try:
            if self._blocks is not None and asyncio._get_running_loop() is not None:
                self._blocks()
            return _awaited(future)
        except BaseException:
            future.cancel()
            raise

    def submit(self, work: Coroutine[Any, Any, R]) -> concurrent.futures.Future[R]:
        """Start a coroutine in the loop. Raises the owner's error when it cannot run."""
        reason = self._unusable()
        if reason is not None:
            work.close()
            raise self._error(reason)
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def _unusable(self) -> Unusable | None:
        caller = threading.current_thread()
        if self._forks != fork_count():
            return Unusable.FORKED
        if self._closed or (self._halted and not caller.daemon):
            return Unusable.ENDED
        return Unusable.OWN_THREAD if caller is self._thread else None

    def close(self) -> None:
        """Cancel what runs in the loop, close the loop and wait for the thread. Calling it twice does no harm."""
        if not self.over:
            self._closed = True
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()

    def halt(self, seconds: float) -> None:
        """Stop the loop and leave what runs in it as it is; wait that long at most. For the end of the interpreter.

        Daemon threads that hand in work after it wait, and end with the interpreter, without a traceback.
        """
        if not self.over:
            self._halted = True
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(seconds)

    def _main(self) -> None:
        self.loop.run_forever()
        if not self._closed:
            return
        try:
            self.loop.run_until_complete(_cancel_all())
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
        finally:
            self.loop.close()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class PerProcess(Generic[T]):
    """One object for each process, made by the first ``get``; a forked child makes its own. Thread-safe."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._object: T | None = None
        self._of_parents: list[T | None] = []
        after_fork_in_child(self._leave_to_parent)

    def get(self) -> T:
        """The object of this process."""
        with self._lock:
            if self._object is None:
                self._object = self._make()
            return self._object

    @property
    def made(self) -> T | None:
        """The object, if this process has made it."""
        return self._object

    def replace(self, new: T | None) -> T | None:
        """Put another object in its place, or none; returns the one that was there."""
        with self._lock:
            old, self._object = self._object, new
            return old

    def _leave_to_parent(self) -> None:
        # Another thread may have held the lock. The object stays referenced: to free it here could close what the
        # parent still uses, such as the registrations of its sockets with epoll.
        self._lock = threading.Lock()
        self._of_parents.append(self._object)
        self._object = None
