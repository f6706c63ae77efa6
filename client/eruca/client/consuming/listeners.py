"""Running a user's listener: coroutines in the event loop, functions in threads.

Owns the messages that wait for a listener, and how many listeners run at once. Each piece of work ends in one call of
``finished`` on the event loop, also when it could not be claimed as its run of the queue was dropped. Knows nothing of
offsets and brokers. Invariant: no listener begins after ``halt``.
"""

from __future__ import annotations

import asyncio
import enum
import queue
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Protocol

from eruca.client import calling
from eruca.client.consuming.inflight import InFlight
from eruca.client.errors import UsageError
from eruca.client.message import ReceivedMessage

clock = time.monotonic
"""Seconds that never go back, asked anew each time: the time of an event loop may be that of its last round."""
YIELD_AFTER = 0.01
"""Seconds for which listeners that never wait may keep the event loop in one go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Later:
    """What a listener returns for messages that shall come again.

    Args:
        delay_level: 1 to 18 for a certain delay; 0 for one that grows with each time; -1 for the dead letters at once.
        consumed: of a list of messages the first so many are consumed all the same.
    """

    delay_level: int = 0
    consumed: int = 0


@dataclass(frozen=True, slots=True)
class Suspend:
    """What an orderly listener returns for messages that shall come again, and before all others of their queue.

    Args:
        seconds: until then, from 0.01 to 30; None for the suspend_time of the consumer.
    """

    seconds: float | None = None


class Decision(enum.Enum):
    """What an orderly listener returns when it commits by hand (``auto_commit=False``)."""

    COMMIT = "commit"
    """All that came of this queue counts as consumed."""
    ROLLBACK = "rollback"
    """All that came since the last commit comes again."""


Outcome = None | Later | Suspend | Decision
Listener = Callable[[Any], Outcome | Awaitable[Outcome]]
"""Takes one ReceivedMessage (or, with ``batch``, a list). Returning None consumes, raising is as returning Later, or
Suspend of an orderly consumer."""


class Work:
    """Messages of one run of a queue that a listener gets at once."""

    __slots__ = ("began", "error", "expired", "messages", "outcome", "run", "took")
    allowed: tuple[type, ...] = (Later,)
    """What a listener may return beside None."""

    def __init__(self, run: InFlight, messages: list[ReceivedMessage]) -> None:
        self.run = run
        self.messages = messages
        self.outcome: Outcome = None
        self.error: Exception | None = None
        self.began = 0.0
        """When the listener began, by ``clock``."""
        self.took = 0.0
        """Seconds that it took."""
        self.expired = False
        """It took too long, and its messages went back: what it says now does not count any more."""

    def claim(self) -> bool:
        """Whether the listener may begin; asked once, right before, perhaps in another thread."""
        return not self.run.dropped

    def accept(self, outcome: Any) -> None:
        """Keep what the listener returned."""
        if outcome is not None:
            if type(outcome) in self.allowed:
                self.outcome = outcome
            else:
                names = " or ".join(f"{kind.__name__}{'' if kind is Decision else '()'}" for kind in self.allowed)
                self.fail(UsageError(f"A listener returns None or {names}, not {type(outcome).__name__}."))

    def fail(self, error: Exception) -> None:
        """Keep what the listener raised."""
        self.error = error
        self.outcome = Later()


class Runner(Protocol):
    """Either way of running listeners."""

    @property
    def at_work(self) -> Sequence[Work]:
        """What listeners are at work on."""

    def give(self, works: Sequence[Work]) -> None:
        """More to do."""

    async def consume(self, work: Work) -> None:
        """Run the listener for this piece of work now, before all that wait; the result is in the work."""

    async def halt(self, timeout: float) -> bool:
        """Begin nothing more; wait for the listeners at work. False when some still run after ``timeout`` seconds."""


def run_in(executor: Executor, listener: Listener) -> Listener:
    """A coroutine function that runs the listener, a plain function, in an executor. Raises UsageError."""
    if calling.is_coroutine_function(listener):
        raise UsageError("executor= is for listeners that are plain functions: coroutines run in the event loop.")
    given: Any = listener

    async def run(messages: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(executor, given, messages)

    return run


def run_listener(listener: Listener, *, batch: bool, concurrency: int, finished: Callable[[Work], None]) -> Runner:
    """The right runner: in the loop for a coroutine function, in threads for another. Raises UsageError."""
    calling.check_callable(listener, "The listener")
    if calling.is_coroutine_function(listener):
        return LoopRunner(listener, batch, concurrency, finished)
    return ThreadRunner(listener, batch, concurrency, finished)


class LoopRunner:
    """Runs a coroutine function: ``concurrency`` workers in the event loop."""

    def __init__(self, listener: Listener, batch: bool, concurrency: int, finished: Callable[[Work], None]) -> None:
        self._listener: Any = listener
        self._batch = batch
        self._finished = finished
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Work] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._busy: list[Work | None] = [None] * concurrency
        """What each worker is at work on."""
        self._workers = [self._loop.create_task(self._work(number)) for number in range(concurrency)]
        self._quiet: asyncio.Event | None = None

    @property
    def at_work(self) -> Sequence[Work]:
        """What listeners are at work on."""
        return [work for work in self._busy if work is not None]

    def give(self, works: Sequence[Work]) -> None:
        """More to do."""
        self._waiting.extend(works)
        for _ in range(min(len(works), len(self._idle))):
            waiter = self._idle.popleft()
            if not waiter.done():
                waiter.set_result(None)

    async def _work(self, number: int) -> None:
        waiting, listener, batch, finished, busy = (
            self._waiting,
            self._listener,
            self._batch,
            self._finished,
            self._busy,
        )
        began = now = clock()
        while True:
            while not waiting:
                waiter = self._loop.create_future()
                self._idle.append(waiter)
                await waiter
                began = now = clock()
            work = waiting.popleft()
            if not work.claim():
                finished(work)
                continue
            busy[number] = work
            work.began = now
            try:
                outcome = await listener(work.messages if batch else work.messages[0])
                if outcome is not None:
                    work.accept(outcome)
            except Exception as error:
                work.fail(error)
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                work.fail(UsageError(f"The listener was cancelled by what it awaited: {error!r}"))
            finally:
                busy[number] = None
                if self._quiet is not None and not self.at_work:
                    self._quiet.set()
            work.took = (after := clock()) - now
            now = after
            finished(work)
            if now - began > YIELD_AFTER:
                await asyncio.sleep(0)
                began = now = clock()

    async def consume(self, work: Work) -> None:
        """Run the listener now."""
        try:
            work.accept(await self._listener(work.messages if self._batch else work.messages[0]))
        except Exception as error:
            work.fail(error)

    async def halt(self, timeout: float) -> bool:
        """Begin nothing more and wait; what still runs after ``timeout`` is cancelled."""
        self._waiting.clear()
        quiet = True
        if self.at_work:
            self._quiet = asyncio.Event()
            try:
                await asyncio.wait_for(self._quiet.wait(), timeout)
            except TimeoutError:
                quiet = False
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        return quiet


class ThreadRunner:
    """Runs a plain function: up to ``concurrency`` threads, started as they are needed."""

    def __init__(self, listener: Listener, batch: bool, concurrency: int, finished: Callable[[Work], None]) -> None:
        self._listener: Any = listener
        self._batch = batch
        self._concurrency = concurrency
        self._finished = finished
        self._loop = asyncio.get_running_loop()
        self._inbox: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._done: deque[Work] = deque()
        self._draining = False
        self._threads: list[threading.Thread] = []
        self._busy: dict[int, Work] = {}
        """What each thread is at work on."""
        self._halted = False
        self._quiet: asyncio.Event | None = None

    @property
    def at_work(self) -> Sequence[Work]:
        """What listeners are at work on."""
        return list(self._busy.values())

    def give(self, works: Sequence[Work]) -> None:
        """More to do."""
        for work in works:
            self._inbox.put(work)
        waiting = self._inbox.qsize()
        while len(self._threads) < self._concurrency and len(self._threads) - len(self._busy) < waiting:
            thread = threading.Thread(target=self._work, name=f"eruca-listener-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        number = threading.get_ident()
        while (work := self._inbox.get()) is not None:
            if self._halted:
                continue
            if work.claim():
                work.began = clock()
                self._busy[number] = work
                self._run(work)
                work.took = clock() - work.began
                del self._busy[number]
            self._done.append(work)
            self._drain_soon()
        self._drain_soon()

    def _run(self, work: Work) -> None:
        try:
            work.accept(self._listener(work.messages if self._batch else work.messages[0]))
        except Exception as error:
            work.fail(error)

    def _drain_soon(self) -> None:
        if not self._draining:
            self._draining = True
            try:
                self._loop.call_soon_threadsafe(self._drain)
            except RuntimeError:  # the event loop has been closed under a listener that did not end
                return

    def _drain(self) -> None:
        self._draining = False
        while self._done:
            self._finished(self._done.popleft())
        if self._quiet is not None and not self._busy:
            self._quiet.set()

    async def consume(self, work: Work) -> None:
        """Run the listener now, in a thread of its own."""
        await asyncio.to_thread(self._run, work)

    async def halt(self, timeout: float) -> bool:
        """Begin nothing more and wait; a listener that still runs after ``timeout`` is left to its daemon thread."""
        self._halted = True
        self._quiet = asyncio.Event()
        for _ in self._threads:
            self._inbox.put(None)
        quiet = True
        if self._busy:
            try:
                await asyncio.wait_for(self._quiet.wait(), timeout)
            except TimeoutError:
                quiet = False
        self._drain()
        return quiet
