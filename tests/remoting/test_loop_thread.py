"""An event loop in a thread: results, errors, interrupts, forks, and its end."""

from __future__ import annotations

import asyncio
import multiprocessing
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest

from eruca.remoting.loop_thread import LoopThread, PerProcess, Unusable


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    made = LoopThread("test-loop")
    yield made
    made.close()


async def name_of_thread() -> str:
    await asyncio.sleep(0)
    return threading.current_thread().name


def test_work_runs_in_the_thread_and_its_result_comes_back(thread: LoopThread) -> None:
    assert thread.run(name_of_thread()) == "test-loop"
    assert [each.result(5) for each in [thread.submit(name_of_thread()) for _ in range(3)]] == ["test-loop"] * 3


def test_an_error_of_the_work_is_raised_where_it_is_waited_for(thread: LoopThread) -> None:
    async def fail() -> None:
        raise LookupError("nothing there")

    with pytest.raises(LookupError, match="nothing there"):
        thread.run(fail())
    assert thread.run(name_of_thread()) == "test-loop"


def test_a_blocking_call_in_its_own_thread_is_an_error_and_no_deadlock(thread: LoopThread) -> None:
    async def ask_itself() -> None:
        thread.run(name_of_thread())

    with pytest.raises(RuntimeError, match="would wait for itself"):
        thread.run(ask_itself())


def test_close_cancels_what_runs_and_closes_the_loop() -> None:
    thread = LoopThread("test-loop")
    started, cancelled = threading.Event(), threading.Event()

    async def wait() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    future = thread.submit(wait())
    assert started.wait(5) and not thread.over
    thread.close()
    thread.close()
    assert cancelled.is_set() and future.cancelled() and thread.over and thread.loop.is_closed()
    with pytest.raises(RuntimeError, match="has ended"):
        thread.run(name_of_thread())


def test_the_owner_gives_the_errors_its_own_words() -> None:
    thread = LoopThread("test-loop", lambda reason: LookupError(reason.name))
    thread.close()
    with pytest.raises(LookupError, match=Unusable.ENDED.name):
        thread.submit(name_of_thread())


def use_in_child(pipe: Connection, thread: LoopThread, held: PerProcess[LoopThread]) -> None:
    try:
        thread.run(name_of_thread())
    except RuntimeError as error:
        pipe.send(str(error))
    thread.close()  # returns at once: there is nothing to end
    pipe.send(held.get().run(name_of_thread()))
    held.get().close()


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_a_forked_child_is_refused_and_makes_its_own(thread: LoopThread) -> None:
    numbers = iter(range(9))
    held = PerProcess(lambda: LoopThread(f"loop-{next(numbers)}"))
    assert held.made is None and held.get() is held.get() is held.made
    context: Any = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork with threads, which is what is tested
        child = context.Process(target=use_in_child, args=(there, thread, held))
        child.start()
    assert here.poll(60) and "before a fork" in here.recv()
    assert here.poll(60) and here.recv() == "loop-1"
    child.join(30)
    assert child.exitcode == 0
    assert held.get().run(name_of_thread()) == "loop-0", "the parent's still runs"
    old = held.replace(None)
    assert old is not None
    old.close()


def test_an_interpreter_ends_although_a_loop_still_works() -> None:
    program = """
import asyncio, threading
from eruca.remoting.loop_thread import LoopThread
thread = LoopThread("busy")
thread.submit(asyncio.sleep(3600))
threading.Thread(target=lambda: thread.run(asyncio.sleep(3600)), daemon=True).start()
import atexit; atexit.register(thread.halt, 1.0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
