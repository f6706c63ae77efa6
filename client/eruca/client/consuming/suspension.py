"""A consumer that is suspended for a while: it stays a member and keeps its queues, and reads nothing more of them.

Owns whether that is so, and lets readers wait for the end of it. Any thread may say so; nothing is asked of brokers.
Facts: DefaultMQPushConsumerImpl.suspend and resume in 4.9.7.
"""

from __future__ import annotations

import asyncio

from eruca.client.admin_calls import AdminCalls


class Gate:
    """Open at first. Who waits while it is closed goes on as soon as it is opened."""

    def __init__(self) -> None:
        self.closed = False
        self._opened = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def close(self) -> None:
        """Let nobody through."""
        self.closed = True

    def open(self) -> None:
        """Let all through."""
        self.closed = False
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._opened.set)

    async def wait(self) -> None:
        """Return when it is open."""
        self._loop = asyncio.get_running_loop()
        while self.closed:
            self._opened.clear()
            await self._opened.wait()


class Suspendable(AdminCalls):
    """The calls of a consumer that can be suspended."""

    _gate: Gate

    def suspend(self) -> None:
        """Pull no more until ``resume``, in any thread and also before the start.

        What was pulled before is consumed, and so is what a pull brings that is under way, one for each queue.
        """
        self._gate.close()

    def resume(self) -> None:
        """Pull again."""
        self._gate.open()

    @property
    def suspended(self) -> bool:
        """Whether it is suspended."""
        return self._gate.closed
