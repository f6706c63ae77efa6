"""TLS in front of a server that has none, as a proxy does."""

from __future__ import annotations

import asyncio
import contextlib

from tests.support.certificates import Certificates


class Front:
    """Takes encrypted connections, of clients that show a certificate, and hands what they say to `target`."""

    def __init__(self, target: str, certificates: Certificates) -> None:
        self.target = target
        self._certificates = certificates
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        """Its address."""
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", 0, ssl=self._certificates.server_context(ask_clients=True)
        )
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self.target.rpartition(":")
        inner, out = await asyncio.open_connection(host, int(port))
        ways = [asyncio.create_task(_copy(reader, out)), asyncio.create_task(_copy(inner, writer))]
        self._tasks.update(ways)
        await asyncio.wait(ways)

    async def stop(self) -> None:
        """Take no more connections, and end those that are there."""
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
    target.close()
