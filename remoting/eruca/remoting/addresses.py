"""Addresses ``host:port``, and that of this machine (RemotingUtil.getLocalAddress in 4.9.7)."""

from __future__ import annotations

import re
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")
_LONGEST_NAME = 253
LAST_PORT = 65535


def port_number(text: str | int, first: int = 1) -> int:
    """The port that a person wrote, ``first`` or more. Raises ValueError, whose words say what to write instead."""
    plain = str(text)
    if not (plain.isascii() and plain.isdigit() and len(plain) < 6 and first <= int(plain) <= LAST_PORT):
        raise ValueError(f"a port is a number from {first} to {LAST_PORT}")
    return int(plain)


def split_address(address: str) -> tuple[str, int]:
    """Host and port of ``host:port``; an IPv6 host is returned without its brackets. Raises ValueError."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError('an address looks like "host:port"')
    return host.removeprefix("[").removesuffix("]"), int(port)


def whole_address(text: str, usual_port: int) -> str:
    """``host:port`` of a text that a person wrote, perhaps without the port.

    Raises ValueError, whose words say what to write instead.
    """
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(usual_port)
    in_brackets = host[:1] == "[" and host[-1:] == "]"
    if "@" in host:
        raise ValueError("leave out the account before @: an access key has a setting of its own")
    if not in_brackets and ":" in host:
        raise ValueError(f'an IPv6 address stands in brackets, such as "[::1]:{usual_port}"')
    if port.isdecimal():
        port_number(port)
    known = _numeric(host[1:-1].partition("%")[0]) is not None if in_brackets else is_host(host)
    if not known or not port.isdecimal():
        raise ValueError(f'"host:port" is expected, such as "mq1:{usual_port}"')
    return f"{host}:{port}"


def peer_of(name: Any) -> tuple[str, int]:
    """Address and port of a socket's name; an IPv4 peer has the same address on a socket of both kinds (``::``)."""
    host = str(name[0])
    return host.removeprefix("::ffff:") if "." in host else host, int(name[1])


def block_of(address: str) -> str:
    """What counts as one peer: an IPv4 address; of an IPv6 address its first 64 bits, since whoever has one address of
    such a block usually has them all."""
    if ":" not in address:
        return address
    try:
        block = socket.inet_pton(socket.AF_INET6, address.partition("%")[0])[:8]
    except OSError:
        return address
    return f"{socket.inet_ntop(socket.AF_INET6, block + bytes(8))}/64"


def vip_address(address: str) -> str:
    """The second address of a broker, which does not serve pulls: two ports below (MixAll.brokerVIPChannel)."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) - 2}"


def address_of_vip(address: str) -> str:
    """The first address of a broker, by its second one."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + 2}"


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


def is_numeric(text: str) -> bool:
    """Whether a text is an IPv4 or IPv6 address, without brackets and zone."""
    return _numeric(text) is not None


def is_host(text: str) -> bool:
    """Whether a text is an IPv4 or IPv6 address, without brackets and zone, or a host name."""
    if is_numeric(text):
        return True
    labels = text.removesuffix(".").split(".")
    if len(text) > _LONGEST_NAME or labels[-1].isdecimal():  # 10.0.0.256
        return False
    return all(_LABEL.fullmatch(label) is not None for label in labels)


def is_reachable_host(text: str) -> bool:
    """Whether a text can be the address of one machine for others: a host, but not 0.0.0.0, :: or a group address."""
    found = _numeric(text)
    if found is None:
        return is_host(text)
    return not (found.is_unspecified or found.is_multicast or text == "255.255.255.255")


def is_address(text: str) -> bool:
    """Whether a text is ``host:port`` of one machine."""
    try:
        host, port = split_address(text.strip())
    except ValueError:
        return False
    return is_reachable_host(host) and text.isascii() and 0 < port <= LAST_PORT


def are_addresses(text: str) -> bool:
    """Whether a text is one or several ``host:port``, joined by ``;``."""
    pieces = [piece for piece in text.split(";") if piece.strip()]
    return bool(pieces) and all(is_address(piece) for piece in pieces)


def _numeric(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text) if "%" not in text else None
    except ValueError:
        return None
