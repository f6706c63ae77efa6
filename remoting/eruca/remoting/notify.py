"""Notification of systemd: starting, ready, reloading, alive, stopping (sd_notify, without its library).

Owns: the datagrams to the socket in ``NOTIFY_SOCKET``, and the watchdog interval of ``WATCHDOG_USEC``.
Must not know: what ready means; the daemon calls ``ready`` after recovery and with its port open.
Invariant: without a supervisor every call does nothing, and no failure to notify disturbs the daemon. The watchdog
timer runs on the event loop: a loop that is stuck misses it, and systemd restarts the daemon.

In a daemon::

    systemd = Supervisor(os.environ)
    ...                                     # recover, open the port
    systemd.ready("listening on 10911")     # also starts the watchdog timer
    ...
    systemd.stopping()
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Callable, Mapping

__all__ = ["Supervisor"]


class Supervisor:
    """The service manager that started this process, if one did.

    ``environment`` is that of the process; ``pid`` (default: this process) is compared with ``WATCHDOG_PID``, so
    that a child does not notify for its parent.
    """

    def __init__(self, environment: Mapping[str, str], *, pid: int | None = None) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.beat_every = _beat(environment, os.getpid() if pid is None else pid)
        """Seconds between two watchdog notifications, half of systemd's limit; None without a watchdog."""
        self._ready = False
        self._next: asyncio.TimerHandle | None = None

    def starting(self, status: str, seconds: float) -> None:
        """Notify that the start goes on: it may take ``seconds`` longer, whatever its limit is."""
        self._send(f"EXTEND_TIMEOUT_USEC={seconds * 1_000_000:.0f}", status)

    def ready(self, status: str = "") -> None:
        """Notify that the daemon serves, and start the watchdog timer. Call it on the event loop."""
        self._ready = True
        self._send("READY=1", status)
        if self._address and self.beat_every is not None:
            self._beat(asyncio.get_running_loop(), self.beat_every)

    def reload(self, work: Callable[[], object]) -> None:
        """Do ``work``, by which a daemon reloads; of one that is ready it is notified."""
        if self._ready and self._address and hasattr(time, "CLOCK_MONOTONIC"):
            self._send(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")
        try:
            work()
        finally:
            if self._ready:
                self._send("READY=1")

    def stopping(self, status: str = "") -> None:
        """Notify that the daemon stops, and stop the watchdog timer."""
        self._ready = False
        if self._next is not None:
            self._next.cancel()
            self._next = None
        self._send("STOPPING=1", status)

    def _beat(self, loop: asyncio.AbstractEventLoop, every: float) -> None:
        self._send("WATCHDOG=1")
        self._next = loop.call_later(every, self._beat, loop, every)

    def _send(self, state: str, status: str = "") -> None:
        if not self._address or not hasattr(socket, "AF_UNIX"):
            return
        text = f"{state}\nSTATUS={' '.join(status.split())}" if status else state
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.setblocking(False)
            channel.sendto(text.encode(), self._address)


def _beat(environment: Mapping[str, str], pid: int) -> float | None:
    allowed = environment.get("WATCHDOG_USEC", "")
    if not allowed.isdecimal() or int(allowed) == 0:
        return None
    if environment.get("WATCHDOG_PID", str(pid)) != str(pid):
        return None
    return int(allowed) / 2_000_000
