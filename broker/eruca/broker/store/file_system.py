"""The file system under a store: the calls of the operating system that may wait for the disk, or fail with it.

Owns how data reaches the disk and comes from it, and when whole file systems are flushed in place of thousands of small
files: on Linux from 5.8 on, which reports errors (syncfs(2)), and on file systems of its own disks that wait for all
data and their journal. Elsewhere (FUSE answers without doing anything) the files are flushed one by one. Knows no
formats. What is given to the native step, mappings and files without a promise, are not here.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from eruca.remoting import operating_system

_TELLS_ERRORS = (5, 8)
_SURE = frozenset({0xEF53, 0x58465342, 0x9123683E})
"""Magic numbers of ext4, XFS and Btrfs (statfs(2))."""
_STATFS_SIZE = 512
_SIDE_BY_SIDE = 8
_MANY = 64
_VERY_MANY = 1000
_PIECE = 1 << 20
RWF_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)


class NotInMemory(Exception):
    """The data would have to be read from the disk, and the caller does not want to wait."""


def extents(fd: int, position: int, end: int) -> list[tuple[int, int]]:
    """The parts of a file from ``position`` to ``end`` that hold data, so that holes need no reading."""
    found: list[tuple[int, int]] = []
    if not hasattr(os, "SEEK_DATA"):
        return [(position, end)] if position < end else found
    while position < end:
        try:
            start = os.lseek(fd, position, os.SEEK_DATA)
            position = min(os.lseek(fd, start, os.SEEK_HOLE), end)
        except OSError:  # ENXIO: nothing but a hole up to the end
            break
        if start >= end:
            break
        found.append((start, position))
    return found


class Unflushed(NamedTuple):
    """What a thread has to flush."""

    files: set[str]
    folders: set[str]


def read_at(fd: int, position: int, size: int, *, wait: bool) -> bytes:
    """Bytes of a file, fewer where it ends; a disk error is an OSError here, where a mapping would end the process.

    Raises:
        NotInMemory: not all of them are in the page cache, and ``wait`` is False.
        OSError: the disk fails.
    """
    if wait or not RWF_NOWAIT or not hasattr(os, "preadv"):
        return operating_system.read_at(fd, size, position)
    buffer = bytearray(size)
    try:
        done = os.preadv(fd, [buffer], position, RWF_NOWAIT)
    except BlockingIOError:
        raise NotInMemory from None
    except OSError:  # a file system without the flag
        return operating_system.read_at(fd, size, position)
    if done < size:
        raise NotInMemory
    return bytes(buffer)


class FileSystem:
    """The file system of the machine. Its methods may be called in any thread; all raise OSError."""

    def read(self, fd: int, position: int, size: int, *, wait: bool) -> bytes:
        """As ``read_at``."""
        return read_at(fd, position, size, wait=wait)

    def write(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> int:
        """Write into a file; returns how many bytes found room."""
        return operating_system.write_at(fd, data, position)

    def allocate(self, fd: int, position: int, size: int) -> None:
        """Give this part of a file its blocks, so that writing there through a mapping cannot fail."""
        operating_system.allocate(fd, position, size)

    def delete(self, path: Path) -> None:
        """Delete a file; what is open of it can still be read."""
        path.unlink(missing_ok=True)

    def flush(self, fd: int) -> None:
        """Bring what was written into a file to the disk. After an error it is lost unless it is written again."""
        operating_system.flush_file(fd)

    def write_again(self, fd: int, position: int, end: int) -> None:
        """Write again what a file holds there, after a flush that failed, while nobody else writes there.

        The kernel takes what it could not write for written: it shows it, and the next flush passes over it.
        """
        for start, stop in extents(fd, position, end):
            for at in range(start, stop, _PIECE):
                self.write(fd, self.read(fd, at, min(_PIECE, stop - at), wait=True), at)

    def write_files_again(self, paths: Iterable[str]) -> None:
        """As ``write_again``, with all of these files, as far as the disk lets it."""
        for path in paths:
            with suppress(OSError):
                fd = operating_system.open_file(path, os.O_RDWR)
                try:
                    self.write_again(fd, 0, os.fstat(fd).st_size)
                finally:
                    os.close(fd)

    def flush_folder(self, path: Path | str) -> None:
        """Make the entries of a folder durable."""
        operating_system.flush_folder(path)

    def flush_whole(self, folder: str) -> None:
        """Bring all that the file system of a folder holds to the disk."""
        fd = os.open(folder, os.O_RDONLY)
        try:
            if _libc().syncfs(fd) != 0:
                fault = ctypes.get_errno()
                raise OSError(fault, os.strerror(fault), folder)
        finally:
            os.close(fd)

    def flushes_whole(self, folder: str) -> bool:
        """Whether ``flush_whole`` is as good as flushing the files one by one."""
        if _kernel() < _TELLS_ERRORS:
            return False
        buffer = ctypes.create_string_buffer(_STATFS_SIZE)
        return _libc().statfs(os.fsencode(folder), buffer) == 0 and _kind(buffer) in _SURE

    def flush_files(self, unflushed: Unflushed) -> None:
        """Bring files and the entries of folders to the disk; made for a thread.

        Many are flushed side by side: a disk's journal takes what comes together in one go. Very many go with all that
        the file system holds, where that is safe.
        """
        if len(unflushed.files) + len(unflushed.folders) >= _VERY_MANY and self._flush_wholes(chain(*unflushed)):
            return
        for paths, flush in ((list(unflushed.files), self._flush_file), (list(unflushed.folders), self._flush_entries)):
            if len(paths) < _MANY:
                _flush_each(paths, flush)
                continue
            with ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="store-sync") as threads:
                for done in [threads.submit(_flush_each, paths[n::_SIDE_BY_SIDE], flush) for n in range(_SIDE_BY_SIDE)]:
                    done.result()

    def _flush_wholes(self, paths: Iterable[str]) -> bool:
        """Flush every file system that holds one of the paths; whether that was done."""
        folders: dict[int, str] = {}
        for path in {os.path.dirname(path) for path in paths}:
            with suppress(FileNotFoundError):  # its topic was dropped meanwhile
                folders.setdefault(os.stat(path).st_dev, path)
        if not folders or not all(self.flushes_whole(folder) for folder in folders.values()):
            return False
        for folder in folders.values():
            self.flush_whole(folder)
        return True

    def _flush_file(self, path: str) -> None:
        try:
            fd = operating_system.open_file(path, os.O_RDWR)
        except FileNotFoundError:  # its topic was dropped meanwhile
            return
        try:
            self.flush(fd)
        finally:
            os.close(fd)

    def _flush_entries(self, folder: str) -> None:
        if os.path.isdir(folder):
            self.flush_folder(folder)


def _flush_each(paths: list[str], flush: Callable[[str], None]) -> None:
    for path in paths:
        flush(path)


def _kind(buffer: ctypes.Array[ctypes.c_char]) -> int:
    return ctypes.c_ulong.from_buffer(buffer).value


def _kernel() -> tuple[int, ...]:
    if sys.platform != "linux":
        return (0,)
    return tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2] if part.isdecimal())


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
