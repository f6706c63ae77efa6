"""A small HTTP server for pages about a daemon: health and metrics, for probes, Prometheus and people.

Owns the protocol, as little of HTTP/1.1 as such clients need: GET and HEAD, one request a connection, a header of at
most 8 KiB within 5 s, an answer that is read within 5 s, 16 connections. Must not know the pages. Invariants: a peer
has no more than its connection, and for no longer than it takes to answer it; where all connections are taken, a new
one replaces the oldest that does not wait for its page, so slow peers lock out nobody.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from email.utils import formatdate
from http import HTTPStatus
from typing import NamedTuple, cast

from eruca.remoting.listener import Listener
from eruca.remoting.log import log

CONNECTIONS = 16
LONGEST_HEADER = 8 << 10
"""Bytes."""
PATIENCE = 5.0
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"

_REQUEST = re.compile(r"([A-Z]+) (/[!-~]*) HTTP/1\.[01]")
_METHODS = ("GET", "HEAD")

Fields = Mapping[str, str]
"""The fields of a request's header, by names in lower case."""


class Page(NamedTuple):
    """An answer."""

    body: bytes
    kind: str = TEXT
    status: HTTPStatus = HTTPStatus.OK


Route = Callable[[Fields], Page | Awaitable[Page]]


class HttpServer:
    """Serves pages by path. ``patience`` are the seconds for a header to arrive, and for an answer to be read."""

    def __init__(self, routes: Mapping[str, Route], patience: float = PATIENCE) -> None:
        self.routes = dict(routes)
        self._patience = patience
        self._exchanges: dict[_Exchange, None] = {}  # the oldest first
        self._listener: Listener | None = None
        self._port = 0

    @property
    def port(self) -> int:
        """The listening port; 0 before the start."""
        return self._port

    @property
    def connections(self) -> int:
        """The number of present connections."""
        return len(self._exchanges)

    async def start(self, host: str, port: int) -> None:
        """Listen; port 0 takes a free one. Raises OSError."""
        listener = Listener(self._admit)
        await listener.listen(host, port)
        self._listener, self._port = listener, listener.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and end every connection."""
        if self._listener is not None:
            self._listener.close()
            await self._listener.settled()
            self._listener = None
        for exchange in tuple(self._exchanges):
            exchange.abort()
        self._port = 0

    def _admit(self, address: str) -> asyncio.BaseProtocol | None:
        if self.connections >= CONNECTIONS:
            idle = next((each for each in self._exchanges if not each.working), None)
            if idle is None:
                return None
            idle.abort()
        exchange = _Exchange(self.routes, self._patience, self._ended)
        self._exchanges[exchange] = None
        return exchange

    def _ended(self, exchange: _Exchange) -> None:
        self._exchanges.pop(exchange, None)


class _Exchange(asyncio.Protocol):
    """One connection: a request and its answer."""

    def __init__(self, routes: Mapping[str, Route], patience: float, ended: Callable[[_Exchange], None]) -> None:
        self._routes = routes
        self._patience = patience
        self._ended = ended
        self._transport: asyncio.Transport | None = None
        self._aborted = False
        self._header = bytearray()
        self._asked = self._answered = self._half_closed = False
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._unread = 0

    @property
    def working(self) -> bool:
        """Whether its page is being made."""
        return self._task is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self._transport = cast(asyncio.Transport, transport)
        if self._aborted:
            self._transport.abort()
        else:
            self._wait(self._header_late)

    def connection_lost(self, fault: Exception | None) -> None:
        """Called by the event loop."""
        self._wait(None)
        if self._task is not None:
            self._task.cancel()
        self._ended(self)

    def abort(self) -> None:
        """End the connection at once."""
        self._aborted = True
        self._ended(self)
        if self._transport is not None:
            self._transport.abort()

    def _wait(self, late: Callable[[], None] | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if late is None else asyncio.get_running_loop().call_later(self._patience, late)

    # ------------------------------------------------------------------ the request

    def data_received(self, data: bytes) -> None:
        """Called by the event loop; what comes after the header is not read."""
        if self._asked:
            return
        self._header += data
        end = self._header.find(b"\r\n\r\n")
        if end < 0 and len(self._header) <= LONGEST_HEADER:
            return
        self._asked = True
        self._wait(None)
        header, self._header = bytes(self._header[: max(end, 0)]), bytearray()
        if not 0 <= end <= LONGEST_HEADER:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"a header has at most {LONGEST_HEADER} bytes")
        else:
            self._answer(header.decode("latin-1"))

    def eof_received(self) -> bool:
        """Called by the event loop: a peer that waits for its answer may have closed its side only."""
        self._half_closed = True
        return self._asked and not self._answered

    def _header_late(self) -> None:
        self._asked = True
        self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"no whole header came within {self._patience:g} s")

    def _answer(self, header: str) -> None:
        first, *lines = header.split("\r\n")
        asked = _REQUEST.fullmatch(first)
        if asked is None:
            self._refuse(HTTPStatus.BAD_REQUEST, "this is no request of HTTP/1.0 or HTTP/1.1")
            return
        method, target = asked.groups()
        route = self._routes.get(target.partition("?")[0])
        if method not in _METHODS:
            self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are answered", "Allow: GET, HEAD\r\n")
        elif route is None:
            self._refuse(HTTPStatus.NOT_FOUND, f"there is {', '.join(self._routes)}", head=method == "HEAD")
        else:
            pairs = (line.partition(":") for line in lines)
            fields = {name.strip().lower(): value.strip() for name, _, value in pairs}
            work = self._make(target, route, fields, head=method == "HEAD")
            self._task = asyncio.get_running_loop().create_task(work)

    async def _make(self, target: str, route: Route, fields: Fields, *, head: bool) -> None:
        try:
            page = route(fields)
            if not isinstance(page, Page):
                page = await page
        except Exception:
            log.exception("page_failed", page=target)
            page = Page(b"this page could not be made; the log says why\n", status=HTTPStatus.INTERNAL_SERVER_ERROR)
        self._task = None
        self._send(page, head=head)

    # ------------------------------------------------------------------ the answer

    def _refuse(self, status: HTTPStatus, sentence: str, more: str = "", *, head: bool = False) -> None:
        self._send(Page(f"{sentence}\n".encode(), status=status), more, head=head)

    def _send(self, page: Page, more: str = "", *, head: bool = False) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        header = (
            f"HTTP/1.1 {page.status.value} {page.status.phrase}\r\n"
            f"Date: {formatdate(usegmt=True)}\r\n"
            f"Content-Type: {page.kind}\r\n"
            f"Content-Length: {len(page.body)}\r\n"
            f"Cache-Control: no-store\r\n{more}"
            "Connection: close\r\n\r\n"
        )
        self._answered = True
        self._transport.write(header.encode("latin-1") + (b"" if head else page.body))
        if self._half_closed:
            self._transport.close()
            return
        self._transport.write_eof()  # and not close: that would reset a peer which still sends, and lose the answer
        self._unread = self._transport.get_write_buffer_size()
        self._wait(self._read_late)

    def _read_late(self) -> None:
        """The peer has the answer and goes on, or it does not read."""
        left = self._transport.get_write_buffer_size() if self._transport is not None else 0
        if 0 < left < self._unread:
            self._unread = left
            self._wait(self._read_late)
        else:
            self.abort()
