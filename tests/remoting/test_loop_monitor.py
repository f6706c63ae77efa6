"""The latency of the event loop, after which requests are refused."""

from __future__ import annotations

import asyncio

from eruca.remoting.loop_monitor import LoopMonitor


async def test_one_long_iteration_is_no_wait_and_two_in_succession_are() -> None:
    monitor = LoopMonitor()
    monitor.start()
    monitor.last -= 20  # as if so many seconds had passed since
    assert monitor.waited == 0
    async with asyncio.timeout(10):
        while monitor.former < 20:  # noqa: ASYNC110 (a timer of the loop)
            await asyncio.sleep(0.01)
    monitor.last -= 30
    assert monitor.waited >= 20_000
    monitor.stop()


async def test_the_time_before_the_start_is_no_long_iteration() -> None:
    """The store is opened meanwhile."""
    monitor = LoopMonitor()
    monitor.last -= 30
    monitor.start()
    monitor.last -= 20
    assert monitor.waited == 0
    monitor.stop()
