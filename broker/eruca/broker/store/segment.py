"""One commit log file, mapped at its full logical size (MappedFile in RocketMQ).

Owns the file, its mapping and the window of blocks that is really allocated. Knows nothing of
records. Invariant: memory below ``allocated`` is backed by blocks, so that writing there cannot
fail; a full disk shows as OSError from ``allocate``, never as SIGBUS.
"""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from pathlib import Path

from eruca.broker.store.file_system import FileSystem, extents
from eruca.remoting.operating_system import open_file

_WINDOW = 16 << 20
_SMALL_WINDOW = 64 << 10
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, Linux 5.14
_PAGE = mmap.PAGESIZE


class Segment:
    """A mapped file that begins at commit log offset ``start``."""

    __slots__ = ("_file_system", "allocated", "end", "fd", "mapping", "path", "size", "start", "view")

    def __init__(self, path: Path, start: int, size: int, file_system: FileSystem, *, writable: bool = True) -> None:
        """Open the file; a ``writable`` one is made at its full logical size when it is missing or short.

        Raises:
            OSError: the file cannot be opened, grown or mapped.
        """
        self.path = path
        self.start = start
        self.size = size
        self.end = start + size
        self._file_system = file_system
        self.fd = open_file(path, os.O_RDWR | os.O_CREAT if writable else os.O_RDONLY, 0o644)
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
                    self._file_system.allocate(self.fd, start, stop - start)
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
        except (OSError, AttributeError):  # another system, an older kernel: pages come one by one as they are written
            return self.allocated
        return safe

    def read(self, position: int, size: int, *, wait: bool) -> bytes:
        """Bytes of the file without touching the mapping; errors as ``file_system.read_at``."""
        return self._file_system.read(self.fd, position, size, wait=wait)

    def extents(self, position: int) -> list[tuple[int, int]]:
        """The parts of the file from ``position`` on that hold data, so that holes need no reading."""
        return extents(self.fd, position, self.size)

    def unlink(self) -> None:
        """Delete the file; what is open of it can still be read.

        Raises:
            OSError: it cannot be deleted.
        """
        self._file_system.delete(self.path)

    def flush(self) -> None:
        """Bring everything written so far to the disk.

        Raises:
            OSError: the disk fails; what was written is lost unless ``write_again`` follows.
        """
        self._file_system.flush(self.fd)

    def write_again(self, position: int) -> None:
        """After a flush that failed: let the next one, of a later process too, take what lies behind ``position``
        again, as far as the disk lets it. Nobody else writes there meanwhile."""
        with suppress(OSError):
            self._file_system.write_again(self.fd, position, self.size)

    def flush_from(self, position: int) -> None:
        """As ``flush``, where nobody else writes: what was written from ``position`` on is written again if it fails.

        Raises:
            OSError: the disk fails.
        """
        try:
            self.flush()
        except OSError:
            self.write_again(position)
            raise
