"""Listening sockets: what connects to them is accepted, and served by the protocol that their owner gives.

Owns the sockets and what happens when a connection cannot be accepted: one log line a minute, and another try a second
later. Must not know what is served. Invariant: a peer that its owner turns away costs no more than the accept.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from eruca.remoting.addresses import peer_of
from eruca.remoting.descriptors import reason
from eruca.remoting.keepalive import keep_alive
from eruca.remoting.log import log
from eruca.remoting.operating_system import who_has_port
from eruca.remoting.tls_server import TlsPort

BACKLOG = 1024
_AT_ONCE = 64
"""Connections that are accepted before the event loop runs others."""
_RETRY_AFTER = 1.0
_TELL_EVERY = 60.0
_GONE = frozenset({errno.ECONNABORTED, errno.EPROTO, errno.EPERM})
"""Errors of one connection that ended before it was accepted, or that a firewall forbids."""


def bind(found: Iterable[Any], host: str) -> list[socket.socket]:
    """Sockets that are bound to what ``getaddrinfo`` found for a host. Raises OSError."""
    bound: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(found):
            try:
                sock = socket.socket(family, socket.SOCK_STREAM)
            except OSError:  # a kernel without IPv6
                continue
            bound.append(sock)
            if sys.platform != "win32":  # where it lets two processes listen on one port
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, host != "::")
            sock.bind(address)
    except BaseException:
        for sock in bound:
            sock.close()
        raise
    return bound


class PortKeys(NamedTuple):
    """The settings of a port and of its address, and what to say of a port that nobody needs."""

    port: str = "listenPort"
    host: str = "bindAddress"
    without: str = ""


USUAL = PortKeys()


class PortTaken(OSError):
    """A port cannot be had; the message names it and says what to do. ``key`` is the setting to change."""

    def __init__(self, sentence: str, key: str = USUAL.port) -> None:
        super().__init__(sentence)
        self.key = key

    def renamed(self, keys: PortKeys) -> PortTaken:
        """The same for somebody who has set it by other names than those of a daemon's file."""
        text = str(self).replace(USUAL.port, keys.port).replace(USUAL.host, keys.host)
        return PortTaken(text, keys.host if self.key == USUAL.host else keys.port)


def port_fault(error: OSError, host: str, port: int, what: str = "", keys: PortKeys = USUAL) -> PortTaken:
    """Why a daemon cannot listen. ``what`` is the port's place among those of a daemon that has several."""
    where = f"cannot listen on {f'[{host}]' if ':' in host else host}:{port} ({what or keys.port}): {reason(error)}"
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return PortTaken(f"{where}; set {keys.host} to an address of this machine", keys.host)
    if error.errno == errno.EACCES:
        advice = f"set a larger {keys.port}, or give this user the right to ports below 1024"
    elif error.errno == errno.EADDRINUSE:
        advice = f"stop what holds it ({who_has_port(port)} names it), or set another {keys.port}{keys.without}"
    else:
        return PortTaken(where, keys.port)
    return PortTaken(f"{where}; {advice}", keys.port)


def _taken_meanwhile(error: OSError, sock: socket.socket) -> PortTaken:
    host, port = sock.getsockname()[:2]
    return port_fault(error, host, port, "another process listened first")


def try_port(host: str, port: int, keys: PortKeys = USUAL) -> PortTaken | None:
    """Bind a port, and release it: why that cannot be done."""
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for each in bind(found, host):
            each.close()
    except OSError as error:
        return port_fault(error, host, port, keys=keys)
    return None


class Listener:
    """Accepts connections until it is closed.

    ``admit`` is called with the address of each peer; it returns the protocol that serves the peer, or None to turn it
    away. With ``tls`` peers may begin a handshake first; of one that fails the protocol only hears that it is lost.
    """

    def __init__(self, admit: Callable[[str], asyncio.BaseProtocol | None], tls: TlsPort | None = None) -> None:
        self._admit = admit
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._sockets: list[socket.socket] = []
        self._waiting: dict[socket.socket, asyncio.Task[None]] = {}
        """The tasks that accept, where the loop watches no sockets."""
        self._arriving: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None
        self._failed = 0
        """Failed accepts since the last line in the log."""
        self._silent_until = 0.0

    @property
    def sockets(self) -> list[socket.socket]:
        """The listening sockets; none after ``close``."""
        return self._sockets

    async def listen(self, host: str, port: int) -> None:
        """Listen on ``host:port``; an empty host or ``::`` means all addresses, port 0 a free port. Raises OSError."""
        bound = bind(await self._addresses(host or None, port), host)
        try:
            self.listen_on(*bound)
        except BaseException:
            for sock in bound:
                sock.close()
            raise

    async def _addresses(self, host: str | None, port: int) -> list[Any]:
        try:  # an address, which needs no resolver
            return socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICHOST
            )
        except socket.gaierror:
            return await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)

    def listen_on(self, *bound: socket.socket) -> None:
        """Listen on bound sockets, which belong to the listener from then on. Raises PortTaken: two that begin at once
        can both bind a port, and one of them listens first."""
        for sock in bound:
            sock.setblocking(False)
            keep_alive(sock)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                sock.listen(BACKLOG)
            except OSError as error:
                raise _taken_meanwhile(error, sock) from None
        self._sockets += bound
        self._watch(bound)

    def _watch(self, sockets: Iterable[socket.socket]) -> None:
        for sock in sockets:
            try:
                self._loop.add_reader(sock, self._accept, sock)
            except NotImplementedError:  # the ProactorEventLoop of Windows
                self._waiting[sock] = self._loop.create_task(self._accept_for_ever(sock))

    def _unwatch(self) -> None:
        for sock in self._sockets:
            if sock in self._waiting:
                self._waiting.pop(sock).cancel()
                continue
            with contextlib.suppress(NotImplementedError):
                self._loop.remove_reader(sock)

    async def _accept_for_ever(self, listening: socket.socket) -> None:
        while True:
            try:
                sock, address = await self._loop.sock_accept(listening)
            except OSError as fault:
                if fault.errno not in _GONE:
                    self._pause(fault)
                    return
                continue
            self._take(sock, address)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as fault:
                if fault.errno not in _GONE:
                    self._pause(fault)
                    return
                continue
            self._take(sock, address)

    def _take(self, sock: socket.socket, address: Any) -> None:
        peer, _ = peer_of(address)
        protocol = self._admit(peer)
        if protocol is None:
            sock.close()
            return
        task = self._loop.create_task(self._serve(sock, protocol, peer))
        self._arriving.add(task)
        task.add_done_callback(self._arriving.discard)

    async def _serve(self, sock: socket.socket, protocol: asyncio.BaseProtocol, address: str) -> None:
        try:
            if self._tls is None:
                await self._loop.connect_accepted_socket(lambda: protocol, sock)
            else:
                await self._tls.serve(sock, protocol, address)
        except OSError as fault:  # it ended before it was served, or is refused
            sock.close()
            protocol.connection_lost(fault)
        except asyncio.CancelledError:
            sock.close()
            protocol.connection_lost(None)
            raise

    def _pause(self, fault: OSError) -> None:
        """Nothing can be accepted at present: try again later instead of at once, for ever."""
        self._failed += 1
        now = self._loop.time()
        if now >= self._silent_until:
            self._silent_until = now + _TELL_EVERY
            log.error("accept_failed", reason=reason(fault), failed=self._failed)
            self._failed = 0
        self._unwatch()
        if self._retry is None:
            self._retry = self._loop.call_later(_RETRY_AFTER, self._go_on)

    def _go_on(self) -> None:
        self._retry = None
        self._watch(self._sockets)

    def close(self) -> None:
        """Accept nothing any more; what was accepted is served, unless it is still to begin or end a handshake."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        self._unwatch()
        for sock in self._sockets:
            sock.close()
        self._sockets = []
        if self._tls is not None:
            for task in tuple(self._arriving):
                task.cancel()

    async def settled(self) -> None:
        """Wait until all that was accepted has reached its protocol."""
        if self._arriving:
            await asyncio.wait(tuple(self._arriving))
