"""SharedTasks: work by key that several callers wait for at once.

Owns the tasks that run. The first caller starts the work, and all who come before its end get the same result or error.
Invariants: a caller that is cancelled leaves the work to the others, and an error that nobody waits for any more is
dropped: asyncio never reports it as one that was not retrieved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class SharedTasks(Generic[K, T]):
    """Tasks by key, each until it ends."""

    def __init__(self) -> None:
        self._tasks: dict[K, asyncio.Task[T]] = {}

    def __contains__(self, key: K) -> bool:
        return key in self._tasks

    def start(self, key: K, work: Callable[[], Coroutine[Any, Any, T]]) -> asyncio.Task[T]:
        """The task of a key; ``work`` is started where none runs."""
        task = self._tasks.get(key)
        if task is None or task.done():
            task = self._tasks[key] = asyncio.ensure_future(work())
            task.add_done_callback(lambda ended: self._ended(key, ended))
        return task

    async def result(self, key: K, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of the work of a key, started where none runs. Raises what the work raises."""
        task = self.start(key, work)
        if not task.done():
            await asyncio.wait({task})
        return task.result()

    async def close(self) -> None:
        """Cancel the tasks, and wait for their ends."""
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, key: K, task: asyncio.Task[T]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]
        if not task.cancelled():
            task.exception()
