"""Accepting: what happens when it cannot be done, and which connections are turned away."""

from __future__ import annotations

import asyncio
import socket

import pytest
from structlog.testing import capture_logs

from eruca.remoting.listener import Listener
from tests.support.descriptors import no_descriptor_left


class Greeting(asyncio.Protocol):
    """Says one thing and ends the connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"hello")
        transport.close()


async def heard(peer: socket.socket) -> bytes:
    async with asyncio.timeout(10):
        return await asyncio.get_running_loop().sock_recv(peer, 100)


async def test_an_accept_that_fails_leaves_a_line_and_is_tried_again() -> None:
    loop = asyncio.get_running_loop()
    listener = Listener(lambda _: Greeting())
    await listener.listen("127.0.0.1", 0)
    with socket.socket() as peer:
        peer.setblocking(False)
        with capture_logs() as lines, no_descriptor_left():
            await loop.sock_connect(peer, listener.sockets[0].getsockname())
            async with asyncio.timeout(10):
                while not lines:  # noqa: ASYNC110 (the log has no event)
                    await asyncio.sleep(0)
        assert await heard(peer) == b"hello"
    listener.close()
    (line,) = lines
    assert (line["event"], line["failed"]) == ("accept_failed", 1)
    assert "raise its LimitNOFILE" in line["reason"] and "disk" not in str(line)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "", "localhost"])
async def test_it_listens_where_it_is_asked_to(host: str) -> None:
    seen: list[str] = []

    def admit(address: str) -> Greeting | None:
        seen.append(address)
        return Greeting() if len(seen) > 1 else None

    listener = Listener(admit)
    await listener.listen(host, 0)
    name = listener.sockets[0].getsockname()
    address = {"::": "::1", "0.0.0.0": "127.0.0.1"}.get(name[0], name[0])
    for answer in (b"", b"hello"):
        with socket.socket(listener.sockets[0].family) as peer:
            peer.setblocking(False)
            await asyncio.get_running_loop().sock_connect(peer, (address, name[1]))
            assert await heard(peer) == answer
    assert seen == [address, address]
    listener.close()
    await listener.settled()
    assert listener.sockets == []


async def test_a_port_that_is_taken_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listener = Listener(lambda _: None)
        with pytest.raises(OSError, match="in use"):
            await listener.listen("127.0.0.1", taken.getsockname()[1])
        assert listener.sockets == []


async def test_two_colons_stand_for_all_addresses_of_both_kinds() -> None:
    """As at a broker, whose bindAddress is documented once for both."""
    listener = Listener(lambda _: Greeting())
    await listener.listen("::", 0)
    port = listener.sockets[0].getsockname()[1]
    for host in ("127.0.0.1", "::1"):
        reader, writer = await asyncio.open_connection(host, port)
        assert await reader.read() == b"hello"
        writer.close()
    listener.close()
