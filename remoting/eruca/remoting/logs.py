"""Logging of a daemon: one event per line on standard error; inside another program, to ``logging``.

Owns the format. Invariant: the content of a failed request (messages, keys, secrets) is never logged; a traceback shows
lines of code, not values.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

import structlog
from structlog.typing import EventDict

from eruca.remoting.log import quiet_logger, write


def log_to_stderr() -> None:
    """Log everything from INFO on, with time and level; in color only on a terminal."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            ),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def log_to_logging() -> None:
    """For servers inside a program or a test: Eruca's events go to ``logging``, unless structlog is configured.

    Unconfigured, structlog prints to the standard output of the program; events of others still do.
    """
    if not structlog.is_configured():
        config = structlog.get_config()
        structlog.configure(
            processors=[_hand_over, *config["processors"]], logger_factory=_Loggers(config["logger_factory"])
        )


class _Loggers:
    """The logger factory of structlog: loggers with Eruca's names are those of ``logging``."""

    def __init__(self, others: Callable[..., Any]) -> None:
        self._others = others

    def __call__(self, *names: Any) -> Any:
        if names and str(names[0]).startswith("eruca."):
            return quiet_logger(names[0])
        return self._others(*names)


def _hand_over(logger: Any, level: str, event: EventDict) -> EventDict:
    """The first processor, and the last one for events that go to ``logging``."""
    if isinstance(logger, logging.Logger) and logger.name.startswith("eruca."):
        write(getattr(logger, level), **event)
        raise structlog.DropEvent
    return event
