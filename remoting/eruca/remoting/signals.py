"""What the signals of a daemon do: some stop it in order, SIGHUP reloads, SIGUSR1 dumps, none kills it.

Owns the table of signals. Must not know what a stop or a reload is: the daemon waits for the event, and gives the
function that reloads. Each signal is a line of the audit log.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from eruca.remoting.audit import audit_log
from eruca.remoting.dumps import dump_on, dump_tasks

STOPPING: Final = ("SIGTERM", "SIGINT", "SIGQUIT", "SIGBREAK")
IGNORED: Final = {
    "SIGUSR2": "it has no meaning here",
}
"""Signals whose default is a kill, and what the line says about each."""
RELOADING: Final = "SIGHUP"
DUMPING: Final = "SIGUSR1"


class StopEvent(asyncio.Event):
    """Set when a daemon is to stop; ``cause`` is the first signal that said so."""

    cause = ""

    def stop(self, number: signal.Signals) -> None:
        """A stopping signal has come."""
        self.cause = self.cause or number.name
        self.set()


def stop_event(reload: Callable[[], object]) -> StopEvent:
    """An event that the first stopping signal sets; handles all signals of the table on the running loop.

    ``reload`` is called for each SIGHUP. Signals that the system lacks are left out.
    """
    over = StopEvent()
    for number in _present(*STOPPING):
        _handle(number, partial(_received, number, partial(over.stop, number), "stop"))
    for number in _present(*IGNORED):
        _handle(number, partial(_ignore, number))
    for number in _present(RELOADING):
        _handle(number, partial(_received, number, reload, "reload"))
    for number in _present(DUMPING):
        _handle(number, partial(_received, number, dump_tasks, "dump"))
        dump_on(number)
    return over


def _present(*names: str) -> Iterator[signal.Signals]:
    return (signal.Signals[name] for name in names if name in signal.Signals.__members__)


def _handle(number: signal.Signals, act: Callable[[], object]) -> None:
    """Call ``act`` on the running loop for each such signal."""
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(number, act)
    except NotImplementedError:  # Windows
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(act))


def _received(number: signal.Signals, act: Callable[[], object], effect: str) -> None:
    audit_log.info("signal_received", signal=number.name, effect=effect)
    act()


def _ignore(number: signal.Signals) -> None:
    audit_log.warning("signal_ignored", signal=number.name, reason=IGNORED[number.name])
