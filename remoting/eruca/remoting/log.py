"""The log of the transport, which costs nothing until something is logged.

structlog takes longer to import than a command of mqadmin takes to run, and such a command logs nothing.
"""

from __future__ import annotations

from typing import Any


class Log:
    """A logger of structlog by name, made when it is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, level: str) -> Any:
        import structlog

        return getattr(structlog.get_logger(self._name), level)


log = Log("eruca.remoting")
