"""Free ports for the processes that tests start.

Owns the choice only: a port is free when it is chosen, and it is bound by another process a moment
later, so a caller that loses the race chooses again. Servers inside the tests bind port 0 instead.
"""

import socket


def free_port() -> int:
    """A port of the loopback address that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def free_broker_port() -> int:
    """A listen port whose neighbours are free too: port - 2 (VIP) and port + 1 (HA)."""
    for _ in range(200):
        port = free_port()
        if 1024 < port < 65_000 and all(_bindable(p) for p in (port - 2, port, port + 1)):
            return port
    raise RuntimeError("No three free ports (n - 2, n, n + 1) were found; close other servers.")


def _bindable(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
        return True
