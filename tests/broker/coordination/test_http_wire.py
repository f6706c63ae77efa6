"""Answers of etcd are bounded: none fills the memory of a broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from eruca.broker.coordination.http_wire import Endpoint, Wire, WireBroken

MOST = 4 << 20


@asynccontextmanager
async def answering(body: bytes) -> AsyncIterator[Wire]:
    """A connection to somebody who answers each request with ``body``."""

    ended = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n{}")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        with suppress(ConnectionError):
            await writer.drain()
            await reader.read()
        writer.close()
        ended.set()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        wire = await Wire.connect(Endpoint.of(f"http://127.0.0.1:{port}"), None)
        try:
            yield wire
        finally:
            wire.close()
            await ended.wait()


async def test_the_longest_answer_is_read() -> None:
    async with answering(bytes(MOST)) as wire:
        assert await wire.ask("/v3/kv/range", b"{}") == (200, bytes(MOST))


async def test_a_longer_answer_is_given_up() -> None:
    async with answering(bytes(MOST + 1)) as wire:
        with pytest.raises(WireBroken, match="answers with more than 4194304 bytes"):
            await wire.ask("/v3/kv/range", b"{}")


async def test_so_is_a_line_that_does_not_end() -> None:
    async with answering(b"first\n" + bytes(MOST + 1)) as wire:
        lines = wire.lines("/v3/watch", b"{}", {})
        assert await anext(lines) == (200, b"first")
        with pytest.raises(WireBroken, match="sends a line of more than 4194304 bytes"):
            await anext(lines)
