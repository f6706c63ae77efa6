"""What runs listeners: how many are at work at once, and that none begins when it must not."""

from __future__ import annotations

import asyncio
import threading

import pytest

from eruca.client import ReceivedMessage
from eruca.client.consuming.consume_request import ConsumeRequest, PulledBatch
from eruca.client.consuming.process_queue import ProcessQueue
from eruca.client.consuming.runners import run_listener
from eruca.client.message import received
from eruca.client.outcomes import Listener
from eruca.protocol.queues import MessageQueue
from tests.client.conftest import eventually
from tests.support.received import stored

AT_ONCE = 5
QUEUE = MessageQueue("T", "a", 2)


class Listeners:
    """Either kind of listener; each notes that it began, and ends when it is let go."""

    def __init__(self) -> None:
        self.begun: list[ReceivedMessage] = []
        self.most = 0
        self._at_work = 0
        self._go = threading.Event()
        self._went = asyncio.Event()
        self._lock = threading.Lock()

    def of(self, kind: str) -> Listener:
        return self.coroutine if kind == "coroutine" else self.function

    def _begin(self, message: ReceivedMessage) -> None:
        with self._lock:
            self.begun.append(message)
            self._at_work += 1
            self.most = max(self.most, self._at_work)

    def _end(self) -> None:
        with self._lock:
            self._at_work -= 1

    async def coroutine(self, message: ReceivedMessage) -> None:
        self._begin(message)
        await self._went.wait()
        self._end()

    def function(self, message: ReceivedMessage) -> None:
        self._begin(message)
        self._go.wait(30)
        self._end()

    def let_go(self) -> None:
        self._go.set()
        self._went.set()


def lot(count: int, *, dropped: bool = False) -> PulledBatch:
    run = ProcessQueue(QUEUE, 0)
    run.dropped = dropped
    return PulledBatch(run, received(stored(b"x") * count, QUEUE))


@pytest.mark.parametrize("kind", ["coroutine", "function"])
async def test_as_many_are_at_work_as_may_be_however_the_messages_came(kind: str) -> None:
    """One pull with many messages, and many with one: all listeners are busy, and each message comes once."""
    listeners, finished = Listeners(), list[object]()
    runner = run_listener(listeners.of(kind), concurrency=AT_ONCE, finished=lambda work: finished.append(work.argument))
    lots = [lot(count) for count in (1, 3 * AT_ONCE, 1, 2)]
    pieces = [lot(count) for count in (1, 3 * AT_ONCE, 1, 2)]
    for each in lots:
        runner.submit(each)
    await eventually(lambda: len(runner.running) == AT_ONCE)
    assert listeners.most == AT_ONCE and not finished
    listeners.let_go()
    await eventually(lambda: len(finished) == 3 * AT_ONCE + 4)
    assert len({id(piece) for piece in finished}) == len(finished) == sum(each.left for each in pieces)
    assert listeners.most == AT_ONCE and sum(each.left for each in lots) == 0
    assert await runner.shutdown(30)


@pytest.mark.parametrize("kind", ["coroutine", "function"])
async def test_one_that_waits_does_not_hold_up_the_others_of_its_pull(kind: str) -> None:
    listeners, finished = Listeners(), list[object]()
    waiting = threading.Event()
    first = True

    async def coroutine(message: ReceivedMessage) -> None:
        nonlocal first
        if first:
            first = False
            await listeners.coroutine(message)

    def function(message: ReceivedMessage) -> None:
        if not waiting.is_set():
            waiting.set()
            listeners.function(message)

    listener: Listener = coroutine if kind == "coroutine" else function
    runner = run_listener(listener, concurrency=2, finished=lambda work: finished.append(work.argument))
    runner.submit(lot(40))
    await eventually(lambda: len(finished) == 39)
    listeners.let_go()
    await eventually(lambda: len(finished) == 40)
    assert await runner.shutdown(30)


@pytest.mark.parametrize("kind", ["coroutine", "function"])
async def test_none_begins_after_the_halt(kind: str) -> None:
    listeners = Listeners()
    runner = run_listener(listeners.of(kind), concurrency=2, finished=lambda work: None)
    for _ in range(3):
        runner.submit(lot(4))
    await eventually(lambda: len(runner.running) == 2)
    halting = asyncio.create_task(runner.shutdown(30))
    await asyncio.sleep(0)
    listeners.let_go()
    assert await halting
    assert len(listeners.begun) == 2 and not runner.running


@pytest.mark.parametrize("kind", ["coroutine", "function"])
async def test_messages_of_a_dropped_run_are_not_begun_but_told(kind: str) -> None:
    listeners, finished = Listeners(), list[ConsumeRequest]()
    listeners.let_go()
    runner = run_listener(listeners.of(kind), concurrency=2, finished=finished.append)
    runner.submit(lot(3, dropped=True))
    runner.submit(lot(1))
    await eventually(lambda: len(finished) == 4)
    assert len(listeners.begun) == 1
    assert await runner.shutdown(30)
