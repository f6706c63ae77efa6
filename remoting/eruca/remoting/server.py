"""A listening port: accepts connections, enforces the limits, stops in order (NettyRemotingServer in 4.9.7).

Knows connections and a router, not what is served. Idle connections and those with an incomplete frame are closed, and
connections above the limits are rejected.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from eruca.remoting.connection import Connection
from eruca.remoting.log import log
from eruca.remoting.router import Router


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """The limits of a server. Times are in seconds; 120 s idle is Apache's serverChannelMaxIdleTimeSeconds."""

    connections: int = 20_000
    connections_per_address: int = 20_000
    idle: float = 120.0
    half_frame: float = 30.0
    sweep_every: float = 10.0


class Server:
    """Serves a router on one port.

    ``on_made`` and ``on_lost`` are called with every accepted connection.
    """

    def __init__(
        self,
        router: Router[Any],
        *,
        limits: ConnectionLimits = ConnectionLimits(),
        on_made: Callable[[Connection], None] | None = None,
        on_lost: Callable[[Connection], None] | None = None,
    ) -> None:
        self.connections: set[Connection] = set()
        self.rejected = 0
        self._router = router
        self._limits = limits
        self._on_made = on_made
        self._on_lost = on_lost
        self._by_address: Counter[str] = Counter()
        self._listening: asyncio.Server | None = None
        self._sweep: asyncio.TimerHandle | None = None

    async def start(self, host: str, port: int) -> None:
        """Listen on ``host:port``; port 0 takes a free one. Raises OSError if the port is taken."""
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(self._connection, host, port, backlog=1024)
        self._begin(loop)

    async def start_on(self, bound: socket.socket) -> None:
        """Listen on a bound socket. Raises OSError if its port is taken after all."""
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(self._connection, sock=bound, backlog=1024)
        self._begin(loop)

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._sweep = loop.call_later(self._limits.sweep_every, self._sweep_idle)

    @property
    def port(self) -> int:
        """The listening port."""
        if self._listening is None or not self._listening.sockets:
            raise RuntimeError("the server is not listening")
        port: int = self._listening.sockets[0].getsockname()[1]
        return port

    def _connection(self) -> Connection:
        return Connection(self._router, on_made=self._made, on_lost=self._lost)

    def _made(self, connection: Connection) -> None:
        address = connection.remote.rpartition(":")[0]
        full = len(self.connections) >= self._limits.connections
        if full or self._by_address[address] >= self._limits.connections_per_address:
            self.rejected += 1
            log.warning("connection_rejected", remote=connection.remote, connections=len(self.connections))
            connection.abort()
            return
        self.connections.add(connection)
        self._by_address[address] += 1
        if self._on_made is not None:
            self._on_made(connection)

    def _lost(self, connection: Connection) -> None:
        if connection not in self.connections:
            return
        self.connections.discard(connection)
        address = connection.remote.rpartition(":")[0]
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]
        if self._on_lost is not None:
            self._on_lost(connection)

    def _sweep_idle(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in tuple(self.connections):
            partial = connection.partial_since
            if now - connection.last_active > self._limits.idle and not connection.tasks:
                log.info("idle_connection_closed", remote=connection.remote)
                connection.close()
            elif partial is not None and now - partial > self._limits.half_frame:
                log.warning("half_frame_closed", remote=connection.remote)
                connection.abort()
        self._sweep = loop.call_later(self._limits.sweep_every, self._sweep_idle)

    def stop_accepting(self) -> None:
        """Accept no new connections; the present ones continue."""
        if self._listening is not None:
            self._listening.close()

    async def stop(self, grace: float = 3.0) -> None:
        """Stop accepting, wait up to ``grace`` seconds for requests in progress, close every connection."""
        self.stop_accepting()
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        if self._router.tasks:
            await asyncio.wait(tuple(self._router.tasks), timeout=grace)
        ended = []
        for connection in tuple(self.connections):
            gone = asyncio.get_running_loop().create_future()
            connection.on_close(lambda _, gone=gone: gone.done() or gone.set_result(None))  # type: ignore[misc]
            ended.append(gone)
            connection.close()
        if ended:
            await asyncio.wait(ended, timeout=grace)
        for connection in tuple(self.connections):
            connection.abort()
