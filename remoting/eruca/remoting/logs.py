"""Logging of a daemon: one event per line on standard error; inside another program, to ``logging``.

Owns the format, and the way of everything to standard error: events, messages of ``logging`` (asyncio's among them),
warnings, errors of threads, the last sentence. Invariants: no log line raises or waits; values cannot end a line or
reach a terminal as control characters; the content of a failed request (messages, keys, secrets) is never logged; a
traceback shows lines of code, not values.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict

from eruca.remoting.log import quiet_logger, write
from eruca.remoting.log_limit import LogLimit
from eruca.remoting.log_line import LineFormat, one_line
from eruca.remoting.log_writer import GRACE, LogWriter
from eruca.remoting.settings import BadSetting

ALWAYS = (".audit", ".retention", ".start", ".dump")
"""Ends of the names of loggers whose every event gets a line: changes by operators, deleted files, finds of a start,
dumps that a signal asked for."""
STANDARD_OUTPUT, STANDARD_ERROR = 1, 2
LAST_LINES = 0.1
"""Seconds that standard output has at the end where standard error took all of GRACE."""

Say = Callable[[str], None]


@contextmanager
def log_to_stderr() -> Iterator[Say]:
    """While the block runs, log everything from INFO on, with time and level; in color only on a terminal.

    Yields a function that prints a line on standard output, after the events before it; it neither raises nor waits
    either. The end of the block writes what waits, for a second at most for both streams together. The sentence of a
    ``sys.exit`` becomes the last line, and so do those of a BadSetting, with the exit code EX_CONFIG (78); another
    error that leaves the block is logged, and the exit code is EX_SOFTWARE (70).
    """
    terminal = sys.stderr is not None and sys.stderr.isatty()
    log = _Log(_descriptor(STANDARD_ERROR, sys.stderr), colors=terminal)
    output = LogWriter(
        _descriptor(STANDARD_OUTPUT, sys.stdout), lambda lost: f"{lost} lines are lost\n", former=log.writer
    )
    log.begin()
    try:
        yield lambda line: output.put(f"{line}\n")
    except SystemExit as end:
        if not isinstance(end.code, str):
            raise
        log.writer.put(one_line(end.code) + "\n")
        raise SystemExit(1) from None
    except BadSetting as bad:
        log.writer.put("".join(one_line(fault) + "\n" for fault in bad.faults))
        raise SystemExit(os.EX_CONFIG) from None
    except Exception:
        structlog.get_logger("eruca").exception("daemon_failed")
        raise SystemExit(os.EX_SOFTWARE) from None
    finally:
        ended = time.monotonic() + GRACE
        log.end()
        output.close(max(ended - time.monotonic(), LAST_LINES))


def _descriptor(number: int, stream: TextIO | None) -> int:
    """That of a standard stream; of nothing for a closed one, whose number another file may get."""
    return number if stream is not None else os.open(os.devnull, os.O_WRONLY)


class _Log:
    """The way of events to standard error: limit, format, writing thread."""

    def __init__(self, descriptor: int, *, colors: bool) -> None:
        self.writer = LogWriter(descriptor, self._notice, self._late)
        self._limit = LogLimit()
        self._format = LineFormat(colors=colors)
        self._limited, self._unlimited = _Lines(self.writer.put), _Lines(self.writer.put)
        self._messages = _Messages()
        self._hooks = threading.excepthook, sys.unraisablehook

    def begin(self) -> None:
        structlog.configure(
            processors=[self._admit, self._format],
            wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
            logger_factory=self._logger,
        )
        logging.getLogger().addHandler(self._messages)
        logging.captureWarnings(True)
        threading.excepthook = lambda fault: _failed("thread_failed", fault.exc_value, fault.thread)
        sys.unraisablehook = lambda fault: _failed("finalizer_failed", fault.exc_value, fault.object)

    def end(self) -> None:
        threading.excepthook, sys.unraisablehook = self._hooks
        logging.captureWarnings(False)
        logging.getLogger().removeHandler(self._messages)
        self.writer.close()

    def _logger(self, *names: Any) -> _Lines:
        return self._unlimited if names and str(names[0]).endswith(ALWAYS) else self._limited

    def _admit(self, lines: _Lines, level: str, event: EventDict) -> EventDict:
        """The first processor: drops what is beyond the limit before it costs more."""
        if lines is self._limited:
            admitted, left_out = self._limit.admit(str(event.get("event")), level)
            if left_out is not None:
                self.writer.put(self._format.left_out(left_out))
            if not admitted:
                raise structlog.DropEvent
        return event

    def _late(self, closing: bool) -> list[str]:
        return [self._format.left_out(each) for each in self._limit.ended(closing=closing)]

    def _notice(self, lost: int) -> str:
        return self._format.line("warning", {"event": "log_lines_lost", "count": lost})


class _Lines:
    """What structlog calls with a line that is ready."""

    def __init__(self, put: Callable[[str], None]) -> None:
        self.debug = self.info = self.warning = self.error = self.critical = put


class _Messages(logging.Handler):
    """Messages of ``logging`` as events: the name of the logger is the event's."""

    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger(record.name)
        say = log.error if record.levelno >= logging.ERROR else log.warning
        try:
            text = record.getMessage()
        except Exception:  # the arguments do not fit
            text = str(record.msg)
        say(record.name, message=text, exc_info=record.exc_info)


def _failed(event: str, fault: BaseException | None, place: object) -> None:
    structlog.get_logger("eruca").error(event, where=repr(place), exc_info=fault)


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
