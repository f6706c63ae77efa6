"""SharedTasks: one work, several who wait for it."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from eruca.remoting.shared_tasks import SharedTasks


async def test_all_who_wait_get_the_result_of_one_work() -> None:
    tasks, calls = SharedTasks[str, int](), 0

    async def work() -> int:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0)
        return 7

    assert await asyncio.gather(*(tasks.result("a", work) for _ in range(3))) == [7, 7, 7]
    assert (calls, "a" in tasks) == (1, False)
    assert (await tasks.result("a", work), calls) == (7, 2)


async def test_who_comes_in_the_turn_in_which_a_work_ends_gets_the_next_one() -> None:
    tasks, calls = SharedTasks[str, int](), 0

    async def work() -> int:
        nonlocal calls
        calls += 1
        asyncio.get_running_loop().call_soon(lambda: later.append(tasks.start("a", work)) if not later else None)
        return calls

    later: list[asyncio.Task[int]] = []
    first = tasks.start("a", work)
    await asyncio.wait({first})
    assert (first.result(), await later[0]) == (1, 2)
    await asyncio.sleep(0)
    assert "a" not in tasks


async def test_an_error_that_nobody_waits_for_any_more_is_no_report_of_asyncio() -> None:
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
    tasks, gate = SharedTasks[str, None](), asyncio.Event()

    async def work() -> None:
        await gate.wait()
        raise OSError("gone")

    waits = asyncio.ensure_future(tasks.result("a", work))
    await asyncio.sleep(0)
    stays = asyncio.ensure_future(tasks.result("a", work))
    await asyncio.sleep(0)
    waits.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waits
    gate.set()
    with pytest.raises(OSError, match="gone"):  # the other one still gets it
        await stays
    gate.clear()
    leaves = asyncio.ensure_future(tasks.result("a", work))
    await asyncio.sleep(0)
    leaves.cancel()
    await asyncio.sleep(0)
    gate.set()
    while "a" in tasks:  # noqa: ASYNC110
        await asyncio.sleep(0)
    del waits, stays, leaves
    gc.collect()
    await asyncio.sleep(0)
    assert reports == []


async def test_close_cancels_what_runs() -> None:
    tasks = SharedTasks[str, None]()

    async def never_ends() -> None:
        await asyncio.Event().wait()

    waits = asyncio.ensure_future(tasks.result("a", never_ends))
    await asyncio.sleep(0)
    await tasks.close()
    with pytest.raises(asyncio.CancelledError):
        await waits
    assert "a" not in tasks
