"""Brokers that run in this process, for tests that ask them over sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from eruca.protocol import frame
from eruca.remoting import Router
from tests.broker.elected import Group
from tests.support.desk import Desk
from tests.support.names import Names


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    """A broker that runs."""
    async with Desk(tmp_path) as desk:
        yield desk


@pytest.fixture
async def names(tmp_path: Path) -> AsyncIterator[Names]:
    """A nameserver that runs."""
    async with Names(tmp_path) as names:
        yield names


@pytest.fixture
async def group(tmp_path: Path, names: Names) -> AsyncIterator[Group]:
    """Brokers that elect their master; the test starts them."""
    async with Group(tmp_path, names) as group:
        yield group


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


@pytest.fixture
def dispatched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The codes of all requests that took the ordinary way."""
    seen: list[int] = []
    dispatch = Router.dispatch

    def noted(self: Router[object], connection: object, head: frame.Head[object], *rest: object) -> None:
        seen.append(head.code)
        dispatch(self, connection, head, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Router, "dispatch", noted)
    return seen
