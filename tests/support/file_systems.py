"""File systems for stores in this process: one that saves the time of flushing, one whose faults a test switches."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from eruca.broker.store import FileSystem, NotInMemory
from eruca.broker.store.file_system import Unflushed


class Unsynced(FileSystem):
    """Where nothing loses power, flushing would only take time."""

    def flush(self, fd: int) -> None:
        pass

    def flush_folder(self, path: Path | str) -> None:
        pass


class Switched(FileSystem):
    """A file system that is sound until a test switches a fault on."""

    def __init__(self) -> None:
        self.full: str | None = None
        """Files with this in their path get no blocks, and nothing can be written into them."""
        self.broken = False
        """Whether flushes and reads fail."""
        self.unflushable = False
        """Whether flushes fail, and reads do not."""
        self.cold = False
        """Whether all data must be read from the disk."""
        self.stubborn: Path | None = None
        """A file that cannot be deleted."""
        self.readers: list[threading.Thread] = []
        """The threads that read ``cold`` data."""
        self.reads: list[int] = []
        """The size of each read."""
        self.flushing = threading.Event()
        """Whether a flush of the log, or with ``hold_queues`` of queues, has come to the point where it is held."""
        self._log_free = threading.Event()
        self._queues_free = threading.Event()
        self.release()

    def hold(self) -> None:
        """Let flushes of the log in other threads wait from now on."""
        self.flushing.clear()
        self._log_free.clear()

    def hold_queues(self) -> None:
        """Let flushes of queue files wait from now on."""
        self.flushing.clear()
        self._queues_free.clear()

    def release(self) -> None:
        """Hold nothing any more."""
        self._log_free.set()
        self._queues_free.set()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Flushes of the log wait meanwhile."""
        self.hold()
        yield
        self.release()

    @contextmanager
    def without_room(self, part: str = "") -> Iterator[None]:
        """Files with ``part`` in their path find no room meanwhile."""
        self.full = part
        yield
        self.full = None

    def read(self, fd: int, position: int, size: int, *, wait: bool) -> bytes:
        if self.cold:
            if not wait:
                raise NotInMemory
            self.readers.append(threading.current_thread())
        if self.broken:
            raise OSError(errno.EIO, "Input/output error")
        self.reads.append(size)
        return super().read(fd, position, size, wait=wait)

    def write(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> int:
        self._find_room(fd)
        return super().write(fd, data, position)

    def allocate(self, fd: int, position: int, size: int) -> None:
        self._find_room(fd)
        super().allocate(fd, position, size)

    def _find_room(self, fd: int) -> None:
        if self.full is not None and self.full in _path(fd):
            raise OSError(errno.ENOSPC, "No space left on device")

    def delete(self, path: Path) -> None:
        if path == self.stubborn:
            raise OSError(errno.EPERM, "Operation not permitted")
        super().delete(path)

    def flush(self, fd: int) -> None:
        if threading.current_thread() is not threading.main_thread() and "/commitlog/" in _path(fd):
            self._wait(self._log_free)
        if self.broken or self.unflushable:
            raise OSError(errno.EIO, "Input/output error")
        super().flush(fd)

    def flush_files(self, unflushed: Unflushed) -> None:
        self._wait(self._queues_free)
        super().flush_files(unflushed)

    def _wait(self, free: threading.Event) -> None:
        if not free.is_set():
            self.flushing.set()
            assert free.wait(20), "nobody released it"


def _path(fd: int) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")
