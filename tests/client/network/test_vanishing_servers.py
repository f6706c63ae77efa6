"""Servers that vanish at any step of a start or a stop: no error of a background task is left to asyncio to report."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from eruca.client import LitePullConsumer, Message, Producer, PullConsumer, PushConsumer
from eruca.client.errors import ClientError
from tests.client.conftest import HASTY
from tests.support.scripted import Scripted

STEPS = (0, 1, 2, 3, 5, 8, 13, 21, 34, 55)
"""Turns of the loop after which a server vanishes."""
KINDS: dict[str, Callable[[str], Any]] = {
    "producer": lambda address: Producer("g", nameserver=address, settings=HASTY, send_timeout=0.2),
    "push": lambda address: PushConsumer("g", print, nameserver=address, settings=HASTY).subscribe("T"),
    "orderly": lambda address: PushConsumer("g", print, nameserver=address, settings=HASTY, orderly=True).subscribe(
        "T"
    ),
    "lite": lambda address: LitePullConsumer("g", nameserver=address, settings=HASTY).subscribe("T"),
    "pull": lambda address: PullConsumer("g", nameserver=address, settings=HASTY),
}


@pytest.fixture
async def reports() -> list[dict[str, Any]]:
    """What asyncio had to report."""
    found: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: found.append(context))
    return found


async def after(turns: int, vanish: Callable[[], Awaitable[None]]) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)
    await vanish()


@pytest.mark.parametrize("server", ["nameserver", "broker"])
@pytest.mark.parametrize("kind", KINDS)
async def test_nothing_is_left_to_report(
    kind: str, server: str, reports: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    at_once = [
        with_servers(KINDS[kind], server, turns, while_it) for while_it in ("starts", "stops") for turns in STEPS
    ]
    await asyncio.gather(*at_once)
    gc.collect()
    await asyncio.sleep(0)
    assert reports == []
    assert "background task of the client failed" not in caplog.text


async def with_servers(make: Callable[[str], Any], server: str, turns: int, while_it: str) -> None:
    async with Scripted("names") as names, Scripted("broker-a") as broker:
        for topic in ("T", "%RETRY%g"):
            names.knows(topic, broker)
        await vanishes(make(names.address), names if server == "nameserver" else broker, turns, while_it)


async def vanishes(client: Any, server: Scripted, turns: int, while_it: str) -> None:
    """A server vanishes while a client starts or stops."""
    vanishing: asyncio.Task[None] | None = None
    with contextlib.suppress(ClientError):
        if while_it == "stops":
            await client.start()
            if isinstance(client, Producer):
                client.start_send(Message("T", b"y")).add_done_callback(lambda done: done.exception())
        vanishing = asyncio.create_task(after(turns, server.stop))
        await (client.stop() if while_it == "stops" else client.start())
    if vanishing is not None:
        await vanishing
    with contextlib.suppress(ClientError):
        await client.stop()
