"""HTTP/1.1 to one endpoint: requests of JSON and their answers, whole or line by line, over asyncio's streams.

Owns a connection, and whether it can be used again. h11 knows the bytes of HTTP. Must not know what is asked. Knows no
deadline: its callers have one. Invariant: a connection that failed, or was left in the middle of an answer, is closed.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

import h11

from eruca.broker.coordination.trust import UNHEARD, why_no_tls
from eruca.remoting.tls import TlsFiles

LARGEST = 4 << 20
"""Bytes of an answer, or of a line of one, at most."""
_READ = 64 << 10


class Endpoint(NamedTuple):
    """Where to connect to."""

    host: str
    port: int
    tls: bool

    @classmethod
    def of(cls, url: str) -> Endpoint:
        """The endpoint of ``http://host:port`` or ``https://host:port``. Raises ValueError."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        if not host or port is None or parts.scheme not in ("http", "https") or parts.path.strip("/"):
            raise ValueError(f"{url!r} is no address of an etcd member: write http://host:2379 or https://host:2379")
        return cls(host, port, parts.scheme == "https")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"


class WireBroken(Exception):
    """The connection ended, or the peer speaks something else. ``sent``: a part of the request may have arrived."""

    def __init__(self, sentence: str, *, sent: bool) -> None:
        super().__init__(sentence)
        self.sent = sent


class Wire:
    """One connection; ``idle`` while it can take a request."""

    def __init__(self, endpoint: Endpoint, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._endpoint = endpoint
        self._reader = reader
        self._writer = writer
        self._state = h11.Connection(h11.CLIENT)
        self._heard = False
        """Whether anything came."""

    @classmethod
    async def connect(cls, endpoint: Endpoint, tls: ssl.SSLContext | TlsFiles | None) -> Wire:
        """Connect. Raises WireBroken."""
        try:
            context = tls.context() if isinstance(tls, TlsFiles) else tls
            reader, writer = await asyncio.open_connection(
                endpoint.host, endpoint.port, ssl=context if endpoint.tls else None
            )
        except OSError as fault:
            raise WireBroken(_why(fault), sent=False) from None
        return cls(endpoint, reader, writer)

    @property
    def idle(self) -> bool:
        """Whether it can take the next request."""
        return self._state.our_state is h11.IDLE and not self._reader.at_eof() and not self._writer.is_closing()

    def close(self) -> None:
        """End the connection."""
        self._writer.transport.abort()

    async def ask(self, path: str, body: bytes) -> tuple[int, bytes]:
        """POST a body; status and body of the answer. Raises WireBroken."""
        status = await self._begin(path, body, {})
        parts, size = [], 0
        async for part in self._parts():
            parts.append(part)
            size += len(part)
            if size > LARGEST:
                raise WireBroken(f"{self._endpoint} answers with more than {LARGEST} bytes", sent=True)
        if self._state.our_state is h11.DONE and self._state.their_state is h11.DONE:
            self._state.start_next_cycle()
        return status, b"".join(parts)

    async def lines(self, path: str, body: bytes, headers: Mapping[str, str]) -> AsyncGenerator[tuple[int, bytes]]:
        """POST a body; the status with each line of the answer, as they come. Raises WireBroken."""
        status = await self._begin(path, body, headers)
        rest = b""
        async for part in self._parts():
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                yield status, line
            if len(rest) > LARGEST:
                raise WireBroken(f"{self._endpoint} sends a line of more than {LARGEST} bytes", sent=True)
        if rest:
            yield status, rest

    async def _begin(self, path: str, body: bytes, headers: Mapping[str, str]) -> int:
        fields = {"Host": f"{self._endpoint.host}:{self._endpoint.port}", "Content-Length": str(len(body)), **headers}
        request = h11.Request(method="POST", target=path, headers=list(fields.items()))
        events = (request, h11.Data(data=body), h11.EndOfMessage())
        if self._writer.is_closing():  # uvloop raises no OSError then
            raise WireBroken("the connection has ended", sent=False)
        try:
            self._writer.write(b"".join(self._state.send(event) or b"" for event in events))
            await self._writer.drain()
        except OSError as fault:
            raise WireBroken(_why(fault), sent=True) from None
        while True:
            event = await self._next()
            if isinstance(event, h11.Response):
                return event.status_code

    async def _parts(self) -> AsyncIterator[bytes]:
        while True:
            event = await self._next()
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return

    async def _next(self) -> object:
        try:
            while (event := self._state.next_event()) is h11.NEED_DATA:
                data = await self._reader.read(_READ)
                if not data and not self._heard:
                    raise WireBroken(UNHEARD if self._endpoint.tls else "it closed the connection", sent=True)
                self._heard = True
                self._state.receive_data(data)
        except OSError as fault:
            raise WireBroken(_why(fault), sent=True) from None
        except h11.RemoteProtocolError as fault:
            raise WireBroken(f"no whole answer came ({fault})", sent=True) from None
        if isinstance(event, h11.ConnectionClosed):
            raise WireBroken("it closed the connection", sent=True)
        return event


def _why(fault: OSError) -> str:
    return why_no_tls(fault) or str(fault)
