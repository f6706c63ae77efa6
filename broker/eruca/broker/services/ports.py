"""The three ports of a broker: its own, the VIP port two below, the HA port one above.

Owns the search for free ports when the configured port is 0. A slave binds the HA port too, since it registers its
number. Must not know what is served.
"""

from __future__ import annotations

import socket
from typing import NamedTuple

from eruca.remoting.addresses import LAST_PORT
from eruca.remoting.listener import PortTaken, port_fault

VIP = -2
"""The VIP port relative to the listening port."""
HA = 1
"""The HA port relative to the listening port."""
_TRIES = 2000
"""How often neighbours of a free port are tried. Connections that have ended hold their ports for a minute, and Linux
takes these from the even numbers and free ports from the odd ones: of a busy client's machine few have both free."""


def room_fault(port: int) -> str | None:
    """Why a broker cannot have this port and its neighbours, as the end of a sentence; None if it can, or for 0."""
    if not port or 0 < port + VIP < port + HA <= LAST_PORT:
        return None
    return f"{port} must leave room for the ports 2 below and 1 above it: write 0, or 3 to 65534"


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


def bound_again(closed: socket.socket, name: tuple[str, int]) -> socket.socket:
    """Bind another socket like one that was bound to ``name``, and listened, and is closed now. Raises PortTaken."""
    host, port = name[:2]
    return _bind(_Place(closed.family, host), port, fixed=True, what="the HA port, listenPort + 1")


class _Place(NamedTuple):
    family: socket.AddressFamily
    host: str


def take_ports(host: str, port: int) -> Ports:
    """Bind all three ports of ``host``. With ``port`` 0 they are free ones, adjacent if possible.

    Raises PortTaken, also for an address that does not belong to this machine.
    """
    if (no_room := room_fault(port)) is not None:
        raise PortTaken(f"listenPort {no_room}")
    place = _resolved(host, port)
    if port:
        return _take(place, port, port + VIP, port + HA)
    for _ in range(_TRIES):
        try:
            return _take(place, 0, None, None)
        except PortTaken as fault:
            if fault.key != "listenPort":
                raise
    return _take(place, 0, 0, 0)


def _take(place: _Place, port: int, vip: int | None, ha: int | None) -> Ports:
    taken: list[socket.socket] = []
    fixed = port != 0
    try:
        taken.append(_bind(place, port, fixed=fixed, what="listenPort"))
        number = taken[0].getsockname()[1]
        for given, step, what in ((vip, VIP, "the VIP port, listenPort - 2"), (ha, HA, "the HA port, listenPort + 1")):
            taken.append(_bind(place, number + step if given is None else given, fixed=fixed, what=what))
    except BaseException:
        for each in taken:
            each.close()
        raise
    return Ports(*taken)


def _resolved(host: str, port: int) -> _Place:
    """The address of a name; the IPv4 one if it has both."""
    if not host:
        return _Place(socket.AF_INET, host)
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise port_fault(error, host, port) from None
    family, _, _, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
    return _Place(family, str(address[0]))


def _bind(place: _Place, port: int, *, fixed: bool, what: str) -> socket.socket:
    family, host = place
    if not 0 <= port <= LAST_PORT:
        raise PortTaken(f"listenPort must leave room for the ports 2 below and 1 above it, but {port} is no port")
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        if host == "::":
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        if fixed:  # without SO_REUSEADDR a port that is bound elsewhere is refused
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # allows a restart while old connections linger
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        raise port_fault(error, host, port, what) from None
    return bound
