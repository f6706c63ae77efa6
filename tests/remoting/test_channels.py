"""Channels: who waits for a connection, and no longer waits."""

from __future__ import annotations

import asyncio
import gc
from functools import partial
from typing import Any

import pytest

from eruca.remoting import Channels, Router
from eruca.remoting.server import Server
from tests.support.ports import free_port


async def test_who_is_cancelled_at_the_moment_that_the_connection_is_made_is_cancelled() -> None:
    """Otherwise a task that is stopped would go on, and its stop wait for it without end."""
    server = Server(Router(None, []))
    await server.start("127.0.0.1", 0)
    channels, address = Channels(), f"127.0.0.1:{server.port}"
    asking = asyncio.ensure_future(channels.get(address, timeout=30))
    await asyncio.sleep(0)
    channels._connecting.start(address, partial(channels.get, address)).add_done_callback(lambda _: asking.cancel())
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert channels.ready(address) is not None
    await channels.close()
    await server.stop(0.0)


async def test_an_attempt_to_connect_that_fails_when_nobody_waits_any_more_is_no_report_of_asyncio() -> None:
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
    channels = Channels()
    asking = asyncio.ensure_future(channels.get(f"127.0.0.1:{free_port()}", timeout=30))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    for _ in range(20):  # the attempt fails meanwhile
        await asyncio.sleep(0.01)
    del asking
    gc.collect()
    await channels.close()
    assert reports == []
