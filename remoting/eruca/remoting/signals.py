"""What the signals of a daemon do: some stop it in order, SIGHUP reloads, SIGUSR1 dumps, none kills it.

Owns the table of signals. Must not know what a stop or a reload is: the daemon waits for the event, and gives the
function that reloads. Each signal is a line of the audit log.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from functools import partial
from typing import Final

from eruca.remoting.audit import audit_log
from eruca.remoting.dumps import dump_on, dump_tasks

STOPPING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
IGNORED: Final = {
    signal.SIGUSR2: "it has no meaning here",
}
"""Signals whose default is a kill, and what the line says about each."""


class StopEvent(asyncio.Event):
    """Set when a daemon is to stop; ``cause`` is the first signal that said so."""

    cause = ""

    def stop(self, number: signal.Signals) -> None:
        """A stopping signal has come."""
        self.cause = self.cause or number.name
        self.set()


def stop_event(reload: Callable[[], object]) -> StopEvent:
    """An event that the first stopping signal sets; handles all signals of the table on the running loop.

    ``reload`` is called for each SIGHUP.
    """
    over = StopEvent()
    loop = asyncio.get_running_loop()
    for number in STOPPING:
        loop.add_signal_handler(number, _received, number, partial(over.stop, number), "stop")
    for number in IGNORED:
        loop.add_signal_handler(number, _ignore, number)
    loop.add_signal_handler(signal.SIGHUP, _received, signal.SIGHUP, reload, "reload")
    loop.add_signal_handler(signal.SIGUSR1, _received, signal.SIGUSR1, dump_tasks, "dump")
    dump_on(signal.SIGUSR1)
    return over


def _received(number: signal.Signals, act: Callable[[], object], effect: str) -> None:
    audit_log.info("signal_received", signal=number.name, effect=effect)
    act()


def _ignore(number: signal.Signals) -> None:
    audit_log.warning("signal_ignored", signal=number.name, reason=IGNORED[number])
