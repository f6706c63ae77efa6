"""The flush thread: the end of each job is told once, in the loop's thread, waited for or not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from eruca.broker.store.flush_thread import FlushThread

LONG = 20.0


class Told:
    """A flush thread and how its jobs ended."""

    def __init__(self) -> None:
        self.ends: list[Exception | None] = []
        self.threads: set[threading.Thread] = set()
        self.news = asyncio.Event()
        self.thread = FlushThread(asyncio.get_running_loop(), self._ended)

    def _ended(self, fault: Exception | None) -> None:
        self.ends.append(fault)
        self.threads.add(threading.current_thread())
        self.news.set()


@pytest.fixture
async def told() -> AsyncIterator[Told]:
    told = Told()
    yield told
    await asyncio.to_thread(told.thread.stop)
    assert told.threads <= {threading.main_thread()}


async def test_a_quick_job_is_waited_for(told: Told) -> None:
    assert told.thread.begin(lambda: None, LONG)
    assert told.ends == [None]
    assert told.thread.begin(lambda: None, LONG)
    await asyncio.sleep(0)
    assert told.ends == [None, None], "each is told once"


async def test_a_slow_job_is_told_later(told: Told) -> None:
    go_on = threading.Event()
    assert not told.thread.begin(lambda: assert_set(go_on), 0.001)
    await asyncio.sleep(0)
    assert told.ends == [], "the loop turns while it is under way"
    go_on.set()
    await asyncio.wait_for(told.news.wait(), LONG)
    assert told.ends == [None]
    assert told.thread.begin(lambda: None, LONG), "the next one can be waited for again"
    await asyncio.sleep(0)
    assert told.ends == [None, None]


async def test_without_patience_the_loop_goes_on_at_once(told: Told) -> None:
    assert not told.thread.begin(lambda: None)
    assert told.ends == []
    await asyncio.wait_for(told.news.wait(), LONG)
    assert told.ends == [None]


@pytest.mark.parametrize("patience", [0.0, LONG])
async def test_what_went_wrong_is_told(told: Told, patience: float) -> None:
    fault = OSError(5, "Input/output error")

    def fail() -> None:
        raise fault

    told.thread.begin(fail, patience)
    await asyncio.wait_for(told.news.wait(), LONG)
    assert told.ends == [fault]
    assert told.thread.begin(lambda: None, LONG)
    assert told.ends == [fault, None]


async def test_ends_that_race_with_the_patience_are_told_once(told: Told) -> None:
    """Jobs about as long as the patience: whichever comes first, none is told twice or not at all."""
    for count in range(1, 301):
        pause = threading.Event()
        told.news.clear()
        if not told.thread.begin(lambda pause=pause: pause.wait(0.0002), 0.0002):  # type: ignore[misc]
            await asyncio.wait_for(told.news.wait(), LONG)
        assert len(told.ends) == count


async def test_stopping_waits_for_the_job_under_way() -> None:
    told, go_on = Told(), threading.Event()
    told.thread.begin(lambda: assert_set(go_on))
    stopping = asyncio.ensure_future(asyncio.to_thread(told.thread.stop))
    go_on.set()
    await asyncio.wait_for(stopping, LONG)
    await asyncio.wait_for(told.news.wait(), LONG)
    assert told.ends == [None]


def assert_set(event: threading.Event) -> None:
    assert event.wait(LONG)
