"""The long-lived tasks of a daemon, watched: none ends unnoticed.

Owns what happens when a task ends that nobody has cancelled: an error line with the cause, the daemon is no longer
ready, and its owner is notified, who stops it. Must not know what the tasks do: a task handles the errors that it
expects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from eruca.remoting.log import log
from eruca.remoting.readiness import Readiness


class Tasks:
    """Starts the tasks of one daemon, each of which runs until it is cancelled."""

    def __init__(self, readiness: Readiness | None = None) -> None:
        self.readiness = readiness if readiness is not None else Readiness()
        self.fault: str | None = None
        """The first task that ended by itself, and why, as a sentence."""
        self.on_fault: Callable[[], object] | None = None
        """Called when a task has ended by itself."""
        self.running: set[asyncio.Task[None]] = set()
        """The tasks that have not ended."""

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run ``work`` on the running loop until its owner cancels it."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self.running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.running.discard(task)
        if task.cancelled() and task.cancelling():
            return
        error = None if task.cancelled() else task.exception()
        cause = "it was cancelled from within" if task.cancelled() else _cause(error)
        reason = f"the task {task.get_name()} has ended: {cause}"
        self.fault = self.fault or reason
        self.readiness.withdraw("tasks", self.fault)
        log.error("task_ended", task=task.get_name(), cause=cause, exc_info=error)
        if self.on_fault is not None:
            self.on_fault()


def _cause(error: BaseException | None) -> str:
    return "it returned" if error is None else f"{type(error).__name__}: {error}"


async def unless(over: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Do ``work``; False when ``over`` was set before its end: then it is cancelled, and has ended."""
    loop = asyncio.get_running_loop()
    working, waiting = loop.create_task(work), loop.create_task(over.wait())
    try:
        await asyncio.wait([working, waiting], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (working, waiting):
            task.cancel()
        await asyncio.wait([working, waiting])
    if working.cancelled():
        return False
    await working
    return True


async def end(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel tasks, and wait until they have ended."""
    ending = list(tasks)
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)
