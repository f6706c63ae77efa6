"""Messages that wait to be polled, and how far a group has come with those that were.

Owns what was pulled and nobody has asked for yet, and per run the offset that may be stored: with auto-commit that of
the first message which was handed out last (asking for more says that what came before is consumed), otherwise what
the user committed. Pure but for the wait. Invariant: nothing of a dropped run is handed out.
Facts: DefaultLitePullConsumerImpl.poll and commitAll, AssignedMessageQueue in 4.9.7.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

from eruca.client.consuming.listeners import clock
from eruca.client.consuming.process_queue import Limits, ProcessQueue
from eruca.client.hooks import ConsumeContext, ConsumeHooks
from eruca.client.message import ReceivedMessage
from eruca.protocol.queues import MessageQueue

T = TypeVar("T")


class PolledQueue(ProcessQueue):
    """A run of a queue whose messages are polled; ``auto`` says whether asking for more commits what came before."""

    __slots__ = ("_auto", "_kept", "_out")

    def __init__(self, queue: MessageQueue, start: int, *, auto: bool) -> None:
        super().__init__(queue, start)
        self._auto = auto
        self._out = False
        self._kept: int | None = start if auto else None

    @property
    def to_store(self) -> int | None:
        """The offset to store; None before the first commit by hand."""
        return self.position if self._auto and not self._out else self._kept

    def hand_out(self, messages: Sequence[ReceivedMessage]) -> None:
        """These go to the user; there is room for others."""
        if self._auto and not self._out:
            self._kept = self.position
        self._out = True
        for message in messages:
            self.done(message.queue_offset)

    def settle(self) -> None:
        """What was handed out counts as consumed."""
        self._out = False

    def follow(self, before: PolledQueue) -> None:
        """Go on as the run before: what was handed out of it is still to be settled, or to be committed."""
        self._out, self._kept = before._out, before._kept

    def commit(self, offset: int | None = None) -> int:
        """Everything that was handed out is consumed, or all before ``offset``; the offset to store.

        What was handed out from ``offset`` on counts with auto-commit when more is asked for.
        """
        self._out = offset is not None
        self._kept = self.position if offset is None else offset
        return self._kept


class Watched:
    """The calls of hooks around what is handed out: they end when the user asks for more, or commits."""

    def __init__(self, hooks: ConsumeHooks) -> None:
        self._hooks = hooks
        self._open: list[tuple[ConsumeContext, float]] = []

    def begin(self, messages: list[ReceivedMessage]) -> None:
        """These are handed out."""
        self._open.append((self._hooks.begin(messages, in_listener=False), clock()))

    def end(self) -> None:
        """What was handed out is consumed."""
        ended, self._open = self._open, []
        for context, began in ended:
            self._hooks.end(context, None, None, clock() - began)


class Cache:
    """What was pulled, a batch for each pull, in the order in which it came.

    ``limits`` are those of each queue.
    """

    def __init__(self, limits: Limits) -> None:
        self.watched: Watched | None = None
        """Who sees what is handed out; None where nobody wants to."""
        self._limits = limits
        self._batches: deque[tuple[PolledQueue, deque[ReceivedMessage]]] = deque()
        self._handed: set[PolledQueue] = set()
        self._news = asyncio.Event()
        self._halted = False

    def __len__(self) -> int:
        """How many batches wait."""
        return len(self._batches)

    def put(self, run: PolledQueue, messages: Sequence[ReceivedMessage]) -> None:
        """More was pulled."""
        if messages and not run.dropped:
            self._batches.append((run, deque(messages)))
            self._news.set()

    def sweep(self) -> None:
        """Forget the messages of runs that were dropped."""
        if any(run.dropped for run, _ in self._batches):
            self._batches = deque(each for each in self._batches if not each[0].dropped)

    def replace(self, run: PolledQueue, by: PolledQueue) -> None:
        """A run goes on as another: its messages that wait are forgotten, those that were handed out count on."""
        by.follow(run)
        if run in self._handed:
            self._handed.remove(run)
            self._handed.add(by)
        self.sweep()

    def settle(self) -> None:
        """The user asks for more: what was handed out counts as consumed."""
        for run in self._handed:
            run.settle()
        self._handed.clear()
        if self.watched is not None:
            self.watched.end()

    def halt(self) -> None:
        """Hand out nothing more; those who wait get nothing."""
        self._halted = True
        self._batches.clear()
        self._news.set()

    async def batch(self, timeout: float | None) -> list[ReceivedMessage]:
        """The next batch; empty when none came in ``timeout`` seconds (None: waits), or when the consumer stopped."""
        return await self._take(timeout, lambda waiting: [waiting.popleft() for _ in range(len(waiting))])

    async def one(self) -> ReceivedMessage | None:
        """The next message; None when the consumer stopped."""
        messages = await self._take(None, lambda waiting: [waiting.popleft()])
        return messages[0] if messages else None

    async def _take(
        self, timeout: float | None, take: Callable[[deque[ReceivedMessage]], list[ReceivedMessage]]
    ) -> list[ReceivedMessage]:
        try:
            async with asyncio.timeout(timeout):
                while not self._halted:
                    while self._batches:
                        run, waiting = self._batches[0]
                        if not run.dropped:
                            messages = take(waiting)
                            if not waiting:
                                self._batches.popleft()
                            self._hand_out(run, messages)
                            return messages
                        self._batches.popleft()
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            pass
        return []

    def _hand_out(self, run: PolledQueue, messages: list[ReceivedMessage]) -> None:
        run.hand_out(messages)
        self._handed.add(run)
        if self.watched is not None:
            self.watched.begin(messages)
        if run.made_room is not None and run.has_room(self._limits):
            run.made_room()


class Iteration(AsyncIterator[T]):
    """What ``async for`` asks. A question may be cancelled, and another one follow it: nothing is lost by that."""

    def __init__(self, cache: Cache, take: Callable[[], Awaitable[T | None]]) -> None:
        self._cache = cache
        self._take = take

    async def __anext__(self) -> T:
        self._cache.settle()
        found = await self._take()
        if not found:
            raise StopAsyncIteration
        return found
