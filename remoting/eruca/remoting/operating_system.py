"""What operating systems do in different ways: forks, files at a position, locks, flushes, ports, memory, exit codes.

Owns the choice between what Linux, macOS and Windows have; on Linux each function is the plain call. Must not know what
a file holds. Invariants: importing this module needs no name that a system lacks; a file that is opened here holds the
bytes that were written, and no child process has it.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Final

EXIT_SOFTWARE: Final = 70
"""Exit code of a program that an inner fault has ended (EX_SOFTWARE of sysexits.h, which Windows lacks)."""
EXIT_CONFIG: Final = 78
"""Exit code of a program whose configuration cannot be taken (EX_CONFIG)."""

_AS_BYTES: Final = getattr(os, "O_BINARY", 0)
_PAGE: Final = 4096
_LOCK_FAR: Final = 1 << 30
"""Where Windows locks a file that others are to read: a lock there forbids to read what it covers."""
_ASSUMED_MEMORY: Final = 4 << 30
_position = threading.Lock()
"""Held while a file is set to a position and read or written there, where there is no call for both."""


def after_fork_in_child(call: Callable[[], object]) -> None:
    """Have ``call`` called in each forked child; where processes do not fork, never."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=call)


def open_file(path: str | os.PathLike[str], flags: int, mode: int = 0o644) -> int:
    """A descriptor for the bytes of a file, as of ``os.open``. Raises OSError."""
    return os.open(path, flags | _AS_BYTES, mode)


def read_at(fd: int, size: int, position: int) -> bytes:
    """Bytes at a position, fewer where the file ends. Raises OSError."""
    if hasattr(os, "pread"):
        return os.pread(fd, size, position)
    with _position:
        os.lseek(fd, position, os.SEEK_SET)
        return os.read(fd, size)


def write_at(fd: int, data: bytes | bytearray | memoryview, position: int) -> int:
    """Write at a position; returns how many bytes found room. Raises OSError."""
    if hasattr(os, "pwrite"):
        return os.pwrite(fd, data, position)
    with _position:
        os.lseek(fd, position, os.SEEK_SET)
        return os.write(fd, data)


def allocate(fd: int, position: int, size: int) -> None:
    """Give a part of a file its blocks, so that writing there through a mapping cannot fail. Raises OSError.

    Where no call does so (macOS, Windows), a byte of each page is written as it is; nobody else may write there then.
    """
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, position, size)
        return
    end = position + size
    for at in [*range(position, end, _PAGE), end - 1]:
        write_at(fd, read_at(fd, 1, at) or b"\0", at)


def flush_file(fd: int) -> None:
    """Bring what was written into a file to the disk. Raises OSError; then it may be lost."""
    if sys.platform == "darwin":
        import fcntl

        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # fsync does not reach the disk there
    elif hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    else:
        os.fsync(fd)


def flush_folder(path: str | os.PathLike[str]) -> None:
    """Make the entries of a folder durable; Windows does so by itself. Raises OSError."""
    if hasattr(os, "O_DIRECTORY"):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def lock_file(fd: int) -> None:
    """Lock a file until it is closed; others may read it. Raises OSError (EACCES, EWOULDBLOCK) if it is locked."""
    try:
        import fcntl
    except ImportError:
        _lock_byte(fd, _LOCK_FAR)
        return
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def lock_first_byte(fd: int) -> None:
    """Lock byte 0 of a file, as Java's FileChannel does, until this process closes it. Raises OSError if it is."""
    try:
        import fcntl
    except ImportError:
        _lock_byte(fd, 0)
        return
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)


def _lock_byte(fd: int, position: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        with _position:
            os.lseek(fd, position, os.SEEK_SET)
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)


def boot_id() -> str:
    """The id of this boot of the machine, hexadecimal digits and hyphens; empty where the system gives none."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def who_has_port(port: int) -> str:
    """A command that names the process which holds a TCP port."""
    if sys.platform == "darwin":
        return f"lsof -nP -iTCP:{port}"
    if sys.platform == "win32":
        return f"netstat -ano -p TCP | findstr :{port}"
    return f"ss -tanp 'sport = :{port}'"


def machine_memory() -> int:
    """Bytes of memory of this machine; 4 GiB where nobody says."""
    if sys.platform == "win32":
        return _windows_memory()
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return _ASSUMED_MEMORY


def _windows_memory() -> int:
    """dwLength, dwMemoryLoad, then seven numbers of 8 bytes, ullTotalPhys first (MEMORYSTATUSEX)."""
    import ctypes  # a start on another system need not wait for it

    status = (ctypes.c_uint64 * 8)(64)
    library = getattr(ctypes, "windll", None)
    if library is None or not library.kernel32.GlobalMemoryStatusEx(status):
        return _ASSUMED_MEMORY
    return status[1]
