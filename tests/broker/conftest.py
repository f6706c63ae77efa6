"""Brokers that run in this process, for tests that ask them over sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.support.desk import Desk


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    """A broker that runs."""
    desk = Desk(tmp_path)
    await desk.start()
    yield desk
    await desk.stop()


@pytest.fixture
async def prepared(tmp_path: Path) -> AsyncIterator[Callable[[Callable[[Desk], None]], Awaitable[Desk]]]:
    """Starts a broker whose configuration the test has changed."""
    desks: list[Desk] = []

    async def start(prepare: Callable[[Desk], None]) -> Desk:
        desk = Desk(tmp_path)
        prepare(desk)
        await desk.start()
        desks.append(desk)
        return desk

    yield start
    for desk in desks:
        await desk.stop()
