"""Running a user's listener: coroutines in the event loop, functions in threads.

Owns the messages that wait for a listener, and how many listeners run at once. What one pull brought is a lot, whose
pieces the listeners share; each piece ends in one call of ``finished`` on the event loop, also when it could not be
claimed as its run of the queue was dropped. Knows nothing of offsets and brokers. Invariants: no listener begins after
``halt``; while pieces wait and a worker is idle, one is being woken, which wakes the next when it finds more than one.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import queue
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from operator import length_hint
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


Piece = ReceivedMessage | list[ReceivedMessage]
"""What a listener gets at once."""


class Work:
    """A piece that a listener has, or had. One that was consumed in time may serve for the next piece of its lot."""

    __slots__ = ("began", "error", "expired", "outcome", "piece", "run", "took")
    allowed: tuple[type, ...] = (Later,)
    """What a listener may return beside None."""
    claims = False
    """Whether ``claim`` asks for more than that the run goes on."""
    piece: Piece

    def __init__(self, run: InFlight) -> None:
        self.run = run
        self.outcome: Outcome = None
        self.error: Exception | None = None
        self.began = 0.0
        """When the listener began, by ``clock``."""
        self.took = 0.0
        """Seconds that it took."""
        self.expired = False
        """It took too long, and its messages went back: what it says now does not count any more."""

    @property
    def messages(self) -> list[ReceivedMessage]:
        """The messages of the piece."""
        piece = self.piece
        return piece if isinstance(piece, list) else [piece]

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


class Lot:
    """Pieces of one run that wait for listeners: whoever is free takes the next of ``pieces``, in any thread."""

    __slots__ = ("pieces", "run")

    def __init__(self, run: InFlight, pieces: Sequence[Piece]) -> None:
        self.run = run
        self.pieces: Iterator[Piece] = iter(pieces)

    @property
    def left(self) -> int:
        """How many wait."""
        return length_hint(self.pieces)

    def close(self) -> None:
        """Nobody gets what is left."""
        deque(self.pieces, maxlen=0)

    def work(self, spare: Work | None = None) -> Work:
        """What a listener is at work on, or will be with the next piece; ``spare`` may serve again."""
        if spare is None:
            return Work(self.run)
        spare.run = self.run
        return spare


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


def run_in(executor: Executor, listener: Listener) -> Listener:
    """A coroutine function that runs the listener, a plain function, in an executor. Raises UsageError."""
    if calling.is_coroutine_function(listener):
        raise UsageError("executor= is for listeners that are plain functions: coroutines run in the event loop.")
    given: Any = listener

    async def run(messages: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(executor, given, messages)

    return run


def run_listener(listener: Listener, *, concurrency: int, finished: Callable[[Work], None]) -> Runner:
    """The right runner: in the loop for a coroutine function, in threads for another. Raises UsageError."""
    calling.check_callable(listener, "The listener")
    if calling.is_coroutine_function(listener):
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
        self._quiet: asyncio.Event | None = None

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
        began = now = clock()
        while True:
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
                    except Exception as error:
                        work.fail(error)
                    except asyncio.CancelledError as error:
                        task = asyncio.current_task()
                        if task is None or task.cancelling():
                            raise
                        work.fail(UsageError(f"The listener was cancelled by what it awaited: {error!r}"))
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
                if self._quiet is not None and not self.at_work:
                    self._quiet.set()
            if waiting and waiting[0] is lot:
                waiting.popleft()

    async def consume(self, work: Work) -> None:
        """Run the listener now."""
        try:
            work.accept(await self._listener(work.piece))
        except Exception as error:
            work.fail(error)

    async def halt(self, timeout: float) -> bool:
        """Begin nothing more and wait; what still runs after ``timeout`` is cancelled."""
        for lot in self._waiting:
            lot.close()
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
        self._quiet: asyncio.Event | None = None

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
            work.accept(self._listener(work.piece))
        except Exception as error:
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
        if self._quiet is not None and not self._busy:
            self._quiet.set()

    async def consume(self, work: Work) -> None:
        """Run the listener now, in a thread of its own."""
        await asyncio.to_thread(self._run, work)

    async def halt(self, timeout: float) -> bool:
        """Begin nothing more and wait; a listener that still runs after ``timeout`` is left to its daemon thread."""
        self._halted = True
        self._quiet = asyncio.Event()
        for lot in tuple(self._waiting):
            lot.close()
        for _ in self._threads:
            self._calls.put(False)
        quiet = True
        if self._busy:
            try:
                await asyncio.wait_for(self._quiet.wait(), timeout)
            except TimeoutError:
                quiet = False
        self._drain()
        return quiet
