"""Keepalive of TCP: the kernel ends a connection whose peer has vanished without a word.

Owns the times. Must not know whose connection it is.
"""

from __future__ import annotations

import socket
from typing import Any

KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 6}
"""A peer that vanished without a word is noticed after 60 s of silence and 6 unanswered probes, 10 s apart."""


def keep_alive(sock: Any) -> None:
    """Let the kernel end a TCP connection whose peer has vanished; accepted ones inherit it from a listening socket."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        option = getattr(socket, name, None)  # macOS has another name for the first
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
