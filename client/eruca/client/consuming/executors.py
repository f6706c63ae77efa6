"""Runs a listener that is a plain function in an executor of the user, mostly in other processes.

Owns which executor is used: a given one, or the one that a given function made. The latter is replaced after a process
of it died, and shut down when the consumer stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor
from typing import Any

from eruca.client import callbacks
from eruca.client.errors import UsageError
from eruca.client.log import log
from eruca.client.outcomes import Listener


class ListenerInExecutor:
    """``run`` is a coroutine function that runs the listener in the executor. Raises UsageError."""

    def __init__(self, executor: Executor | Callable[[], Executor], listener: Listener) -> None:
        if callbacks.is_coroutine_function(listener):
            raise UsageError("executor= is for listeners that are plain functions: coroutines run in the event loop.")
        self._listener: Any = listener
        self._make: Callable[[], Executor] | None = None
        self._executor: Executor | None = None
        if isinstance(executor, Executor):
            self._executor = executor
        elif callable(executor):
            self._make = executor
        else:
            raise UsageError(
                f"executor is of type {type(executor).__name__}: an Executor or a function that makes one is expected."
            )

    async def run(self, messages: Any) -> Any:
        """What the listener returns."""
        executor = self._executor
        if executor is None:
            assert self._make is not None
            executor = self._executor = self._make()
        try:
            return await asyncio.get_running_loop().run_in_executor(executor, self._listener, messages)
        except BrokenExecutor as error:
            if self._make is None:
                raise BrokenExecutor(
                    "A process of the executor died, so it takes nothing more. Give executor= a function that makes an "
                    "executor: then another one takes its place."
                ) from error
            if executor is self._executor:
                log.error("the executor of a listener broke and is replaced: %s", error)
                self.close()
            raise

    def close(self) -> None:
        """Shut down the executor that was made here; the next call makes another one."""
        executor = self._executor
        if executor is not None and self._make is not None:
            self._executor = None
            executor.shutdown(wait=False, cancel_futures=True)
