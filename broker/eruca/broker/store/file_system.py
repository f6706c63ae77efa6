"""Bringing whole file systems to the disk: for thousands of small files one call in place of one each.

Owns the decision where that is as good: on Linux from 5.8 on, which reports errors (syncfs(2)), and on file systems of
its own disks that wait for all data and their journal. Elsewhere (FUSE answers without doing anything) nothing is done.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from contextlib import suppress

_TELLS_ERRORS = (5, 8)
_SURE = frozenset({0xEF53, 0x58465342, 0x9123683E})
"""Magic numbers of ext4, XFS and Btrfs (statfs(2))."""
_STATFS_SIZE = 512


def flush_file_systems(paths: Iterable[str]) -> bool:
    """Bring every file system that holds one of the paths to the disk; whether that was done. Made for a thread.

    Raises:
        OSError: one of them could not be written.
    """
    folders: dict[int, str] = {}
    for path in {os.path.dirname(path) for path in paths}:
        with suppress(FileNotFoundError):  # its topic was dropped meanwhile
            folders.setdefault(os.stat(path).st_dev, path)
    if not folders or not all(is_sure(folder) for folder in folders.values()):
        return False
    for folder in folders.values():
        flush(folder)
    return True


def is_sure(folder: str) -> bool:
    if _kernel() < _TELLS_ERRORS:
        return False
    buffer = ctypes.create_string_buffer(_STATFS_SIZE)
    return _libc().statfs(os.fsencode(folder), buffer) == 0 and _kind(buffer) in _SURE


def _kind(buffer: ctypes.Array[ctypes.c_char]) -> int:
    return ctypes.c_ulong.from_buffer(buffer).value


def _kernel() -> tuple[int, ...]:
    system = os.uname()
    if system.sysname != "Linux":
        return (0,)
    return tuple(int(part) for part in system.release.split("-")[0].split(".")[:2] if part.isdecimal())


def flush(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if _libc().syncfs(fd) != 0:
            fault = ctypes.get_errno()
            raise OSError(fault, os.strerror(fault), folder)
    finally:
        os.close(fd)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
