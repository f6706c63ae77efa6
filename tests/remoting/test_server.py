"""A server's connections: which are closed, which are turned away, and what the kernel is asked to watch."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import Any

import pytest

from eruca.protocol import api, frame
from eruca.protocol.header import Empty
from eruca.protocol.headers.offsets import OffsetReply, QueueOf
from eruca.remoting import Call, Channels, Connection, ConnectionLimits, Reply, Router, Routes, Server
from tests.support.pairs import eventually

LARGE = 8 << 20
"""More than the sockets of both sides hold."""
QUICK = ConnectionLimits(idle=0.2, sweep_every=0.05)

routes: Routes[None] = Routes()


@routes.on(api.GET_MAX_OFFSET)
def small(_: None, call: Call[QueueOf]) -> Reply:
    return Reply(header=OffsetReply(offset=call.header.queue_id))


@routes.on(api.GET_ALL_CONSUMER_OFFSET)
def large(_: None, call: Call[Empty]) -> Reply:
    return Reply(body=bytes(LARGE))


@routes.on(api.GET_ALL_DELAY_OFFSET)
async def large_for_ever(_: None, call: Call[Empty]) -> Reply:
    """Answers, and works on another answer for which there is no room."""
    call.connection.reply(call, Reply(body=bytes(LARGE)))
    await call.connection.drain()
    await call.connection.room()
    return Reply(body=bytes(LARGE))


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[Server]:
    server = Server(Router(None, [routes]), **options)
    await server.start("127.0.0.1", 0)
    try:
        yield server
    finally:
        await server.stop(grace=0.2)


def ask(server: Server, endpoint: api.Endpoint[Any, Any]) -> socket.socket:
    """A peer that has asked, and has read nothing so far."""
    peer = socket.create_connection(("127.0.0.1", server.port))
    peer.sendall(frame.encode(frame.JSON, endpoint.code, 1, 0, None, 0))
    return peer


def both_ends(port: int) -> list[socket.socket]:
    """Both ends of the one connection of this process to a port of its own."""
    found: dict[object, socket.socket] = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            copy = os.dup(int(name))
            try:
                end = socket.socket(fileno=copy)
            except OSError:  # no socket
                os.close(copy)
                continue
            with suppress(OSError):  # a listening one
                names = end.getsockname(), end.getpeername()
                if end.family == socket.AF_INET and port in (names[0][1], names[1][1]) and names not in found:
                    found[names] = end
                    continue
            end.close()
    assert len(found) == 2
    return list(found.values())


@pytest.mark.parametrize("endpoint", [api.GET_ALL_CONSUMER_OFFSET, api.GET_ALL_DELAY_OFFSET], ids=["idle", "at work"])
async def test_peers_that_never_read_are_cut_off_soon_after_the_idle_limit(endpoint: api.Endpoint[Any, Any]) -> None:
    made: list[Connection] = []
    async with serving(limits=QUICK, on_made=made.append) as server:
        with ExitStack() as peers:
            for _ in range(50):
                peers.enter_context(ask(server, endpoint))
            await eventually(lambda: len(made) == 50 and not server.connections)


async def test_a_peer_that_reads_slowly_is_not_cut_off() -> None:
    async with serving(limits=ConnectionLimits(idle=2.0, sweep_every=0.1)) as server:
        with socket.socket() as peer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
            peer.connect(("127.0.0.1", server.port))
            peer.sendall(frame.encode(frame.JSON, api.GET_ALL_CONSUMER_OFFSET.code, 1, 0, None, 0))
            peer.setblocking(False)
            loop = asyncio.get_running_loop()
            size = 0
            while size < LARGE:
                data = await loop.sock_recv(peer, 32 << 10)
                assert data, f"the connection ended after {size} bytes"
                size += len(data)
                await asyncio.sleep(0.01)  # its pace: longer in all than the limit
            assert size > LARGE


async def test_accepted_and_opened_connections_are_probed_by_the_kernel() -> None:
    settings = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
    settings += [
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 6),
    ]
    async with serving() as server:
        channels = Channels()
        await channels.call(f"127.0.0.1:{server.port}", api.GET_MAX_OFFSET, QueueOf(topic="T", queue_id=1))
        for end in both_ends(server.port):
            with end:
                assert [end.getsockopt(level, option) for level, option, _ in settings] == [
                    each[2] for each in settings
                ]
        await channels.close()
