"""The id of a store, by which a group of brokers knows that a log still has what it had.

Owns ``eruca.store``: the id, the boot of the machine in which the store was opened last, whether sends waited for the
disk then (flushDiskType), up to where the log was flushed if a recovery that ended early has taken that from other
files, and the CRC-32 of all. A group takes a broker into its syncStateSet with its store's id, and whoever comes with
another one is no member. A disk that was exchanged has no such file, nor has a restored backup. Must not know what
damage looks like: the store says so. Invariants: where a log may lack what it had, the id goes from the disk before the
sign of it does; a file that cannot be read counts as none, as a new id is always safe.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import structlog

from eruca.broker.store.file_system import FileSystem
from eruca.remoting.files import replace_file

NAME = "eruca.store"
_CONTENT = re.compile(rb"([0-9a-f]{32}) ([0-9a-f-]*)(?: (SYNC_FLUSH|ASYNC_FLUSH))?(?: (\d{1,19}))?\n")

log = structlog.get_logger("eruca.broker.store")


class Kept(NamedTuple):
    """What the file says."""

    value: str
    boot: str
    flush: str
    """SYNC_FLUSH or ASYNC_FLUSH; empty as an earlier version wrote it: then nobody knows."""
    flushed: int = 0
    """Up to where the log had been flushed, by what a recovery has taken away that ended early."""


class StoreId:
    """The id of one store, while it is opened and open; ``boot`` is this machine's, empty where nobody knows it."""

    def __init__(self, root: Path, boot: str, file_system: FileSystem, *, sync_flush: bool) -> None:
        self.value = ""
        """The id; empty until ``settle``, and when it was lost meanwhile."""
        self.boot = boot
        self._flush = "SYNC_FLUSH" if sync_flush else "ASYNC_FLUSH"
        self._path = root / NAME
        self._file_system = file_system

    @property
    def of_another_boot(self) -> bool:
        """Before ``settle``: whether the machine may have been booted since the store was opened last."""
        kept = read_store_id(self._path.parent)
        return kept is None or not self.boot or kept.boot != self.boot

    def judge(self, *, clean: bool) -> Callable[[int], int] | None:
        """Look, before a recovery, whether the power failed while the store was open: then, if sends did not wait for
        the disk, the log may lack what was acknowledged. If they did, it may only lack what was not, and be torn there:
        then the recovery may tell damage by what was flushed, and has to ``remember`` that, which is returned.

        Raises:
            OSError: the disk fails.
        """
        kept = read_store_id(self._path.parent)
        if kept is None or clean or not self.of_another_boot:
            return None
        if kept.flush == "SYNC_FLUSH":
            return self.remember if self.boot and kept.boot else None
        self.lose(f"the machine stopped while the store was open with {kept.flush or 'an unknown flushDiskType'}")
        return None

    def lose(self, reason: str) -> None:
        """The log may lack what it had: take the id away, on the disk when this returns.

        Raises:
            OSError: the disk fails.
        """
        self.value = ""
        if self._path.exists():
            forget_store_id(self._path.parent, self._file_system)
            log.warning("store_id_lost", reason=reason)

    def remember(self, flushed: int) -> int:
        """A recovery takes away what says that the log had been flushed up to here: keep that, on the disk when this
        returns; what is kept. Where it cannot be kept, the id goes.

        Raises:
            OSError: the disk fails.
        """
        kept = read_store_id(self._path.parent)
        if kept is None or flushed <= kept.flushed:
            return kept.flushed if kept is not None else flushed
        try:
            replace_file(self._path, _encode(kept._replace(flushed=flushed)), backup=False)
        except OSError as fault:
            self.lose(f"what had been flushed before the machine stopped cannot be written down: {fault}")
        return flushed

    def settle(self) -> None:
        """Keep the id, or take a new one; the store is recovered.

        Raises:
            OSError: the disk is full or fails.
        """
        kept = read_store_id(self._path.parent)
        new = Kept(kept.value if kept is not None else uuid.uuid4().hex, self.boot, self._flush)
        self.value = new.value
        if kept != new:
            replace_file(self._path, _encode(new), backup=False)
        if kept is None:
            log.info("store_id_new", id=self.value)


def power_failed(store_id: StoreId | None, *, clean: bool, copies: bool) -> bool | None:
    """Whether the power failed while a store was open, before ``settle``. None where nobody knows, of one that
    ``copies`` another; one that nobody compares shows what it has.

    Raises:
        OSError: the file cannot be read.
    """
    if clean:
        return False
    if store_id is not None:
        return store_id.of_another_boot
    return None if copies else False


def read_store_id(root: Path) -> Kept | None:
    """What the file of a store's id says; None where there is none, or a damaged one.

    Raises:
        OSError: it cannot be read.
    """
    try:
        content = (root / NAME).read_bytes()
    except FileNotFoundError:
        return None
    found = _CONTENT.match(content)
    if found is None:
        return None
    value, boot, flush, flushed = ((part or b"").decode() for part in found.groups())
    kept = Kept(value, boot, flush, int(flushed or 0))
    return kept if _encode(kept) == content else None


def forget_store_id(root: Path, file_system: FileSystem) -> None:
    """Take the id away, on the disk when this returns: the next opening gives the store another one.

    Raises:
        OSError: the disk fails.
    """
    if (root / NAME).exists():
        (root / NAME).unlink()
        file_system.flush_folder(root)


def _encode(kept: Kept) -> bytes:
    parts = [*kept[:2], *([kept.flush] if kept.flush else []), *([str(kept.flushed)] if kept.flushed else [])]
    line = f"{' '.join(parts)}\n".encode()
    return line + b"%08x\n" % crc32(line)
