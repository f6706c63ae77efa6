"""The three ports of a broker: its own, the VIP port two below, the HA port one above.

Owns the search for free ports when the configured port is 0. A slave binds the HA port too, since it registers its
number. Must not know what is served.
"""

from __future__ import annotations

import contextlib
import socket
from typing import NamedTuple

VIP = -2
"""The VIP port relative to the listening port."""
HA = 1
"""The HA port relative to the listening port."""
_TRIES = 2000
"""How often neighbours of a free port are tried. Connections that have ended hold their ports for a minute, and Linux
takes these from the even numbers and free ports from the odd ones: of a busy client's machine few have both free."""


class Ports(NamedTuple):
    """Sockets that are bound but do not listen yet."""

    main: socket.socket
    vip: socket.socket
    ha: socket.socket

    @property
    def adjacent(self) -> bool:
        """Whether the VIP port and the HA port lie where clients look for them, beside the main one."""
        main, vip, ha = self.numbers
        return (vip, ha) == (main + VIP, main + HA)

    @property
    def numbers(self) -> tuple[int, int, int]:
        """The number of each port."""
        main, vip, ha = (each.getsockname()[1] for each in self)
        return main, vip, ha

    def close(self) -> None:
        """Release the ports."""
        for each in self:
            each.close()


class PortTaken(Exception):
    """A required port is taken; the message names it and says what to do."""


def take_ports(host: str, port: int) -> Ports:
    """Bind all three ports of ``host``. With ``port`` 0 they are free ones, adjacent if possible.

    Raises PortTaken, or OSError if the address does not belong to this machine.
    """
    if port:
        return _take(host, port, port + VIP, port + HA)
    for _ in range(_TRIES):
        with contextlib.suppress(PortTaken):
            return _take(host, 0, None, None)
    return _take(host, 0, 0, 0)


def _take(host: str, port: int, vip: int | None, ha: int | None) -> Ports:
    taken: list[socket.socket] = []
    fixed = port != 0
    try:
        taken.append(_bind(host, port, fixed=fixed))
        number = taken[0].getsockname()[1]
        taken.append(_bind(host, number + VIP if vip is None else vip, fixed=fixed))
        taken.append(_bind(host, number + HA if ha is None else ha, fixed=fixed))
    except BaseException:
        for each in taken:
            each.close()
        raise
    return Ports(*taken)


def _bind(host: str, port: int, *, fixed: bool) -> socket.socket:
    if not 0 <= port <= 65535:
        raise PortTaken(f"listenPort must leave room for the ports 2 below and 1 above it, but {port} is no port")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        if fixed:  # without SO_REUSEADDR a port that is bound elsewhere is refused
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # allows a restart while old connections linger
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        if port == 0:
            raise
        raise PortTaken(
            f"cannot listen on {host}:{port}: {error.strerror}; stop what holds it or set another listenPort"
        ) from None
    return bound
