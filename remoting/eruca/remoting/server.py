"""A listening port: accepts connections, enforces the limits, stops in order (NettyRemotingServer in 4.9.7).

Knows connections and a router, not what is served. Connections above the limits are rejected. Idle connections are
closed, and so are those with an incomplete frame and those whose peer does not read what is sent to it. Servers of one
daemon share what they may take.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable
from typing import Any

from eruca.remoting.connection import Connection
from eruca.remoting.connection_limits import DEFAULTS, ConnectionLimits, Rejection, ServerLoad
from eruca.remoting.listener import Listener
from eruca.remoting.log import log
from eruca.remoting.router import Router
from eruca.remoting.tls_server import TlsPort


class Server:
    """Serves a router on one port.

    ``on_made`` and ``on_lost`` are called with every accepted connection. Servers of one daemon share a ``load``, so
    that the ``limits`` hold for all of them together. With ``tls`` connections may be encrypted.
    """

    def __init__(
        self,
        router: Router[Any],
        *,
        limits: ConnectionLimits = DEFAULTS,
        load: ServerLoad | None = None,
        tls: TlsPort | None = None,
        on_made: Callable[[Connection], None] | None = None,
        on_lost: Callable[[Connection], None] | None = None,
    ) -> None:
        self.connections: dict[Connection, str] = {}
        """The present connections, with the address of each peer."""
        self.rejected: Counter[Rejection] = Counter()
        """Connections that were turned away, by reason."""
        self._router = router
        self._limits = limits
        self._load = load if load is not None else ServerLoad(limits)
        self._tls = tls
        self._on_made = on_made
        self._on_lost = on_lost
        self._unsent: dict[Connection, int] = {}
        """Of connections whose peer does not read: the bytes that were unsent at the last sweep."""
        self._listener: Listener | None = None
        self._port = 0
        self._sweep: asyncio.TimerHandle | None = None

    async def start(self, host: str, port: int) -> None:
        """Listen on ``host:port``; port 0 takes a free one. Raises OSError if the port is taken."""
        listener = Listener(self._admit, self._tls)
        await listener.listen(host, port)
        await self._begin(listener)

    async def start_on(self, bound: socket.socket) -> None:
        """Listen on a bound socket. Raises OSError if its port is taken after all."""
        listener = Listener(self._admit, self._tls)
        listener.listen_on(bound)
        await self._begin(listener)

    async def _begin(self, listener: Listener) -> None:
        self._listener = listener
        self._port = listener.sockets[0].getsockname()[1]
        self._sweep = asyncio.get_running_loop().call_later(self._limits.sweep_every, self._sweep_idle)
        await asyncio.sleep(0)  # as asyncio's own servers: the caller goes on after a turn of the loop

    @property
    def port(self) -> int:
        """The listening port."""
        if self._listener is None:
            raise RuntimeError("the server is not listening")
        return self._port

    def _admit(self, address: str) -> Connection | None:
        """The connection that serves a peer, None above the limits."""
        load = self._load
        reason = load.rejection(address)
        if reason is not None:
            self.rejected[reason] += 1
            log.warning("connection_rejected", remote=address, limit=reason.value, connections=load.count.taken)
            return None
        connection = Connection(self._router, on_made=self._on_made, on_lost=self._lost, budgets=load.budgets)
        self.connections[connection] = address
        load.enter(address)
        return connection

    def _lost(self, connection: Connection) -> None:
        address = self.connections.pop(connection, None)
        if address is None:
            return
        self._load.leave(address)
        if self._on_lost is not None:
            self._on_lost(connection)

    def _sweep_idle(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweep = loop.call_later(self._limits.sweep_every, self._sweep_idle)
        now = loop.time()
        former, self._unsent = self._unsent, {}
        for connection in tuple(self.connections):
            partial_since = connection.partial_since
            before, unsent = former.get(connection, 0), connection.buffered
            if unsent:
                self._unsent[connection] = unsent
            if unsent < before:
                connection.last_active = now  # it reads, if slowly
            if now - connection.last_active > self._limits.idle and (before or not connection.tasks):
                self._close_idle(connection, unsent if before else 0)
            elif partial_since is not None and now - partial_since > self._limits.half_frame:
                log.warning("half_frame_closed", remote=connection.remote)
                connection.abort()

    @staticmethod
    def _close_idle(connection: Connection, stalled: int) -> None:
        """Close a connection. The ``stalled`` bytes, which its peer does not read, would keep it open for ever."""
        if stalled:
            log.warning("stalled_connection_closed", remote=connection.remote, unsent=stalled)
            connection.abort()
        else:
            log.info("idle_connection_closed", remote=connection.remote)
            connection.close()

    def stop_accepting(self) -> None:
        """Accept no new connections; the present ones continue."""
        if self._listener is not None:
            self._listener.close()

    async def stop(self, grace: float = 3.0) -> None:
        """Stop accepting, wait up to ``grace`` seconds for requests in progress, close every connection."""
        self.stop_accepting()
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        if self._listener is not None:
            await self._listener.settled()
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
