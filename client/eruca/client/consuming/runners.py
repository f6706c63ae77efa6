"""Runners execute a listener: coroutine functions in the event loop, plain functions in threads.

Owns the batches that wait for a listener, and how many calls run at once. Workers share the calls of a batch; each call
ends with one call of ``finished`` on the event loop, also when it could not be claimed because its process queue was
dropped, and whatever the listener raises. Knows nothing of offsets and brokers. Invariants: no call begins after
``shutdown``; while calls wait and a worker is idle, one worker is being woken, and it wakes the next if it finds more
than one call. Facts: the consumeExecutor of ConsumeMessageConcurrentlyService in 4.9.7.
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
from time import monotonic
from typing import Any, Protocol

from eruca.client import callbacks
from eruca.client.consuming.consume_request import ConsumeRequest, PulledBatch
from eruca.client.consuming.unpacker import unpack
from eruca.client.errors import UsageError
from eruca.client.outcomes import Listener

YIELD_AFTER = 0.01
"""Seconds for which calls that never suspend may occupy the event loop without a break."""
CANCELLED = 1.0
"""Seconds that a cancelled call has to end."""
_ENDS_PROGRAM = (KeyboardInterrupt, SystemExit, GeneratorExit)
"""Errors that end the event loop, not only a call."""


class Runner(Protocol):
    """Executes a listener."""

    @property
    def running(self) -> Sequence[ConsumeRequest]:
        """The calls that run now."""

    def submit(self, batch: PulledBatch) -> None:
        """Add calls."""

    async def consume(self, request: ConsumeRequest) -> None:
        """Run this call now, before all that wait; the request holds the result."""

    async def shutdown(self, timeout: float) -> bool:
        """Begin no more calls and wait for those that run. False if some still run after ``timeout`` seconds."""

    def stop_waiting(self) -> None:
        """Let ``shutdown`` wait for calls no longer."""


_current: ContextVar[Callable[[], Runner | None]] = ContextVar("current", default=lambda: None)
"""Returns the runner whose listener runs here, while it runs. Tasks that a listener starts inherit it."""


def called_by(runner: Runner) -> bool:
    """Whether the caller is a listener of this runner that still runs, or was started by one."""
    return _current.get()() is runner


def run_listener(
    listener: Listener, *, concurrency: int, finished: Callable[[ConsumeRequest], None], name: str = ""
) -> Runner:
    """The runner for a listener: in the event loop for a coroutine function, else in threads. Raises UsageError.

    ``name`` is what errors call the listener.
    """
    callbacks.check_callable(listener, "The listener")
    if callbacks.is_coroutine_function(listener):
        return LoopRunner(listener, concurrency, finished, name)
    return ThreadRunner(listener, concurrency, finished, name)


class LoopRunner:
    """Runs a coroutine function with ``concurrency`` workers in the event loop."""

    def __init__(
        self, listener: Listener, concurrency: int, finished: Callable[[ConsumeRequest], None], name: str
    ) -> None:
        self._listener: Any = listener
        self._name = name
        self._finished = finished
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[PulledBatch] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._waking = False
        """A worker was woken and has not run yet; it wakes the next one if it finds more than one call."""
        self._busy: list[ConsumeRequest | None] = [None] * concurrency
        """The call of each worker."""
        self._workers = [self._loop.create_task(self._work(number)) for number in range(concurrency)]
        self._ended = False
        self._quiet = asyncio.Event()

    @property
    def running(self) -> Sequence[ConsumeRequest]:
        """The calls that run now."""
        return [request for request in self._busy if request is not None]

    def submit(self, batch: PulledBatch) -> None:
        """Add calls."""
        self._waiting.append(batch)
        self._wake()

    def _wake(self) -> None:
        while self._idle and not self._waking:
            waiter = self._idle.popleft()
            if not waiter.done():
                waiter.set_result(None)
                self._waking = True

    async def _work(self, number: int) -> None:
        """One worker: take the first batch and run its calls, until the runner is shut down."""
        waiting, busy = self._waiting, self._busy
        _current.set(lambda: None if busy[number] is None else self)
        resumed = monotonic()
        while not self._ended:
            while not waiting:
                waiter = self._loop.create_future()
                self._idle.append(waiter)
                await waiter
                self._waking = False
                resumed = monotonic()
            batch = waiting[0]
            if len(waiting) > 1 or batch.left > 1:
                self._wake()
            try:
                resumed = await self._run(number, batch, resumed)
            finally:
                busy[number] = None
                if self._ended and not self.running:
                    self._quiet.set()
            if waiting and waiting[0] is batch:
                waiting.popleft()

    async def _run(self, number: int, batch: PulledBatch, resumed: float) -> float:
        """Run the calls of a batch that no other worker takes; returns when the worker last yielded to the loop."""
        listener, finished, busy = self._listener, self._finished, self._busy
        request = busy[number] = batch.request()
        process_queue, claims, packed = batch.process_queue, request.claims, batch.packed
        now = monotonic()
        for argument in batch.arguments:
            if packed:
                busy[number] = None
                await unpack(argument if isinstance(argument, list) else (argument,))
                if self._ended:
                    return resumed
                busy[number] = request
                resumed = now = monotonic()
            request.argument = argument
            if process_queue.dropped or (claims and not request.claim()):
                finished(request)
                continue
            request.began = now
            try:
                outcome = await listener(argument)
                if outcome is not None:
                    request.accept(outcome, self._name)
            except BaseException as error:
                if self._is_end(error):
                    raise
                request.fail(_failure_of_listener(error))
                if isinstance(error, asyncio.CancelledError) and self._workers[number].cancelling():
                    self._replace_worker(number, request)
                    raise
            request.took = (now := monotonic()) - request.began
            finished(request)
            if request.outcome is not None or request.expired:
                request = busy[number] = batch.request()
            if now - resumed > YIELD_AFTER:
                busy[number] = None
                await asyncio.sleep(0)
                busy[number] = request
                resumed = now = monotonic()
        return resumed

    def _is_end(self, error: BaseException) -> bool:
        """Whether an error ends the program, the event loop or this runner, not only one call of the listener."""
        if isinstance(error, asyncio.CancelledError):
            return self._ended or all(task.cancelling() for task in asyncio.all_tasks(self._loop))
        return isinstance(error, _ENDS_PROGRAM)

    def _replace_worker(self, number: int, request: ConsumeRequest) -> None:
        """The listener cancelled the task of its worker: finish its call, and start another worker."""
        request.took = monotonic() - request.began
        self._finished(request)
        self._workers[number] = self._loop.create_task(self._work(number))

    async def consume(self, request: ConsumeRequest) -> None:
        """Run a call now."""
        try:
            request.accept(await self._listener(request.argument), self._name)
        except _ENDS_PROGRAM:
            raise
        except BaseException as error:
            request.fail(error)

    async def shutdown(self, timeout: float) -> bool:
        """Begin no more calls and wait; calls that still run after ``timeout`` are cancelled and then abandoned."""
        self._ended = True
        for batch in self._waiting:
            batch.close()
        self._waiting.clear()
        if self.running:
            await _in_time(self._quiet, timeout)
        quiet = not self.running
        for worker in self._workers:
            worker.cancel()
        await asyncio.wait(self._workers, timeout=CANCELLED)
        return quiet

    def stop_waiting(self) -> None:
        """Let ``shutdown`` wait no longer."""
        self._quiet.set()


class ThreadRunner:
    """Runs a plain function in up to ``concurrency`` threads, started on demand."""

    def __init__(
        self, listener: Listener, concurrency: int, finished: Callable[[ConsumeRequest], None], name: str
    ) -> None:
        self._listener: Any = listener
        self._name = name
        self._concurrency = concurrency
        self._finished = finished
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[PulledBatch] = deque()
        self._calls: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """True makes an idle thread look for calls, False ends it."""
        self._done: deque[ConsumeRequest] = deque()
        self._draining = False
        self._threads: list[threading.Thread] = []
        self._busy: dict[int, ConsumeRequest] = {}
        """The call of each thread."""
        self._ended = False
        self._quiet = asyncio.Event()

    @property
    def running(self) -> Sequence[ConsumeRequest]:
        """The calls that run now."""
        return list(self._busy.values())

    def submit(self, batch: PulledBatch) -> None:
        """Add calls."""
        left = batch.left
        self._waiting.append(batch)
        self._calls.put(True)
        while len(self._threads) < self._concurrency and len(self._threads) - len(self._busy) < left:
            thread = threading.Thread(target=self._work, name=f"eruca-listener-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        waiting, calls = self._waiting, self._calls
        number = threading.get_ident()
        _current.set(lambda: self if number in self._busy else None)
        while calls.get():
            while waiting:
                try:
                    batch = waiting[0]
                except IndexError:  # another thread took it
                    break
                if calls.empty() and (len(waiting) > 1 or batch.left > 1):
                    calls.put(True)
                self._run_batch(batch)
                with contextlib.suppress(ValueError):
                    waiting.remove(batch)
        self._drain_soon()

    def _run_batch(self, batch: PulledBatch) -> None:
        """Run the calls of a batch that no other thread takes."""
        number, done = threading.get_ident(), self._done
        for argument in batch.arguments:
            if self._ended:
                return
            request = batch.request()
            request.argument = argument
            if request.claim():
                request.began = monotonic()
                self._busy[number] = request
                self._run(request)
                request.took = monotonic() - request.began
                del self._busy[number]
            done.append(request)
            if not self._draining:
                self._drain_soon()

    def _run(self, request: ConsumeRequest) -> None:
        try:
            request.accept(outcome_of(self._listener(request.argument), self._loop), self._name)
        except BaseException as error:  # sys.exit() would end this thread only
            request.fail(error)

    def _drain_soon(self) -> None:
        self._draining = True
        # The event loop may have been closed under a listener that did not end.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        self._draining = False
        while self._done:
            self._finished(self._done.popleft())
        if self._ended and not self._busy:
            self._quiet.set()

    async def consume(self, request: ConsumeRequest) -> None:
        """Run a call now, in a thread of its own."""
        await asyncio.to_thread(self._run, request)

    async def shutdown(self, timeout: float) -> bool:
        """Begin no more calls and wait; a call that still runs after ``timeout`` is left to its daemon thread."""
        self._ended = True
        for batch in tuple(self._waiting):
            batch.close()
        for _ in self._threads:
            self._calls.put(False)
        if self._busy:
            await _in_time(self._quiet, timeout)
        quiet = not self._busy
        self._drain()
        return quiet

    def stop_waiting(self) -> None:
        """Let ``shutdown`` wait no longer."""
        self._quiet.set()


async def _in_time(event: asyncio.Event, timeout: float) -> None:
    """Wait for an event, ``timeout`` seconds at most."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout):
            await event.wait()


def outcome_of(result: Any, loop: asyncio.AbstractEventLoop) -> Any:
    """What a plain function returned; an awaitable, as of a lambda that calls a coroutine function, is awaited."""
    if result is not None and inspect.isawaitable(result):
        return asyncio.run_coroutine_threadsafe(_await(result), loop).result()
    return result


def resolving(listener: Listener) -> Listener:
    """A listener of the same kind that returns no awaitables besides its own; call a plain one in a thread."""
    if callbacks.is_coroutine_function(listener):
        return listener
    given: Any = listener
    loop = asyncio.get_running_loop()
    return lambda messages: outcome_of(given(messages), loop)


async def _await(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _failure_of_listener(error: BaseException) -> BaseException:
    """What failed a call; a cancellation is an error of the listener."""
    if isinstance(error, asyncio.CancelledError):
        return UsageError(f"The listener was cancelled by itself or what it awaited: {error!r}")
    return error
