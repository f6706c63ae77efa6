"""The log of the transport, which costs nothing until something is logged.

structlog takes longer to import than a command of mqadmin takes to run, and such a command logs nothing. If structlog
is not configured, as in a client's program, events go to ``logging``, and nothing to the terminal.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any


class Log:
    """A logger by name, created on use: of structlog if that is configured, else of ``logging``."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, level: str) -> Any:
        import structlog

        if structlog.is_configured():
            return getattr(structlog.get_logger(self._name), level)
        return functools.partial(write, getattr(quiet_logger(self._name), level))


def quiet_logger(name: str) -> logging.Logger:
    """The logger of ``logging`` with this name, which is silent until the application configures logging."""
    logger = logging.getLogger(name)
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return logger


def write(call: Callable[..., None], /, event: str, exc_info: Any = None, **values: object) -> None:
    """An event and its values as a line of ``logging``."""
    call("%s", " ".join((event, *(f"{name}={value!r}" for name, value in values.items()))), exc_info=exc_info)


log = Log("eruca.remoting")
