"""The files of a daemon's log: which logger writes to which, and when a file is put aside.

Owns names, rotation by size, opening again, and the lock by which no other process writes the same file. Knows bytes,
not lines. All but ``reopen`` is called by the thread that writes. Invariants: a file that cannot be opened or put aside
leaves the present one in use; a file grows beyond its size by one write at most.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from eruca.remoting.log_settings import LogSettings
from eruca.remoting.operating_system import lock_file, open_file
from eruca.remoting.settings import Finding

SUFFIX = ".log"
RETRY_AFTER = 60.0
"""Seconds until a file that could not be opened or put aside is tried again."""
RIGHTS, FOLDER_RIGHTS = 0o640, 0o750

AUDIT = "audit"
PARTS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "broker": {
        AUDIT: ("eruca.audit", "eruca.access.audit"),
        "store": ("eruca.broker.store",),
        "remoting": ("eruca.remoting", "asyncio"),
    },
    "namesrv": {
        AUDIT: ("eruca.audit", "eruca.access.audit"),
        "remoting": ("eruca.remoting", "asyncio"),
    },
}
"""By daemon and file: the loggers whose lines, and those of loggers below them, go there.

All others go to the file that has the daemon's name.
"""

Fault = Callable[[Path, OSError], object]


def unusable(settings: LogSettings, daemon: str) -> Iterator[Finding]:
    """Why a daemon could not write its files, among them those that another process writes. Creates nothing."""
    for path in paths_of(settings, daemon).values():
        if path.exists():
            try:
                descriptor = open_file(path, os.O_WRONLY | os.O_APPEND)
                try:
                    _lock(descriptor, path)
                finally:
                    os.close(descriptor)
            except OSError as fault:
                yield Finding("logFile", f"does not work: {not_written(path, fault)}")


def not_written(path: Path, fault: OSError) -> str:
    """The sentence about a file that a daemon cannot have."""
    return f"{path} cannot be written ({fault.strerror}); name a folder of this daemon's own, which its user may write"


class LogFileTaken(OSError):
    """Another process writes this file."""


class LogFile:
    """One file of a log. Raises OSError if it cannot be opened, LogFileTaken if another process has it.

    ``on_fault`` is called with what prevents writing or putting aside.
    """

    def __init__(self, path: Path, size: int, count: int, on_fault: Fault) -> None:
        self.path = path
        self._most = size
        self._count = count
        self._on_fault = on_fault
        self._again = False
        self._retry_at = 0.0
        self._descriptor = self._opened()
        self._size = os.fstat(self._descriptor).st_size

    def reopen(self) -> None:
        """Open the path again before the next write; the present file may have been moved."""
        self._retry_at = 0.0
        self._again = True

    def begin(self, size: int) -> bool:
        """Get ready for ``size`` bytes, which begin with a line; returns whether they go to another file."""
        full = bool(self._most and self._size and size and self._size + size > self._most)
        if not (self._again or full) or time.monotonic() < self._retry_at:
            return False
        if self._again and self._is_in_place():
            self._again = False
            return False
        try:
            if not self._again:
                self._put_aside()
                self._again = True
            descriptor = self._opened()
        except OSError as fault:
            self._retry_at = time.monotonic() + RETRY_AFTER
            self._on_fault(self.path, fault)
            return False
        os.close(self._descriptor)
        self._again = False
        self._descriptor, self._size = descriptor, os.fstat(descriptor).st_size
        return True

    def write(self, data: memoryview) -> int:
        """Write what fits; returns how much that was."""
        try:
            count = os.write(self._descriptor, data)
        except OSError as fault:
            self._on_fault(self.path, fault)
            raise
        self._size += count
        return count

    def close(self) -> None:
        """Close the file; another process may have it."""
        os.close(self._descriptor)

    def _is_in_place(self) -> bool:
        """Whether the path still names the present file, which has its lock."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._descriptor))
        except OSError:
            return False

    def _opened(self) -> int:
        descriptor = open_file(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, RIGHTS)
        try:
            _lock(descriptor, self.path)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def _put_aside(self) -> None:
        """Rename the file to ``.1``, and each older one to the next number; the last one is deleted."""
        places = [self.path, *(Path(f"{self.path}.{number}") for number in range(1, self._count + 1))]
        if self._count == 0:
            self.path.unlink(missing_ok=True)
        for older, newer in zip(reversed(places[1:]), reversed(places[:-1]), strict=True):
            if newer.exists():
                newer.replace(older)


def _lock(descriptor: int, path: Path) -> None:
    """One process writes a file; a device such as /dev/null is everybody's. Raises LogFileTaken."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return
    try:
        lock_file(descriptor)
    except OSError as fault:
        if fault.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise LogFileTaken(fault.errno, "another process writes it", str(path)) from None


def paths_of(settings: LogSettings, daemon: str) -> dict[str, Path]:
    """The files of a daemon's log by part; the part "" is the file for all other loggers. Empty without ``logFile``."""
    if settings.log_file is None:
        return {}
    given = Path(settings.log_file)
    if given.suffix == SUFFIX and not given.is_dir():
        return {"": given, AUDIT: given.with_name(f"{given.stem}-{AUDIT}{SUFFIX}")}
    return {"": given / f"{daemon}{SUFFIX}", **{part: given / f"{part}{SUFFIX}" for part in PARTS[daemon]}}


def make_folder(path: Path) -> None:
    """The folder of a file. Raises OSError."""
    path.parent.mkdir(mode=FOLDER_RIGHTS, parents=True, exist_ok=True)


def part_of(logger: str, daemon: str) -> str:
    """The part of the log that a logger writes to."""
    for part, names in PARTS[daemon].items():
        if any(logger == name or logger.startswith(f"{name}.") for name in names):
            return part
    return ""
