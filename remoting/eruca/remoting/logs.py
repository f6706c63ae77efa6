"""How a daemon logs: one event a line on standard error.

Owns the form. Invariant: what a failed request held (messages, keys, secrets) is not in the log; a traceback shows
lines of code, not values.
"""

from __future__ import annotations

import logging
import sys

import structlog


def log_to_stderr() -> None:
    """Log everything from INFO on, with time and level; in colour only on a terminal."""
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
