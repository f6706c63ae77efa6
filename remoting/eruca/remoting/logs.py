"""Logging of a daemon: one event per line, on standard error or in files; inside another program, to ``logging``.

Owns the way of everything to the log: events, messages of ``logging`` (asyncio's among them), warnings, errors of
threads, the last sentence; and which format, file and level an event gets. Invariants: no log line raises or waits;
values cannot end a line or reach a terminal as control characters; the content of a failed request (messages, keys,
secrets) is never logged; a traceback shows lines of code, not values; the audit log is never left out, whatever the
level.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict

from eruca.remoting.life_lines import LifeLines
from eruca.remoting.log import quiet_logger, write
from eruca.remoting.log_files import LogFile, make_folder, not_written, part_of, paths_of
from eruca.remoting.log_json import JsonFormat
from eruca.remoting.log_levels import LogLevels
from eruca.remoting.log_limit import LogLimit
from eruca.remoting.log_line import LineFormat, one_line
from eruca.remoting.log_repeats import Repeats
from eruca.remoting.log_settings import LEVELS, LogSettings
from eruca.remoting.log_writer import GRACE, Descriptor, LogWriter, Target
from eruca.remoting.operating_system import EXIT_CONFIG, EXIT_SOFTWARE
from eruca.remoting.settings import BadSetting

AUDIT = ".audit"
"""The end of the names of loggers whose events get a line at every level."""
ALWAYS = (AUDIT, ".retention", ".start", ".dump")
"""Ends of the names of loggers whose every event gets a line: changes by operators, deleted files, finds of a start,
dumps that a signal asked for."""
STANDARD_OUTPUT, STANDARD_ERROR = 1, 2
LAST_LINES = 0.1
"""Seconds that standard output has at the end where standard error took all of GRACE."""

Say = Callable[[str], None]
Format = LineFormat | JsonFormat


@contextmanager
def log_to_stderr() -> Iterator[DaemonLog]:
    """While the block runs, log everything from INFO on, with time and level; in color only on a terminal.

    Yields the log, which takes its settings when they are known. The end of the block writes what waits, for a second
    at most for all streams and files together. The sentence of a ``sys.exit`` becomes the last line, and so do those of
    a BadSetting, with the exit code EX_CONFIG (78); another error that leaves the block is logged, and the exit code is
    EX_SOFTWARE (70).
    """
    log = DaemonLog()
    log.begin()
    try:
        yield log
    except SystemExit as end:
        if not isinstance(end.code, str):
            raise
        log.last(end.code)
        raise SystemExit(1) from None
    except BadSetting as bad:
        for fault in bad.faults:
            log.last(fault)
        raise SystemExit(EXIT_CONFIG) from None
    except Exception:
        log.failed()
        raise SystemExit(EXIT_SOFTWARE) from None
    finally:
        log.end()


def _descriptor(number: int, stream: TextIO | None) -> int:
    """That of a standard stream; of nothing for a closed one, whose number another file may get."""
    return number if stream is not None else os.open(os.devnull, os.O_WRONLY)


class DaemonLog:
    """The log of a daemon: to standard error, until ``settle`` names files.

    Called with a line, it prints that on standard output, after the events before it; that neither raises nor waits
    either.
    """

    def __init__(self) -> None:
        terminal = sys.stderr is not None and sys.stderr.isatty()
        self.levels = LogLevels(self._configure)
        self.life = LifeLines()
        """The lines about the daemon itself."""
        self._errors = _Way(
            Descriptor(_descriptor(STANDARD_ERROR, sys.stderr)), LineFormat(colors=terminal), self._expire
        )
        self._output = LogWriter(
            Descriptor(_descriptor(STANDARD_OUTPUT, sys.stdout)),
            lambda lost: f"{lost} lines are lost\n",
            former=self._errors.writer,
        )
        self._main = self._errors
        self._daemon = ""
        self._files: dict[str, LogFile] = {}
        self._ways: dict[str, _Way] = {}
        self._loggers: dict[str, _Lines] = {}
        self._file_faults = Repeats()
        self._messages = _Messages()
        self._hooks = threading.excepthook, sys.unraisablehook

    def __call__(self, line: str) -> None:
        self._output.put(f"{line}\n")

    # ------------------------------------------------------------------ settings

    def settle(self, settings: LogSettings, daemon: str) -> None:
        """Go on in the format, with the levels and in the files of a daemon's settings. Raises BadSetting."""
        form: Format = JsonFormat() if settings.log_format == "json" else LineFormat()
        files: dict[str, LogFile] = {}
        for part, path in paths_of(settings, daemon).items():
            try:
                make_folder(path)
                files[part] = LogFile(path, settings.log_file_size, settings.log_file_count, self._file_failed)
            except OSError as fault:
                raise BadSetting(f"mq{daemon}: logFile: {not_written(path, fault)}") from None
        if settings.log_format == "json":
            self._errors.form = form
        self._daemon, self._files = daemon, files
        self._ways = {part: _Way(file, form, self._expire) for part, file in files.items()}
        self._main = self._ways.get("", self._errors)
        self._loggers = {}
        self.levels.set(settings.log_level)

    def reload(self, settings: LogSettings) -> list[str]:
        """Open the files again, and take the level that the settings have by now; nothing of that is worth a line."""
        for each in self._files.values():
            each.reopen()
        if settings.log_level != self.levels.text:
            self.levels.set(settings.log_level)
        return []

    def _configure(self) -> None:
        structlog.configure(
            processors=[self._line],
            wrapper_class=structlog.make_filtering_bound_logger(min(logging.INFO, self.levels.least)),
            logger_factory=self._logger,
        )

    def _expire(self) -> None:
        for rule in self.levels.expire():
            structlog.get_logger("eruca.remoting").info("log_level_expired", rule=rule)

    def _file_failed(self, path: Path, fault: OSError) -> None:
        again = self._file_faults.failed((path, fault.errno))
        if again is not None:
            what = {"event": "log_file_failed", "file": str(path), "reason": fault.strerror, **again}
            self._errors.writer.put(self._errors.form.line("error", what, "eruca.remoting"))

    # ------------------------------------------------------------------ life

    def begin(self) -> None:
        """Take over events, messages of ``logging``, warnings and errors of threads."""
        self._configure()
        logging.getLogger().addHandler(self._messages)
        logging.captureWarnings(True)
        threading.excepthook = lambda fault: _failed("thread_failed", fault.exc_value, fault.thread)
        sys.unraisablehook = lambda fault: _failed("finalizer_failed", fault.exc_value, fault.object)

    def last(self, sentence: str) -> None:
        """Say why the daemon ends."""
        what = {"event": "daemon_ended", "reason": sentence}
        if isinstance(self._errors.form, LineFormat):
            self._errors.writer.put(one_line(sentence) + "\n")
        else:
            self._errors.writer.put(self._errors.form.line("error", what, "eruca"))
        if self._main is not self._errors:
            self._main.writer.put(self._main.form.line("error", what, "eruca"))

    def failed(self) -> None:
        """Log the present error, which ends the daemon."""
        structlog.get_logger("eruca").exception("daemon_failed")
        if self._main is not self._errors:
            self.last("an error in the daemon ended it: its log has the traceback")

    def end(self) -> None:
        """Write what waits."""
        ended = time.monotonic() + GRACE
        threading.excepthook, sys.unraisablehook = self._hooks
        logging.captureWarnings(False)
        logging.getLogger().removeHandler(self._messages)
        for writer in (*(way.writer for way in self._ways.values()), self._errors.writer):
            writer.close(max(ended - time.monotonic(), 0.0))
        self._output.close(max(ended - time.monotonic(), LAST_LINES))

    # ------------------------------------------------------------------ an event

    def _logger(self, *names: Any) -> _Lines:
        name = str(names[0]) if names else ""
        lines = self._loggers.get(name)
        if lines is None:
            way = self._ways.get(part_of(name, self._daemon), self._main) if self._ways else self._errors
            lines = self._loggers[name] = _Lines(name, way)
        return lines

    def _line(self, lines: _Lines, level: str, event: EventDict) -> str:
        """The processor: drops what is below the level or beyond the limit before it costs more."""
        way = lines.way
        if LEVELS.get(level.upper(), logging.ERROR) < self.levels.of(lines.name) and not lines.audit:
            raise structlog.DropEvent
        if lines.limited:
            admitted, left_out = way.limit.admit(str(event.get("event")), level)
            if left_out is not None:
                way.writer.put(way.form.left_out(left_out))
            if not admitted:
                raise structlog.DropEvent
        return way.form.line(level, event, lines.name)


class _Way:
    """The way of lines to a stream or a file: limit, format, writing thread. ``tick`` is called about each second."""

    def __init__(self, target: Target, form: Format, tick: Callable[[], object]) -> None:
        self.limit = LogLimit()
        self.form = form
        self._tick = tick
        self.writer = LogWriter(target, self._notice, self._late)

    def _late(self, closing: bool) -> list[str]:
        self._tick()
        return [self.form.left_out(each) for each in self.limit.ended(closing=closing)]

    def _notice(self, lost: int) -> str:
        return self.form.line("warning", {"event": "log_lines_lost", "count": lost}, "eruca.remoting")


class _Lines:
    """A logger, which structlog calls with a line that is ready."""

    def __init__(self, name: str, way: _Way) -> None:
        self.name = name
        self.way = way
        self.audit = name.endswith(AUDIT)
        self.limited = not name.endswith(ALWAYS)
        self.debug = self.info = self.warning = self.error = self.critical = way.writer.put


class _Messages(logging.Handler):
    """Messages of ``logging`` as events: the name of the logger is the event's."""

    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger(record.name)
        say = next((getattr(log, name) for least, name in _LEVELS_OF_LOGGING if record.levelno >= least), log.debug)
        try:
            text = record.getMessage()
        except Exception:  # the arguments do not fit
            text = str(record.msg)
        say(record.name, message=text, exc_info=record.exc_info)


_LEVELS_OF_LOGGING = ((logging.ERROR, "error"), (logging.WARNING, "warning"), (logging.INFO, "info"))


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
