"""Free ports for the processes that tests start.

Owns the choice only: a port is free when it is chosen, and another process binds it a moment later.
So ports are drawn from below the range from which the kernel gives ports to outgoing connections;
else one of those could come in between. Servers inside the tests bind port 0 instead.
"""

import random
import socket

_BELOW_EPHEMERAL = range(15_000, 32_000)


def free_port() -> int:
    """A port that nothing listens on now."""
    return _draw(0)


def free_broker_port() -> int:
    """A listen port whose neighbours are free too: port - 2 (VIP) and port + 1 (HA)."""
    return _draw(-2, 0, 1)


def _draw(*offsets: int) -> int:
    for _ in range(200):
        port = random.SystemRandom().choice(_BELOW_EPHEMERAL)
        if all(_bindable(port + offset) for offset in offsets):
            return port
    raise RuntimeError("No free ports were found between 15000 and 32000; close other servers.")


def _bindable(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
        return True
