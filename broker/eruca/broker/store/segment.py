"""One commit log file, mapped at its full logical size (MappedFile in RocketMQ).

Owns the file, its mapping and the window of blocks that is really allocated. Knows nothing of
records. Invariant: memory below ``allocated`` is backed by blocks, so that writing there cannot
fail; a full disk shows as OSError from ``allocate``, never as SIGBUS.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from eruca.broker.store.file_system import flush_file_systems

_WINDOW = 16 << 20
_SMALL_WINDOW = 64 << 10
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, Linux 5.14
_PAGE = mmap.PAGESIZE
_SIDE_BY_SIDE = 8
_MANY = 64
_VERY_MANY = 1000
RWF_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)


class NotInMemory(Exception):
    """The data would have to be read from the disk, and the caller does not want to wait."""


def read_at(fd: int, position: int, size: int, *, wait: bool) -> bytes:
    """Bytes of a file, fewer where it ends; a disk error is an OSError here, where a mapping would end the process.

    Raises:
        NotInMemory: not all of them are in the page cache, and ``wait`` is False.
        OSError: the disk fails.
    """
    if wait or not RWF_NOWAIT:
        return os.pread(fd, size, position)
    buffer = bytearray(size)
    try:
        done = os.preadv(fd, [buffer], position, RWF_NOWAIT)
    except BlockingIOError:
        raise NotInMemory from None
    except OSError:  # a file system without the flag
        return os.pread(fd, size, position)
    if done < size:
        raise NotInMemory
    return bytes(buffer)


class Segment:
    """A mapped file that begins at commit log offset ``start``."""

    __slots__ = ("allocated", "end", "fd", "mapping", "path", "size", "start", "view")

    def __init__(self, path: Path, start: int, size: int, *, writable: bool = True) -> None:
        """Open the file; a ``writable`` one is made at its full logical size when it is missing or short.

        Raises:
            OSError: the file cannot be opened, grown or mapped.
        """
        self.path = path
        self.start = start
        self.size = size
        self.end = start + size
        self.fd = os.open(path, (os.O_RDWR | os.O_CREAT if writable else os.O_RDONLY) | os.O_CLOEXEC, 0o644)
        try:
            if writable and os.fstat(self.fd).st_size < size:
                os.ftruncate(self.fd, size)
            self.mapping = mmap.mmap(self.fd, size, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)
        except BaseException:
            os.close(self.fd)
            raise
        self.view = memoryview(self.mapping)
        self.allocated = 0
        """Position in the file up to which blocks are known to exist."""

    def __del__(self) -> None:
        if hasattr(self, "mapping"):
            os.close(self.fd)

    def allocate(self, position: int, size: int, populate: int) -> int:
        """Make sure that ``size`` bytes at ``position`` have blocks, if it can more ahead of them.

        Returns the position up to which writing is safe. Up to ``populate`` bytes are faulted in.

        Raises:
            OSError: the disk has no room (ENOSPC) or fails.
        """
        needed = position + size
        if needed > self.allocated:
            start = min(max(self.allocated, position - position % _PAGE), position)
            for window in (_WINDOW, _SMALL_WINDOW, 0):
                stop = min(self.size, needed + window)
                try:
                    os.posix_fallocate(self.fd, start, stop - start)
                except OSError:
                    if window == 0:
                        raise
                    continue
                self.allocated = stop
                break
        if not populate:
            return self.allocated
        safe = min(self.allocated, max(needed, position + populate))
        first = position - position % _PAGE
        try:
            self.mapping.madvise(_POPULATE_WRITE, first, safe - first)
        except OSError:  # an older kernel: pages come one by one as they are written
            return self.allocated
        return safe

    def read(self, position: int, size: int, *, wait: bool) -> bytes:
        """Bytes of the file without touching the mapping; errors as ``read_at``."""
        return read_at(self.fd, position, size, wait=wait)

    def extents(self, position: int) -> list[tuple[int, int]]:
        """The parts of the file from ``position`` on that hold data, so that holes need no reading."""
        found = []
        while position < self.size:
            try:
                start = os.lseek(self.fd, position, os.SEEK_DATA)
                position = min(os.lseek(self.fd, start, os.SEEK_HOLE), self.size)
            except OSError:  # ENXIO: nothing but a hole up to the end
                break
            if start >= self.size:
                break
            found.append((start, position))
        return found

    def unlink(self) -> None:
        """Delete the file; what is open of it can still be read.

        Raises:
            OSError: it cannot be deleted.
        """
        self.path.unlink(missing_ok=True)

    def flush(self) -> None:
        """Bring everything written so far to the disk.

        Raises:
            OSError: the disk fails; what was written may be lost.
        """
        os.fdatasync(self.fd)


def flush_directory(path: Path | str) -> None:
    """Make the entries of a directory durable.

    Raises:
        OSError: the directory cannot be opened or flushed.
    """
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class Unflushed(NamedTuple):
    """What a thread has to flush."""

    files: set[str]
    folders: set[str]


def flush_files(unflushed: Unflushed) -> None:
    """Bring files and the entries of folders to the disk; made for a thread.

    Many are flushed side by side: a disk's journal takes what comes together in one go. Very many go with all that the
    file system holds, where that is safe.

    Raises:
        OSError: one of them cannot be flushed.
    """
    if len(unflushed.files) + len(unflushed.folders) >= _VERY_MANY and flush_file_systems(chain(*unflushed)):
        return
    for paths, flush in ((list(unflushed.files), _flush_file), (list(unflushed.folders), _flush_folder)):
        if len(paths) < _MANY:
            _flush_each(paths, flush)
            continue
        with ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="store-sync") as threads:
            for done in [threads.submit(_flush_each, paths[n::_SIDE_BY_SIDE], flush) for n in range(_SIDE_BY_SIDE)]:
                done.result()


def _flush_each(paths: list[str], flush: Callable[[str], None]) -> None:
    for path in paths:
        flush(path)


def _flush_file(path: str) -> None:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:  # its topic was dropped meanwhile
        return
    try:
        os.fdatasync(fd)
    finally:
        os.close(fd)


def _flush_folder(folder: str) -> None:
    if os.path.isdir(folder):
        flush_directory(folder)
