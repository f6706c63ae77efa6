"""The limits of a daemon's connections, and what its connections take of them.

Owns the settings, which brokers and nameservers share, and the counts over all servers of a daemon. Must not know
sockets. Invariant: whoever is turned away is counted under one reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from eruca.protocol.frame import MAX_FRAME
from eruca.remoting import memory
from eruca.remoting.access.white_addresses import AddressPattern
from eruca.remoting.addresses import block_of
from eruca.remoting.byte_budget import budgets
from eruca.remoting.descriptors import ConnectionCount
from eruca.remoting.rates import Rate
from eruca.remoting.settings import setting


class Rejection(StrEnum):
    """Why a connection is turned away."""

    CONNECTIONS = "connections"
    CONNECTIONS_PER_ADDRESS = "connections_per_address"
    CONNECTS_PER_SECOND = "connects_per_second"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """The limits of the servers of a daemon. Times are in seconds; 120 s idle is Apache's
    serverChannelMaxIdleTimeSeconds.

    Addresses of one of the ``overrides`` have its number of connections, by the first one that matches; of IPv6 the
    addresses of a /64 block count as one. ``connects`` is the number of connections a second of one address, 0 for any;
    ``unfinished`` and ``unsent`` are the bytes of all connections that are no whole frames yet, and that their peers
    have not read yet.
    """

    connections: int = 20_000
    connections_per_address: int = 1_000
    overrides: tuple[tuple[AddressPattern, int], ...] = ()
    connects: int = 200
    unfinished: int = 64 << 20
    unsent: int = 512 << 20
    idle: float = 120.0
    half_frame: float = 30.0
    sweep_every: float = 10.0


DEFAULTS = ConnectionLimits()


def _overrides(text: str) -> Iterator[tuple[AddressPattern, int]]:
    """Patterns and numbers. Raises ValueError."""
    for part in filter(None, (piece.strip() for piece in text.split(";"))):
        pattern, _, number = (piece.strip() for piece in part.rpartition("="))
        if not pattern or not number.isdecimal():
            raise ValueError(f"'{part}' is no override")
        yield AddressPattern(pattern), int(number)


def _are_overrides(text: str) -> bool:
    try:
        tuple(_overrides(text))
    except ValueError:
        return False
    return True


@dataclass(kw_only=True)
class ConnectionSettings:
    """The keys of the limits, for a broker and for a nameserver; the first is RocketMQ's (NettyServerConfig)."""

    server_channel_max_idle_time_seconds: int = setting(int(DEFAULTS.idle), at_least=1)
    """Seconds of silence after which a connection is closed."""
    server_max_connections: int = setting(DEFAULTS.connections, at_least=1)
    """Connections of the daemon, at most."""
    server_max_connections_per_address: int = setting(DEFAULTS.connections_per_address, at_least=1)
    """Connections from one address, at most; the IPv6 addresses of a /64 block count as one."""
    server_max_connections_per_address_overrides: str = setting(
        "", valid=_are_overrides, words="addresses and numbers, like 10.0.0.*=5000;10.0.1.7=200"
    )
    """Other numbers for some addresses, ``pattern=number`` joined by ``;``, by the first pattern that matches. For an
    IPv6 address it is the number of its whole block."""
    server_max_connects_per_second_per_address: int = setting(DEFAULTS.connects, at_least=0)
    """New connections of one address (IPv6: of a /64 block) in a second, at most; 0 for any number."""
    server_max_unfinished_bytes: int = setting(DEFAULTS.unfinished, at_least=MAX_FRAME)
    """Bytes of all frames that are not complete yet, at most."""
    server_max_unsent_bytes: int = setting(DEFAULTS.unsent, at_least=MAX_FRAME)
    """Bytes of all answers that peers have not read yet, at most."""

    def limits(self, may_have: int | None = None) -> ConnectionLimits:
        """The limits that these settings mean, for a process that ``may_have`` these bytes. Raises ValueError."""
        may_have = memory.limit() if may_have is None else may_have
        return ConnectionLimits(
            connections=self.server_max_connections,
            connections_per_address=self.server_max_connections_per_address,
            overrides=tuple(_overrides(self.server_max_connections_per_address_overrides)),
            connects=self.server_max_connects_per_second_per_address,
            unfinished=_share(self.server_max_unfinished_bytes, may_have // 8),
            unsent=_share(self.server_max_unsent_bytes, may_have // 4),
            idle=float(self.server_channel_max_idle_time_seconds),
        )


def _share(wanted: int, most: int) -> int:
    """A budget within its share of the memory, if that is known; one frame has room at least."""
    return max(min(wanted, most), MAX_FRAME) if most else wanted


class ServerLoad:
    """What the connections of all servers of a daemon take, by the same ``limits``."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.count = ConnectionCount(limits.connections, chosen=limits.connections != DEFAULTS.connections)
        self.connects = Rate(limits.connects)
        self.budgets = budgets(limits.unfinished, limits.unsent)
        self.by_address: Counter[str] = Counter()
        """Connections by IPv4 address or block of IPv6 addresses."""
        self.limits = limits

    def rejection(self, address: str) -> Rejection | None:
        """Why a connection from this address is turned away; None if it is not."""
        if self.count.full:
            return Rejection.CONNECTIONS
        block = block_of(address)
        if self.by_address[block] >= self.most(address):
            return Rejection.CONNECTIONS_PER_ADDRESS
        return None if self.connects.take(block) else Rejection.CONNECTS_PER_SECOND

    def most(self, address: str) -> int:
        """The connections that an address may have; of IPv6 its block."""
        for pattern, number in self.limits.overrides:
            if pattern.matches(address):
                return number
        return self.limits.connections_per_address

    def enter(self, address: str) -> None:
        """Count a connection."""
        self.count.taken += 1
        self.by_address[block_of(address)] += 1

    def leave(self, address: str) -> None:
        """Count a connection no more."""
        self.count.taken -= 1
        block = block_of(address)
        self.by_address[block] -= 1
        if not self.by_address[block]:
            del self.by_address[block]
