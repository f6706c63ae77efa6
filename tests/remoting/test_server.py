"""A server's connections: which are closed, which are turned away, and what the kernel is asked to watch."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import Any

import pytest
from structlog.testing import capture_logs

from eruca.protocol import api, frame
from eruca.protocol.header import Empty
from eruca.protocol.headers.offsets import OffsetReply, QueueOf
from eruca.remoting import Call, Channels, Connection, Reply, Router, Routes
from eruca.remoting.connection_limits import ConnectionLimits, ServerLoad
from eruca.remoting.server import Server
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


def half_frame(server: Server, size: int) -> socket.socket:
    """A peer that has sent so many bytes of a longer frame."""
    peer = socket.create_connection(("127.0.0.1", server.port))
    peer.sendall((15 << 20).to_bytes(4, "big") + bytes(size - 4))
    return peer


def held(server: Server) -> list[int]:
    """The memory of unfinished frames by connection, in units of 100,000 bytes, the most first."""
    return sorted((connection.unfinished // 100_000 for connection in server.connections), reverse=True)


async def test_unfinished_frames_have_a_budget_in_all_and_the_largest_goes() -> None:
    with capture_logs() as said, ExitStack() as peers:
        async with serving(limits=ConnectionLimits(unfinished=1 << 20)) as server:
            for size in (300_000, 400_000, 200_000):
                peers.enter_context(half_frame(server, size))
            await eventually(lambda: held(server) == [4, 3, 2])
            peers.enter_context(half_frame(server, 160_000))
            await eventually(lambda: held(server) == [3, 2, 1])
            with ask(server, api.GET_MAX_OFFSET) as other:
                assert await asyncio.to_thread(other.recv, 4), "others are served"
    dropped = [line for line in said if line["event"] == "unfinished_frame_dropped"]
    assert [(line["bytes"] // 100_000, line["limit"]) for line in dropped] == [(4, 1 << 20)]


async def test_what_became_a_whole_frame_is_no_longer_in_the_budget() -> None:
    whole = frame.encode(frame.JSON, api.GET_MAX_OFFSET.code, 1, 0, None, 900_000) + bytes(900_000)
    async with serving(limits=ConnectionLimits(unfinished=1 << 20)) as server:
        with ExitStack() as peers:
            for _ in range(5):
                peer = peers.enter_context(socket.create_connection(("127.0.0.1", server.port)))
                await asyncio.to_thread(peer.sendall, whole)
                assert await asyncio.to_thread(peer.recv, 4)
            assert len(server.connections) == 5


async def test_answers_that_nobody_reads_have_a_budget_in_all() -> None:
    with capture_logs() as said, ExitStack() as peers:
        async with serving(limits=ConnectionLimits(unsent=3 * LARGE)) as server:
            for _ in range(8):
                peers.enter_context(ask(server, api.GET_ALL_CONSUMER_OFFSET))
            await eventually(lambda: any(line["event"] == "unread_connection_closed" for line in said))
            await eventually(lambda: 0 < sum(each.buffered for each in server.connections) <= 3 * LARGE)
            assert len(server.connections) < 8


async def test_what_was_read_is_no_longer_in_the_budget() -> None:
    async with serving(limits=ConnectionLimits(unsent=2 * LARGE)) as server:
        with ExitStack() as peers:
            for _ in range(5):
                peer = peers.enter_context(ask(server, api.GET_ALL_CONSUMER_OFFSET))
                size = 0
                while size < LARGE:
                    size += len(await asyncio.to_thread(peer.recv, 1 << 20))
            assert len(server.connections) == 5


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (ConnectionLimits(connections=3), "connections"),
        (ConnectionLimits(connections_per_address=3), "connections_per_address"),
        (ConnectionLimits(connects=3), "connects_per_second"),
    ],
    ids=["connections", "connections_per_address", "connects"],
)
async def test_more_connections_than_allowed_are_turned_away_over_all_ports(
    limits: ConnectionLimits, reason: str
) -> None:
    load = ServerLoad(limits)
    load.connects.now = lambda: 100.0
    with capture_logs() as said, ExitStack() as peers:
        async with serving(limits=limits, load=load) as one, serving(limits=limits, load=load) as other:
            for server in (one, other, one):
                with ask(server, api.GET_MAX_OFFSET) as peer:
                    assert await asyncio.to_thread(peer.recv, 1), "served"
                    peers.enter_context(peer.dup())
            late = peers.enter_context(socket.create_connection(("127.0.0.1", other.port)))
            assert await asyncio.to_thread(late.recv, 1) == b""
            assert (dict(one.rejected), dict(other.rejected)) == ({}, {reason: 1})
    assert [line["limit"] for line in said if line["event"] == "connection_rejected"] == [reason]


async def test_an_address_that_has_waited_may_connect_again() -> None:
    async with serving(limits=ConnectionLimits(connects=50)) as server:
        with ExitStack() as peers:
            for _ in range(60):
                peers.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            await eventually(lambda: server.rejected.total() > 0)

            def served() -> bool:
                with ask(server, api.GET_MAX_OFFSET) as peer, suppress(ConnectionResetError):
                    return bool(peer.recv(1))
                return False

            async with asyncio.timeout(20):
                while not await asyncio.to_thread(served):
                    pass
