"""The lines of a daemon about itself: with what it starts, where it listens, how it stopped.

Owns which facts of a start stand in the log, so that a log by itself says what ran. Must not know a daemon. Invariant:
no secret is among the settings.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping

from eruca.remoting.descriptors import limit
from eruca.remoting.log import Log
from eruca.remoting.settings import values
from eruca.remoting.version import version

log = Log("eruca.start")


def changed_settings(config: object) -> dict[str, str]:
    """The settings that do not have their defaults, without secrets."""
    defaults = values(type(config)())
    return {key: text for key, text in values(config).items() if text != defaults[key]}


class LifeLines:
    """The lines of one run of a daemon, from its start on."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._started = False

    def starting(self, daemon: str, config: object, file: str | None, **more: object) -> None:
        """Before anything is opened. ``more`` are parts that are on or off."""
        log.info(
            "daemon_starting",
            daemon=daemon,
            version=version(),
            pid=os.getpid(),
            python=platform.python_version(),
            file=file or "none",
            settings=", ".join(f"{key}={text}" for key, text in changed_settings(config).items()) or "the defaults",
            descriptors=limit(),
            **more,
        )

    def started(self, **more: object) -> None:
        """It serves. ``more`` are its addresses and ports."""
        self._started = True
        log.info("daemon_started", seconds=self._since(), **more)
        self._begun = time.monotonic()

    def stopping(self, cause: str) -> None:
        """It begins to stop; ``cause`` is a signal, or what has failed."""
        ran = self._since()
        self._begun = time.monotonic()
        log.info("daemon_stopping", cause=cause, ran=ran)

    def stopped(self, drained: Mapping[str, int], faults: int = 0) -> None:
        """It has stopped. ``drained`` is what waited when the stop began."""
        say = log.warning if faults else log.info
        say("daemon_stopped", seconds=self._since(), faults=faults, **drained)

    def _since(self) -> float:
        return round(time.monotonic() - self._begun, 3)
