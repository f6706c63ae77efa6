"""A listener that takes each connection through a proxy of its caller's own, so that a test can cut off one of several.

Owns the listener and these proxies. ``who`` reads a caller's name from the first bytes of a connection, and returns
None while it needs more of them; it knows the protocol, nobody else here does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from tests.support.proxy import Listener, Proxy

Who = Callable[[bytes], str | None]


class Ways:
    """The ways to ``target`` (``host:port``), by who takes them."""

    def __init__(self, target: str, who: Who) -> None:
        self.address = ""
        self._target = target
        self._who = who
        self._ways: dict[str, Proxy] = {}
        self._making = asyncio.Lock()
        self._listener = Listener(self._accept)
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing: WeakSet[asyncio.WriteTransport] = WeakSet()
        """Connections that close when the other end has read what is under way, or never."""
        self._over = False

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> Ways:
        """Listen on a port of a loopback address, by default on a free one."""
        self.address = self._listener.start(host, port)
        return self

    async def stop(self) -> None:
        """Cut everything and listen no more."""
        self._over = True  # for those that come just now
        await self._listener.stop()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for transport in tuple(self._closing):
            transport.abort()
        for way in self._ways.values():
            await way.stop()

    async def of(self, caller: str) -> Proxy:
        """The way of a caller, who may be to come yet."""
        async with self._making:
            if caller not in self._ways:
                self._ways[caller] = await Proxy(self._target).start()
            return self._ways[caller]

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._over:
            writer.transport.abort()
            return
        task = asyncio.create_task(self._connect(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: self._close(writer))  # also where the task never begins

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.CancelledError):
            said = b""
            while (caller := self._who(said)) is None:
                if not (more := await reader.read(65536)):
                    break
                said += more
            else:
                host, _, port = (await self.of(caller)).address.rpartition(":")
                there, onwards = await asyncio.open_connection(host, int(port))
                try:
                    onwards.write(said)
                    await _until_one_ends(_pass_on(reader, onwards), _pass_on(there, writer))
                finally:
                    self._close(onwards)

    def _close(self, writer: asyncio.StreamWriter) -> None:
        writer.close()
        self._closing.add(writer.transport)


async def _until_one_ends(*works: Coroutine[Any, Any, None]) -> None:
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
