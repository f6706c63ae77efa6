"""The small files beside the log: checkpoint (StoreCheckpoint in RocketMQ), abort, lock, and the mark.

Owns their bytes. ``checkpoint``, ``abort`` and ``lock`` are RocketMQ's; ``eruca.mark`` is Eruca's
own and says up to where consume queues and index are complete, and of what format the store is. It is not flushed by
itself; what must survive a power failure, up to where the log was flushed, stands in ``checkpoint`` too, behind what
RocketMQ has there. Invariant: neither ever claims more than was true when it was written; a mark that cannot be trusted
reads as None, but one of a newer format is never taken for that.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from eruca.broker.store.file_system import FileSystem
from eruca.remoting.operating_system import lock_first_byte, open_file, write_at

_TIMES = struct.Struct(">qqq")
_MARK = struct.Struct(">8sqqqqqqqq")
FORMAT = 2
"""The format of a store, the last byte of the mark's name. A version that changes files of a store so that this one
would misread them counts it up; the CRC-32 stays at the end of the mark, whatever else stands there."""
_MARK_BEGIN = b"ERUCA\0\0"
_MARK_NAME = _MARK_BEGIN + bytes([FORMAT])
_CHECKPOINT_SIZE = 4096
_FLUSHED = struct.Struct(">8sq")
_FLUSHED_NAME = b"ERUCA\0\0F"
_FLUSHED_AT = 64
"""Where a checkpoint has the offset: in the sector of its times, so that they come to the disk together or not at all.
RocketMQ reads and writes nothing there."""
_MARGIN = 3000

_open_roots: set[tuple[int, int]] = set()


class StoreLocked(Exception):
    """Another process, or another store object, has this directory open."""


class StoreTooNew(Exception):
    """A store of a format that this version does not know; nothing was changed."""


class Checkpoint(NamedTuple):
    """Store times in ms up to which log, consume queues and index were flushed."""

    physic: int = 0
    logics: int = 0
    indexed: int = 0
    flushed: int | None = None
    """Commit log offset up to which the log and all of its units were flushed; None where another program, or an older
    version, has written the times."""

    @property
    def times(self) -> tuple[int, int, int]:
        """What RocketMQ knows of it."""
        return self[:3]

    @property
    def min_timestamp(self) -> int:
        """The time before which log and consume queues are complete."""
        return max(0, min(self.physic, self.logics) - _MARGIN)


class Mark(NamedTuple):
    """Up to which commit log offset all units are in their files, and how many units that makes.

    ``written``: given to the operating system; ``synced``: on the disk.
    """

    written: int
    written_units: int
    synced: int
    synced_units: int
    indexed: int
    """Commit log offset of the newest message in the index; -1 without an index."""


def read_checkpoint(root: Path) -> Checkpoint:
    """The checkpoint; zeros when it is missing or short."""
    try:
        data = (root / "checkpoint").read_bytes()
    except FileNotFoundError:
        return Checkpoint()
    if len(data) < _TIMES.size:
        return Checkpoint()
    end = _FLUSHED_AT + _FLUSHED.size
    times, flushed = data[: _TIMES.size], data[_FLUSHED_AT:end]
    checkpoint = Checkpoint(*_TIMES.unpack(times))
    if not flushed.startswith(_FLUSHED_NAME) or data[end : end + 4] != crc32(times + flushed).to_bytes(4, "big"):
        return checkpoint
    return checkpoint._replace(flushed=_FLUSHED.unpack(flushed)[1])


def write_checkpoint(root: Path, checkpoint: Checkpoint, file_system: FileSystem) -> None:
    """Write the checkpoint, 4096 bytes, and bring it to the disk.

    Raises:
        OSError: the disk is full or fails.
    """
    fd = open_file(root / "checkpoint", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        os.ftruncate(fd, _CHECKPOINT_SIZE)
        file_system.write(fd, _encode(checkpoint), 0)
        file_system.flush(fd)
    finally:
        os.close(fd)


def _encode(checkpoint: Checkpoint) -> bytes:
    """All of it in one piece, which a kill or a power failure leaves as it was or as it is to be."""
    times, flushed = _TIMES.pack(*checkpoint.times), bytes(_FLUSHED.size + 4)
    if checkpoint.flushed is not None:
        flushed = _FLUSHED.pack(_FLUSHED_NAME, checkpoint.flushed)
        flushed += crc32(times + flushed).to_bytes(4, "big")
    return times.ljust(_FLUSHED_AT, b"\0") + flushed


def _is_whole(data: bytes) -> bool:
    return crc32(data[:-4]).to_bytes(4, "big") == data[-4:]


def check_format(root: Path) -> None:
    """Raises StoreTooNew for a store of a newer format than this version knows."""
    try:
        data = (root / "eruca.mark").read_bytes()
    except FileNotFoundError:
        return
    begin = len(_MARK_BEGIN)
    if data.startswith(_MARK_BEGIN) and len(data) > begin + 4 and data[begin] > FORMAT and _is_whole(data):
        raise StoreTooNew(
            f"the store {root} has format {data[begin]}, and this version knows formats up to {FORMAT}: start the "
            "version of Eruca that wrote it, or restore a backup from before. Nothing was changed"
        )


def read_mark(root: Path, checkpoint: Checkpoint) -> Mark | None:
    """The mark; None when it is missing, broken, or older than the checkpoint beside it (which
    then another program wrote)."""
    try:
        data = (root / "eruca.mark").read_bytes()
    except FileNotFoundError:
        return None
    return parse_mark(data, checkpoint)


def parse_mark(data: bytes, checkpoint: Checkpoint) -> Mark | None:
    """The mark in the content of its file; None as in ``read_mark``."""
    if len(data) != _MARK.size + 4 or not _is_whole(data):
        return None
    name, *numbers = _MARK.unpack(data[:-4])
    if name != _MARK_NAME or tuple(numbers[5:]) != checkpoint.times:
        return None
    return Mark(*numbers[:5])


def write_mark(
    root: Path, mark: Mark, checkpoint: Checkpoint, file_system: FileSystem, *, durably: bool = False
) -> None:
    """Write the mark, to hold together with this checkpoint; ``durably`` it is on the disk then.

    Raises:
        OSError: the disk is full or fails.
    """
    data = _MARK.pack(_MARK_NAME, *mark, *checkpoint.times)
    fd = open_file(root / "eruca.mark", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        file_system.write(fd, data + crc32(data).to_bytes(4, "big"), 0)
        if durably:
            file_system.flush(fd)
    finally:
        os.close(fd)


def set_abort(root: Path, file_system: FileSystem) -> None:
    """Leave the sign that the store is open, on the disk before a message is taken; with all other names in the folder,
    and in ``config``, that a process was killed too early to flush.

    Raises:
        OSError: the disk fails.
    """
    (root / "abort").touch()
    file_system.flush_folder(root)
    file_system.flush_folder(root / "config")


def clear_abort(root: Path, file_system: FileSystem) -> None:
    """Take away the sign that the store is open, from the disk too: a power failure soon after brings it not back.

    Raises:
        OSError: the disk fails.
    """
    (root / "abort").unlink(missing_ok=True)
    file_system.flush_folder(root)


def was_aborted(root: Path) -> bool:
    """Whether the store was not closed in order."""
    return (root / "abort").exists()


class Lock:
    """The exclusive lock on a store's directory, as Java takes it (byte 0 of ``lock``)."""

    def __init__(self, root: Path) -> None:
        """Take the lock.

        Raises:
            StoreLocked: it is held elsewhere.
        """
        self._fd = open_file(root / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        stat = os.fstat(self._fd)
        self._key = (stat.st_dev, stat.st_ino)
        try:
            if self._key in _open_roots:
                raise BlockingIOError
            lock_first_byte(self._fd)
        except OSError:
            os.close(self._fd)
            raise StoreLocked(
                f"the store {root} is in use by a broker that runs: stop it, or set storePathRootDir to another folder"
            ) from None
        _open_roots.add(self._key)
        write_at(self._fd, b"lock", 0)

    def release(self) -> None:
        """Give the lock up."""
        _open_roots.discard(self._key)
        os.close(self._fd)
