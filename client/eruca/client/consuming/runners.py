"""Running a user's listener: coroutines in the event loop, functions in threads.

Owns the messages that wait for a listener, and how many listeners run at once. What one pull brought is a lot, whose
pieces the listeners share; each piece ends in one call of ``finished`` on the event loop, also when it could not be
claimed as its run of the queue was dropped, and whatever the listener raises. Knows nothing of offsets and brokers.
Invariants: no listener begins after ``halt``; while pieces wait and a worker is idle, one is being woken, which wakes
the next when it finds more than one.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import queue
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any, Protocol

from eruca.client import callbacks
from eruca.client.consuming.listeners import Lot, Work, clock
from eruca.client.errors import UsageError
from eruca.client.outcomes import Listener

YIELD_AFTER = 0.01
"""Seconds for which listeners that never wait may keep the event loop in one go."""
CANCELLED = 1.0
"""Seconds that a cancelled listener gets for its end."""
_OF_THE_PROGRAM = (KeyboardInterrupt, SystemExit, GeneratorExit)
"""What ends the event loop, and no listener alone."""


class Runner(Protocol):
    """Either way of running listeners."""

    @property
    def at_work(self) -> Sequence[Work]:
        """What listeners are at work on."""

    def give(self, lot: Lot) -> None:
        """More to do."""

    async def consume(self, work: Work) -> None:
        """Run the listener for this piece of work now, before all that wait; the result is in the work."""

    async def halt(self, timeout: float) -> bool:
        """Begin nothing more; wait for the listeners at work. False when some still run after ``timeout`` seconds."""

    def hurry(self) -> None:
        """Let ``halt`` wait for listeners no longer."""


_place: ContextVar[Callable[[], Runner | None]] = ContextVar("place", default=lambda: None)
"""Says whose listener is at work here; tasks that a listener begins know it, too, and ask whether it still is."""


def called_by(runner: Runner) -> bool:
    """Whether a listener of this runner, which is still at work, is what runs here or began what runs here."""
    return _place.get()() is runner


def run_listener(listener: Listener, *, concurrency: int, finished: Callable[[Work], None]) -> Runner:
    """The right runner: in the loop for a coroutine function, in threads for another. Raises UsageError."""
    callbacks.check_callable(listener, "The listener")
    if callbacks.is_coroutine_function(listener):
        return LoopRunner(listener, concurrency, finished)
    return ThreadRunner(listener, concurrency, finished)


class LoopRunner:
    """Runs a coroutine function: ``concurrency`` workers in the event loop."""

    def __init__(self, listener: Listener, concurrency: int, finished: Callable[[Work], None]) -> None:
        self._listener: Any = listener
        self._finished = finished
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Lot] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._waking = False
        """A worker was woken and has not come yet; it wakes the next one when it finds enough to do."""
        self._busy: list[Work | None] = [None] * concurrency
        """What each worker is at work on."""
        self._workers = [self._loop.create_task(self._work(number)) for number in range(concurrency)]
        self._halted = False
        self._quiet = asyncio.Event()

    @property
    def at_work(self) -> Sequence[Work]:
        """What listeners are at work on."""
        return [work for work in self._busy if work is not None]

    def give(self, lot: Lot) -> None:
        """More to do."""
        self._waiting.append(lot)
        self._wake()

    def _wake(self) -> None:
        while self._idle and not self._waking:
            waiter = self._idle.popleft()
            if not waiter.done():
                waiter.set_result(None)
                self._waking = True

    async def _work(self, number: int) -> None:
        waiting, listener, finished, busy = self._waiting, self._listener, self._finished, self._busy
        _place.set(lambda: None if busy[number] is None else self)
        began = now = clock()
        while not self._halted:
            while not waiting:
                waiter = self._loop.create_future()
                self._idle.append(waiter)
                await waiter
                self._waking = False
                began = now = clock()
            lot = waiting[0]
            if len(waiting) > 1 or lot.left > 1:
                self._wake()
            work = busy[number] = lot.work()
            run, claims = lot.run, work.claims
            try:
                for piece in lot.pieces:
                    work.piece = piece
                    if run.dropped or (claims and not work.claim()):
                        finished(work)
                        continue
                    work.began = now
                    try:
                        outcome = await listener(piece)
                        if outcome is not None:
                            work.accept(outcome)
                    except _OF_THE_PROGRAM:
                        raise
                    except asyncio.CancelledError as error:
                        if self._ending():
                            raise
                        work.fail(UsageError(f"The listener was cancelled by itself or what it awaited: {error!r}"))
                        if self._workers[number].cancelling():  # this worker was meant, and another one takes its place
                            work.took = clock() - work.began
                            finished(work)
                            self._workers[number] = self._loop.create_task(self._work(number))
                            raise
                    except BaseException as error:
                        work.fail(error)
                    work.took = (now := clock()) - work.began
                    finished(work)
                    if work.outcome is not None or work.expired:
                        work = busy[number] = lot.work()
                    if now - began > YIELD_AFTER:
                        busy[number] = None
                        await asyncio.sleep(0)
                        busy[number] = work
                        began = now = clock()
            finally:
                busy[number] = None
                if self._halted and not self.at_work:
                    self._quiet.set()
            if waiting and waiting[0] is lot:
                waiting.popleft()

    def _ending(self) -> bool:
        """Whether a cancellation is the end of the consumer, or of the whole event loop."""
        return self._halted or all(task.cancelling() for task in asyncio.all_tasks(self._loop))

    async def consume(self, work: Work) -> None:
        """Run the listener now."""
        try:
            work.accept(await self._listener(work.piece))
        except _OF_THE_PROGRAM:
            raise
        except BaseException as error:
            work.fail(error)

    async def halt(self, timeout: float) -> bool:
        """Begin nothing more and wait; what still runs after ``timeout`` is cancelled, and then left to itself."""
        self._halted = True
        for lot in self._waiting:
            lot.close()
        self._waiting.clear()
        if self.at_work:
            await _in_time(self._quiet, timeout)
        quiet = not self.at_work
        for worker in self._workers:
            worker.cancel()
        await asyncio.wait(self._workers, timeout=CANCELLED)
        return quiet

    def hurry(self) -> None:
        """Wait no longer."""
        self._quiet.set()


class ThreadRunner:
    """Runs a plain function: up to ``concurrency`` threads, started as they are needed."""

    def __init__(self, listener: Listener, concurrency: int, finished: Callable[[Work], None]) -> None:
        self._listener: Any = listener
        self._concurrency = concurrency
        self._finished = finished
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Lot] = deque()
        self._calls: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """True calls a thread that is free to what waits, False ends it."""
        self._done: deque[Work] = deque()
        self._draining = False
        self._threads: list[threading.Thread] = []
        self._busy: dict[int, Work] = {}
        """What each thread is at work on."""
        self._halted = False
        self._quiet = asyncio.Event()

    @property
    def at_work(self) -> Sequence[Work]:
        """What listeners are at work on."""
        return list(self._busy.values())

    def give(self, lot: Lot) -> None:
        """More to do."""
        left = lot.left
        self._waiting.append(lot)
        self._calls.put(True)
        while len(self._threads) < self._concurrency and len(self._threads) - len(self._busy) < left:
            thread = threading.Thread(target=self._work, name=f"eruca-listener-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        waiting, calls = self._waiting, self._calls
        number = threading.get_ident()
        _place.set(lambda: self if number in self._busy else None)
        while calls.get():
            while waiting:
                try:
                    lot = waiting[0]
                except IndexError:  # another thread was quicker
                    break
                if calls.empty() and (len(waiting) > 1 or lot.left > 1):
                    calls.put(True)
                self._empty(lot)
                with contextlib.suppress(ValueError):
                    waiting.remove(lot)
        self._drain_soon()

    def _empty(self, lot: Lot) -> None:
        """Run the listener for what is left of a lot."""
        number, done = threading.get_ident(), self._done
        for piece in lot.pieces:
            if self._halted:
                return
            work = lot.work()
            work.piece = piece
            if work.claim():
                work.began = clock()
                self._busy[number] = work
                self._run(work)
                work.took = clock() - work.began
                del self._busy[number]
            done.append(work)
            if not self._draining:
                self._drain_soon()

    def _run(self, work: Work) -> None:
        try:
            work.accept(outcome_of(self._listener(work.piece), self._loop))
        except BaseException as error:  # sys.exit() would end this thread only
            work.fail(error)

    def _drain_soon(self) -> None:
        self._draining = True
        # The event loop may have been closed under a listener that did not end.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        self._draining = False
        while self._done:
            self._finished(self._done.popleft())
        if self._halted and not self._busy:
            self._quiet.set()

    async def consume(self, work: Work) -> None:
        """Run the listener now, in a thread of its own."""
        await asyncio.to_thread(self._run, work)

    async def halt(self, timeout: float) -> bool:
        """Begin nothing more and wait; a listener that still runs after ``timeout`` is left to its daemon thread."""
        self._halted = True
        for lot in tuple(self._waiting):
            lot.close()
        for _ in self._threads:
            self._calls.put(False)
        if self._busy:
            await _in_time(self._quiet, timeout)
        quiet = not self._busy
        self._drain()
        return quiet

    def hurry(self) -> None:
        """Wait no longer."""
        self._quiet.set()


async def _in_time(event: asyncio.Event, timeout: float) -> None:
    """Wait for an event, ``timeout`` seconds at most."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout):
            await event.wait()


def outcome_of(result: Any, loop: asyncio.AbstractEventLoop) -> Any:
    """What a plain function returned, or what that gives in the loop: a lambda may call a coroutine function."""
    if result is not None and inspect.isawaitable(result):
        return asyncio.run_coroutine_threadsafe(_await(result), loop).result()
    return result


def awaiting(listener: Listener) -> Listener:
    """A listener of the same kind that returns outcomes only; a plain function is to be called in a thread."""
    if callbacks.is_coroutine_function(listener):
        return listener
    given: Any = listener
    loop = asyncio.get_running_loop()
    return lambda messages: outcome_of(given(messages), loop)


async def _await(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
