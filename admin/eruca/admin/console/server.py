"""The console as a server: one socket, HTTP or HTTPS, until it is interrupted.

Owns the address, the TLS of the listener and the life of the watch. Knows no page.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import uvicorn

from eruca.admin.client import Admin
from eruca.admin.console.changes import Changes
from eruca.admin.console.dead_letters import end_sending
from eruca.admin.console.forms import Commands
from eruca.admin.console.guard import Keys
from eruca.admin.console.resets import end_resets
from eruca.admin.console.site import application
from eruca.admin.console.visit import Console
from eruca.admin.console.watch import Watch
from eruca.admin.errors import AdminError, BadValue
from eruca.remoting.addresses import port_number
from eruca.remoting.descriptors import reason
from eruca.remoting.listener import PortKeys, port_fault

GRACE = 2
"""Seconds for answers that are under way when the console ends."""


@dataclass(frozen=True)
class Listener:
    """Where the console listens."""

    host: str
    port: int
    names: tuple[str, ...] = ()
    """More names by which browsers reach it."""
    certificate: str = ""
    """A file (PEM); without one only this machine may ask."""
    key: str = ""

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches it."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def hosts(self, port: int) -> list[str]:
        """What browsers may call it, with its port; the first one is for the printed address."""
        local = ["127.0.0.1", "localhost", "[::1]"] if self.is_local else []
        own = f"[{self.host}]" if ":" in self.host else self.host
        wild = self.host in ("0.0.0.0", "::")
        names = [*self.names, *([] if wild else [own]), *local]
        return [f"{name.lower()}:{port}" for name in dict.fromkeys(names)]


def listener(text: str, names: str = "", certificate: str = "", key: str = "") -> Listener:
    """The listener of ``--listen host:port`` and its companions. Raises BadValue."""
    host, colon, port = text.rpartition(":")
    host = host.strip("[]")
    if not colon or not host or not port:
        raise BadValue(f"option --listen takes host:port, such as 127.0.0.1:8088, not '{text}'")
    try:
        number = port_number(port, 0)
    except ValueError as fault:
        raise BadValue(f"option --listen takes host:port, such as 127.0.0.1:8088, not '{text}': {fault}") from None
    found = Listener(host, number, tuple(filter(None, map(str.strip, names.split(",")))), certificate, key)
    if not found.is_local and not certificate:
        raise BadValue(f"{host} is not only for this machine: give --tls-cert and --tls-key, or listen at 127.0.0.1")
    if not found.hosts(0):
        raise BadValue(f"{host} is no name that a browser can open: give the names of this machine with --name")
    return found


async def serve(
    admin: Admin,
    place: Listener,
    *,
    write: bool,
    commands: Commands,
    context: str,
    environment: Mapping[str, str],
    say: Callable[[str], None],
    ready: Callable[[str], None],
) -> None:
    """Serve until interrupted; ``ready`` gets the address to open. Raises AdminError if it cannot listen."""
    listening = _socket(place)
    keys = Keys(
        hosts=place.hosts(listening.getsockname()[1]), scheme="https" if place.certificate else "http", write=write
    )
    watch = Watch(admin)
    console = Console(admin, watch, Changes(environment, say), commands, environment, context, write)
    config = uvicorn.Config(
        application(console, keys),
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE,
        ssl_certfile=place.certificate or None,
        ssl_keyfile=place.key or None,
    )
    try:
        _check_files(place)
        config.load()
    except OSError as error:
        listening.close()
        raise AdminError(
            f"the certificate {place.certificate} and the key {place.key or 'in it'} cannot be used: {error}"
        ) from None
    except AdminError:
        listening.close()
        raise
    watch.start()
    ready(keys.address)
    try:
        await uvicorn.Server(config).serve(sockets=[listening])
    finally:
        listening.close()
        await end_resets(console)
        await end_sending(console)
        await watch.stop()


def _check_files(place: Listener) -> None:
    """Raises AdminError for a file that cannot be read; the TLS library does not say which one it was."""
    for what, option, path in (("certificate", "--tls-cert", place.certificate), ("key", "--tls-key", place.key)):
        if path:
            try:
                Path(path).open("rb").close()
            except OSError as error:
                raise AdminError(
                    f"the {what} {path} cannot be read ({reason(error)}): give {option} a file that this user may read"
                ) from None


def _socket(place: Listener) -> socket.socket:
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # named, asyncio sets TCP_NODELAY
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((place.host, place.port))
    except OSError as error:
        listening.close()
        fault = port_fault(error, place.host, place.port, keys=PortKeys("--listen", "--listen"))
        raise AdminError(str(fault)) from None
    return listening
