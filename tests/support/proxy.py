"""A TCP proxy between two ends that a test can delay, split, cut in the middle of a frame, mute, and stop.

Owns the sockets in between; knows no protocol. A cut closes both sides at once; while it is ``blocked`` nobody gets in.
Muted connections stay open and carry nothing more, as when a firewall forgot them.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from weakref import WeakSet


class Listener:
    """Hands each connection to a port of a loopback address to ``accept``, also those that come while it stops.

    Python's own server loses a connection that it has accepted when it is closed before the next turn of the loop.
    """

    def __init__(self, accept: Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]) -> None:
        self._accept = accept
        self._socket: socket.socket | None = None
        self._coming: set[asyncio.Task[None]] = set()

    def start(self, host: str, port: int) -> str:
        """Listen, on a free port if it is 0; returns ``host:port``."""
        self._socket = bound = socket.create_server((host, port), backlog=100)
        bound.setblocking(False)
        asyncio.get_running_loop().add_reader(bound, self._take, bound)
        host, port = bound.getsockname()
        return f"{host}:{port}"

    async def stop(self) -> None:
        """Listen no more; all that came were handed over."""
        assert self._socket is not None
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        await asyncio.gather(*self._coming)

    def _take(self, bound: socket.socket) -> None:
        with suppress(OSError):
            task = asyncio.create_task(self._hand_over(bound.accept()[0]))
            self._coming.add(task)
            task.add_done_callback(self._coming.discard)

    async def _hand_over(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._accept(*await asyncio.open_connection(sock=connection))


class Proxy:
    """Forwards connections to ``target`` (``host:port``).

    ``cut_after`` counts bytes from the target to the client over all connections; the one that reaches it is cut
    there. ``piece`` splits what goes to the client into parts of so many bytes; ``delay`` (seconds) holds each part,
    and what is behind it. ``distance`` (seconds) is how long all is under way to the client, as on a long line.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self.address = ""
        self.cut_after: int | None = None
        self.piece: int | None = None
        self.delay = 0.0
        self.distance = 0.0
        self.blocked = False
        self.lost: frozenset[str] = frozenset()
        """What carries nothing, on each connection, without a word to either end: ``there``, ``back``."""
        self.forwarded = 0
        self.connections = 0
        self.sent: list[bytearray] = []
        """What came from the client on each connection."""
        self._listener = Listener(self._accept)
        self._writers: set[asyncio.StreamWriter] = set()
        self._closing: WeakSet[asyncio.WriteTransport] = WeakSet()
        """Connections that close when the other end has read what is under way, or never."""
        self._muted: set[asyncio.StreamWriter] = set()
        self._coming: set[asyncio.Task[None]] = set()
        """Of connections whose way to the target is not there yet."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> Proxy:
        """Listen on a port of a loopback address, by default on a free one."""
        self.address = self._listener.start(host, port)
        return self

    async def stop(self) -> None:
        """Cut everything and listen no more."""
        self.blocked = True  # for those that come just now
        await self._listener.stop()
        await asyncio.gather(*self._coming)
        self.cut()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for transport in tuple(self._closing):
            transport.abort()

    def cut(self) -> None:
        """Cut every connection now."""
        for writer in tuple(self._writers):
            writer.transport.abort()
        self._writers.clear()

    def mute(self) -> None:
        """Let the connections that there are now carry nothing more, without a word to either end."""
        self._muted |= self._writers

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._connect(reader, writer))
        self._coming.add(task)
        task.add_done_callback(self._coming.discard)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.blocked:
            writer.transport.abort()
            return
        host, _, port = self.target.rpartition(":")
        try:
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.transport.abort()
            return
        if self.blocked:  # since the way to the target was begun, so that no cut has met it
            writer.transport.abort()
            far_writer.transport.abort()
            return
        self.connections += 1
        self.sent.append(sent := bytearray())
        self._writers |= {writer, far_writer}
        for work in (
            self._forward(reader, far_writer, writer, sent),
            self._forward_shaped(far_reader, writer, far_writer),
        ):
            task = asyncio.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _forward(
        self, reader: asyncio.StreamReader, to: asyncio.StreamWriter, back: asyncio.StreamWriter, sent: bytearray
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                sent += data
                if to in self._muted or "there" in self.lost:
                    continue
                to.write(data)
                await to.drain()
        self._end(to, back)

    async def _forward_shaped(
        self, reader: asyncio.StreamReader, to: asyncio.StreamWriter, back: asyncio.StreamWriter
    ) -> None:
        later = asyncio.get_running_loop().call_later
        with suppress(OSError):
            while data := await reader.read(self.piece or 65536):
                if self.distance:
                    later(self.distance, to.write, data)
                    continue
                if self.delay:
                    await asyncio.sleep(self.delay)
                if to in self._muted or "back" in self.lost:
                    continue
                if self.cut_after is not None and self.forwarded + len(data) >= self.cut_after:
                    data = data[: self.cut_after - self.forwarded]
                    self.cut_after = None
                    self.forwarded += len(data)
                    to.write(data)
                    await to.drain()
                    break
                self.forwarded += len(data)
                to.write(data)
                await to.drain()
        await asyncio.sleep(self.distance)
        self._end(to, back)

    def _end(self, *writers: asyncio.StreamWriter) -> None:
        for writer in writers:
            writer.close()
            self._writers.discard(writer)
            self._closing.add(writer.transport)
