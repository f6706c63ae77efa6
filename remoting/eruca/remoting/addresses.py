"""Addresses ``host:port``, and that of this machine (RemotingUtil.getLocalAddress in 4.9.7)."""

from __future__ import annotations

import socket


def split_address(address: str) -> tuple[str, int]:
    """Host and port of ``host:port``; an IPv6 host is returned without its brackets. Raises ValueError."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError('an address looks like "host:port"')
    return host.removeprefix("[").removesuffix("]"), int(port)


def vip_address(address: str) -> str:
    """The second address of a broker, which does not serve pulls: two ports below (MixAll.brokerVIPChannel)."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) - 2}"


def local_address() -> str:
    """The address of the interface that faces outward, IPv4 first; 127.0.0.1 if there is none. Sends nothing."""
    for family, outside in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((outside, 9))
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return "127.0.0.1"
