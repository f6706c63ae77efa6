"""Free ports for the processes that tests start.

Owns the choice only: a port is free when it is chosen, and another process binds it a moment later, a JVM after
seconds. So ports are drawn from below the range from which the kernel gives ports to outgoing connections, each worker
of pytest-xdist draws from its own part of that, and no port twice before all were drawn. Servers inside the tests bind
port 0 instead.
"""

import os
import random
import socket
from collections.abc import Iterator
from itertools import cycle

_BELOW_EPHEMERAL = range(15_000, 32_000)


def free_port() -> int:
    """A port that nothing listens on now."""
    return _draw(0)


def free_broker_port() -> int:
    """A listen port whose neighbours are free too: port - 2 (VIP) and port + 1 (HA)."""
    return _draw(-2, 0, 1)


def _own_ports() -> Iterator[int]:
    """Every fourth port of this worker's part, in random order, so that the neighbours of one are no other's."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    size = len(_BELOW_EPHEMERAL) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    ports = list(_BELOW_EPHEMERAL[worker * size + 2 : (worker + 1) * size - 1 : 4])
    random.SystemRandom().shuffle(ports)
    return cycle(ports)


_ports = _own_ports()


def _draw(*offsets: int) -> int:
    for _ in range(200):
        port = next(_ports)
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
