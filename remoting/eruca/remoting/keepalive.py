"""Keepalive of TCP: the kernel ends a connection whose peer has vanished without a word.

Owns the times. Must not know whose connection it is.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 6}
"""A peer that vanished without a word is noticed after 60 s of silence and 6 unanswered probes, 10 s apart."""

_SOON = {"TCP_KEEPIDLE": 1, "TCP_KEEPINTVL": 1, "TCP_KEEPCNT": 5, "TCP_USER_TIMEOUT": 6_000}
"""The same within 6 s, of which it may have been silent before, also while something is unacknowledged."""


def keep_alive(sock: Any) -> None:
    """Let the kernel end a TCP connection whose peer has vanished; accepted ones inherit it from a listening socket."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    _set(sock, KEEPALIVE)


def probe(sock: Any) -> None:
    """Let the kernel find out within seconds whether the peer of a TCP connection is there, and end it if not.

    A process that is stopped or busy is there: its kernel answers.
    """
    _set(sock, _SOON)


def _set(sock: Any, options: Mapping[str, int]) -> None:
    for name, value in options.items():
        option = getattr(socket, name, None)  # macOS has another name for the first
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
