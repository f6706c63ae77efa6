"""Connections to many peers, made on demand and made again when they are lost (NettyRemotingClient in 4.9.7).

Owns one connection per address. A call to an address without a connection waits for one; concurrent callers share the
attempt. Nothing is retried here: only the caller knows whether a request may be sent twice.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from eruca.protocol import frame
from eruca.protocol.api import Endpoint
from eruca.protocol.header import Header
from eruca.remoting.addresses import split_address
from eruca.remoting.calls import Answer
from eruca.remoting.connection import Connection
from eruca.remoting.errors import CallTimedOut, ConnectFailed
from eruca.remoting.router import Router
from eruca.remoting.rpc_hooks import Renamer, Signer
from eruca.remoting.shared_tasks import SharedTasks
from eruca.remoting.tls import WORDS, TlsFiles, TlsWords, tls_arguments, why_no_handshake

A = TypeVar("A", bound=Header)
R = TypeVar("R", bound=Header)


class Channels:
    """Connections by address (``host:port``).

    ``router`` answers what peers ask over these connections; ``connect_timeout`` in seconds (connectTimeoutMillis in
    4.9.7); ``serialization``, ``offer``, ``signer`` and ``rename`` as in Connection; ``on_lost`` is called with
    each connection that ends. With ``tls`` all connections are encrypted; a certificate must name the host (or its
    entry in ``host_names``), or ``server_name`` if that is given. Errors name what mends TLS by ``tls_words``.
    """

    def __init__(
        self,
        router: Router[Any] | None = None,
        *,
        connect_timeout: float = 3.0,
        serialization: int = frame.JSON,
        offer: bool = True,
        signer: Signer | None = None,
        rename: Renamer | None = None,
        tls: ssl.SSLContext | TlsFiles | None = None,
        server_name: str | None = None,
        tls_words: TlsWords = WORDS,
        on_lost: Callable[[Connection], None] | None = None,
    ) -> None:
        self._router = router if router is not None else Router(None, ())
        self._connect_timeout = connect_timeout
        self._serialization = serialization
        self._offer = offer
        self._signer = signer
        self._rename = rename
        self._tls = tls
        self._server_name = server_name
        self._tls_words = tls_words
        self.host_names: dict[str, str] = {}
        """The host name of an address, if its certificate must contain that name."""
        self._on_lost = on_lost
        self._connections: dict[str, Connection] = {}
        self._reached: set[str] = set()
        """Every address to which there ever was a connection."""
        self._connecting: SharedTasks[str, Connection] = SharedTasks()
        self._closed = False

    def ready(self, address: str) -> Connection | None:
        """The present connection to an address, None if there is none."""
        return self._connections.get(address)

    def connections(self) -> list[Connection]:
        """The present connections."""
        return [*self._connections.values()]

    async def get(self, address: str, *, timeout: float | None = None) -> Connection:
        """The connection to an address; connects if there is none. Raises ConnectFailed."""
        connection = self._connections.get(address)
        if connection is not None:
            return connection
        if self._closed:
            raise ConnectFailed(address, f"connect to <{address}> failed: this client is closed")
        try:
            async with asyncio.timeout(timeout):
                return await self._connecting.result(address, partial(self._connect, address))
        except TimeoutError:
            late = f"connect to <{address}> failed: no connection in time"
            raise ConnectFailed(address, late, unreachable=address not in self._reached) from None

    async def _connect(self, address: str) -> Connection:
        try:
            host, port = split_address(address)
        except ValueError as error:
            raise ConnectFailed(address, f"connect to <{address}> failed: {error}") from None
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_timeout):
                _, connection = await loop.create_connection(self._make, host, port, **self.security(address))
        except (OSError, OverflowError, UnicodeError) as error:  # TimeoutError is an OSError; names may be illegal
            no_handshake = why_no_handshake(error, self._tls_words) if self._tls is not None else None
            reason = no_handshake or why_not_connected(error)
            if isinstance(self._tls, TlsFiles) and self._tls.fault is not None:
                reason += f" ({self._tls.fault})"
            unreachable = no_handshake is None and address not in self._reached
            raise ConnectFailed(address, f"connect to <{address}> failed: {reason}", unreachable=unreachable) from None
        connection.keep_alive()
        if self._closed:
            connection.abort()
            raise ConnectFailed(address, f"connect to <{address}> failed: this client is closed")
        self._connections[address] = connection
        self._reached.add(address)
        connection.on_close(lambda ended: self._forget(address, ended))
        return connection

    def security(self, address: str) -> dict[str, Any]:
        """The TLS arguments of ``create_connection`` for an address; empty without TLS."""
        host = self.host_names.get(address) or split_address(address)[0]
        return tls_arguments(self._tls, host, self._connect_timeout, self._server_name)

    def _make(self) -> Connection:
        return Connection(
            self._router,
            on_lost=self._on_lost,
            serialization=self._serialization,
            offer=self._offer,
            signer=self._signer,
            rename=self._rename,
            tls_words=self._tls_words,
        )

    def _forget(self, address: str, connection: Connection) -> None:
        if self._connections.get(address) is connection:
            del self._connections[address]

    async def call(
        self,
        address: str,
        endpoint: Endpoint[A, R],
        ask: A | None = None,
        body: bytes = b"",
        *,
        timeout: float = 3.0,
    ) -> Answer[R]:
        """Call a peer. ``timeout``, in seconds, includes connecting.

        Raises Refused, ConnectFailed, ConnectionLost or CallTimedOut.
        """
        connection = self._connections.get(address)
        if connection is None:
            loop = asyncio.get_running_loop()
            start = loop.time()
            connection = await self.get(address, timeout=timeout)
            timeout -= loop.time() - start
            if timeout <= 0:
                raise CallTimedOut(address, f"<{address}> was not connected in time to ask {endpoint.code.name}")
        return await connection.start_call(endpoint, ask, body, timeout=timeout)

    async def oneway(self, address: str, endpoint: Endpoint[A, Any], ask: A | None = None, body: bytes = b"") -> None:
        """Send a request that wants no answer. Raises ConnectFailed."""
        connection = self._connections.get(address) or await self.get(address)
        connection.oneway(endpoint, ask, body)

    def addresses(self) -> list[str]:
        """The connected addresses."""
        return list(self._connections)

    def drop(self, address: str) -> None:
        """Close the connection to an address; the next call makes a new one."""
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()

    async def close(self) -> None:
        """Close every connection."""
        self._closed = True
        await self._connecting.close()
        loop = asyncio.get_running_loop()
        ended = []
        for connection in tuple(self._connections.values()):
            gone = loop.create_future()
            connection.on_close(lambda _, gone=gone: gone.done() or gone.set_result(None))  # type: ignore[misc]
            ended.append(gone)
            connection.close()
        if ended:
            await asyncio.wait(ended, timeout=1.0)
        self._connections.clear()


def why_not_connected(error: Exception) -> str:
    """The system's text for a failed connect; asyncio replaces it by the address."""
    if isinstance(error, TimeoutError):
        return "no connection in time"
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
