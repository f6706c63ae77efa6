"""Channels: who waits for a connection, and no longer waits."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from eruca.remoting import Channels, Router
from eruca.remoting.server import Server


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
