"""MessageCache: pulled messages that wait to be polled, and the offsets of those that were polled.

Owns what was pulled and not polled yet, and for each process queue the offset that may be stored: with auto-commit that
of the first message of the last poll (polling more commits what was polled before), otherwise what the user committed.
Pure but for the wait. Invariant: messages of a dropped process queue are not returned. Facts: consumeRequestCache,
DefaultLitePullConsumerImpl.poll and commitAll, AssignedMessageQueue in 4.9.7.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from time import monotonic
from typing import TypeVar

from eruca.client.consuming.process_queue import ProcessQueue, QueueLimits
from eruca.client.hooks import ConsumeContext, ConsumeHooks
from eruca.client.message import ReceivedMessage
from eruca.protocol.queues import MessageQueue

T = TypeVar("T")


class PolledQueue(ProcessQueue):
    """A process queue whose messages are polled; with ``auto_commit`` a poll commits what was polled before."""

    __slots__ = ("_auto_commit", "_committed", "_polled")

    def __init__(self, queue: MessageQueue, start: int, *, auto_commit: bool) -> None:
        super().__init__(queue, start)
        self._auto_commit = auto_commit
        self._polled = False
        self._committed: int | None = start if auto_commit else None

    @property
    def to_store(self) -> int | None:
        """The offset to store; None before the first manual commit."""
        return self.position if self._auto_commit and not self._polled else self._committed

    def hand_out(self, messages: Sequence[ReceivedMessage]) -> None:
        """These are polled; there is room for others."""
        if self._auto_commit and not self._polled:
            self._committed = self.position
        self._polled = True
        for message in messages:
            self.done(message.queue_offset)

    def settle(self) -> None:
        """What was polled counts as consumed."""
        self._polled = False

    def follow(self, before: PolledQueue) -> None:
        """Continue for the process queue before: what was polled of it is still to be settled or committed."""
        self._polled, self._committed = before._polled, before._committed

    def commit(self, offset: int | None = None) -> int:
        """Commit what was polled, or everything before ``offset``; returns the offset to store.

        With auto-commit, what was polled from ``offset`` on is committed by the next poll.
        """
        self._polled = offset is not None
        self._committed = self.position if offset is None else offset
        return self._committed


class PollHooks:
    """The hook calls around what is polled: they end with the next poll or a commit."""

    def __init__(self, hooks: ConsumeHooks) -> None:
        self._hooks = hooks
        self._open: list[tuple[ConsumeContext, float]] = []

    def begin(self, messages: list[ReceivedMessage]) -> None:
        """These are polled."""
        self._open.append((self._hooks.begin(messages, in_listener=False), monotonic()))

    def end(self) -> None:
        """What was polled is consumed."""
        ended, self._open = self._open, []
        for context, began in ended:
            self._hooks.end(context, None, None, monotonic() - began)


class MessageCache:
    """Pulled messages, one batch per pull, in the order of arrival.

    ``limits`` are those of each queue.
    """

    def __init__(self, limits: QueueLimits) -> None:
        self.hooks: PollHooks | None = None
        """Called around what is polled; None without hooks."""
        self._limits = limits
        self._batches: deque[tuple[PolledQueue, deque[ReceivedMessage]]] = deque()
        self._polled_queues: set[PolledQueue] = set()
        self._arrived = asyncio.Event()
        self._ended = False

    def __len__(self) -> int:
        """The number of waiting batches."""
        return len(self._batches)

    def put(self, process_queue: PolledQueue, messages: Sequence[ReceivedMessage]) -> None:
        """Add the messages of a pull."""
        if messages and not process_queue.dropped:
            self._batches.append((process_queue, deque(messages)))
            self._arrived.set()

    def sweep(self) -> None:
        """Forget the messages of dropped process queues."""
        if any(process_queue.dropped for process_queue, _ in self._batches):
            self._batches = deque(each for each in self._batches if not each[0].dropped)

    def replace(self, process_queue: PolledQueue, by: PolledQueue) -> None:
        """Replace a process queue by another: waiting messages are forgotten, polled ones still count."""
        by.follow(process_queue)
        if process_queue in self._polled_queues:
            self._polled_queues.remove(process_queue)
            self._polled_queues.add(by)
        self.sweep()

    def settle(self) -> None:
        """The user polls again: what was polled counts as consumed."""
        for process_queue in self._polled_queues:
            process_queue.settle()
        self._polled_queues.clear()
        if self.hooks is not None:
            self.hooks.end()

    def end(self) -> None:
        """Return nothing more; polls that wait end empty."""
        self._ended = True
        self._batches.clear()
        self._arrived.set()

    async def batch(self, timeout: float | None, most: int | None = None) -> list[ReceivedMessage]:
        """The next batch; empty after ``timeout`` seconds (None: never), or when the consumer stopped.

        With ``most``, up to that number of messages, of all batches that have arrived.
        """
        messages = await self._take(timeout, most)
        if most is not None:
            while len(messages) < most and (more := self._take_now(most - len(messages))):
                messages += more
        return messages

    async def one(self) -> ReceivedMessage | None:
        """The next message; None when the consumer stopped."""
        messages = await self._take(None, 1)
        return messages[0] if messages else None

    async def _take(self, timeout: float | None, most: int | None) -> list[ReceivedMessage]:
        try:
            async with asyncio.timeout(timeout):
                while not self._ended:
                    if messages := self._take_now(most):
                        return messages
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            pass
        return []

    def _take_now(self, most: int | None) -> list[ReceivedMessage]:
        """The first messages, ``most`` at most, of the first batch; None takes the whole batch."""
        while self._batches:
            process_queue, waiting = self._batches[0]
            if process_queue.dropped:
                self._batches.popleft()
                continue
            count = len(waiting) if most is None else min(most, len(waiting))
            messages = [waiting.popleft() for _ in range(count)]
            if not waiting:
                self._batches.popleft()
            self._hand_out(process_queue, messages)
            return messages
        return []

    def _hand_out(self, process_queue: PolledQueue, messages: list[ReceivedMessage]) -> None:
        process_queue.hand_out(messages)
        self._polled_queues.add(process_queue)
        if self.hooks is not None:
            self.hooks.begin(messages)
        if process_queue.made_room is not None and process_queue.has_room(self._limits):
            process_queue.made_room()


class Iteration(AsyncIterator[T]):
    """The iterator of ``async for``. A cancelled step loses nothing; another step may follow it."""

    def __init__(self, cache: MessageCache, take: Callable[[], Awaitable[T | None]]) -> None:
        self._cache = cache
        self._take = take

    async def __anext__(self) -> T:
        self._cache.settle()
        found = await self._take()
        if not found:
            raise StopAsyncIteration
        return found
