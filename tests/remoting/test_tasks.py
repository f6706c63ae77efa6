"""The tasks of a daemon: one that ends by itself leaves a line, and its owner hears of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from structlog.testing import capture_logs

from eruca.remoting.readiness import Readiness
from eruca.remoting.tasks import Tasks, end, unless


async def fails() -> None:
    raise ZeroDivisionError("planted")


async def returns() -> None:
    await asyncio.sleep(0)


async def meets_a_cancelled_future() -> None:
    waiter = asyncio.get_running_loop().create_future()
    waiter.cancel()
    await waiter


@pytest.mark.parametrize(
    ("work", "cause"),
    [
        (fails, "ZeroDivisionError: planted"),
        (returns, "it returned"),
        (meets_a_cancelled_future, "it was cancelled from within"),
    ],
)
async def test_a_task_that_ends_by_itself_is_a_fault(work: Callable[[], Coroutine[Any, Any, None]], cause: str) -> None:
    readiness, over = Readiness(), asyncio.Event()
    readiness.restore("start")
    tasks = Tasks(readiness)
    tasks.on_fault = over.set
    with capture_logs() as said:
        tasks.start("delays", work())
        async with asyncio.timeout(5):
            await over.wait()
        await asyncio.gather(tasks.start("second", returns()))
        await asyncio.sleep(0)
    assert tasks.fault == f"the task delays has ended: {cause}"
    assert (readiness.ready, dict(readiness.reasons)) == (False, {"tasks": tasks.fault})
    assert [(line["event"], line["log_level"], line["task"]) for line in said] == [
        ("task_ended", "error", "delays"),
        ("task_ended", "error", "second"),
    ]
    assert said[0]["cause"] == cause
    assert isinstance(said[0]["exc_info"], ZeroDivisionError) is (work is fails)


async def forever() -> None:
    await asyncio.Event().wait()


async def stops_slowly() -> None:
    try:
        await forever()
    finally:
        async with asyncio.timeout(5):
            await asyncio.sleep(0)


async def raises_at_its_end() -> None:
    try:
        await forever()
    except asyncio.CancelledError:
        raise OSError("the disk fails") from None


@pytest.mark.parametrize("work", [forever, stops_slowly])
async def test_a_task_that_its_owner_ends_is_none(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    tasks = Tasks()
    started = [tasks.start(f"task {number}", work()) for number in range(3)]
    await asyncio.sleep(0)
    await end(started)
    await asyncio.sleep(0)
    assert all(task.cancelled() for task in started)
    assert (tasks.fault, dict(tasks.readiness.reasons)) == (None, {"start": "it has not started yet"})


async def test_an_error_at_the_end_of_a_task_is_reported() -> None:
    tasks = Tasks()
    task = tasks.start("retention", raises_at_its_end())
    await asyncio.sleep(0)
    await end([task])
    await asyncio.sleep(0)
    assert tasks.fault == "the task retention has ended: OSError: the disk fails"


def test_a_daemon_is_ready_while_no_part_has_a_reason_against_it() -> None:
    readiness = Readiness()
    assert not readiness.ready
    readiness.restore("start")
    assert readiness.ready
    readiness.withdraw("disk", "it is full")
    readiness.withdraw("disk", "it is still full")
    readiness.withdraw("tasks", "one has ended")
    assert dict(readiness.reasons) == {"disk": "it is still full", "tasks": "one has ended"}
    readiness.restore("disk")
    assert not readiness.ready
    readiness.restore("tasks")
    assert readiness.ready


async def test_work_that_ends_before_the_event_is_done() -> None:
    assert await unless(asyncio.Event(), returns())


@pytest.mark.parametrize("work", [forever, stops_slowly])
async def test_work_is_cancelled_by_the_event_and_has_ended_then(
    work: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    over = asyncio.Event()
    asyncio.get_running_loop().call_soon(over.set)
    async with asyncio.timeout(5):
        assert not await unless(over, work())


async def test_an_error_of_the_work_is_that_of_its_caller_also_after_the_event() -> None:
    over = asyncio.Event()
    with pytest.raises(ZeroDivisionError, match="planted"):
        await unless(over, fails())
    asyncio.get_running_loop().call_soon(over.set)
    with pytest.raises(OSError, match="the disk fails"):
        await unless(over, raises_at_its_end())
