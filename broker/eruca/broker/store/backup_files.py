"""The files of one backup: linked or copied, with length and CRC; and the manifest that lists them.

Owns the form of ``manifest.json``, how a file comes into a backup, and when a former backup has it already. Must not
know what the files mean. Invariants: a manifest lists every file of its backup but itself; the CRC-32 covers the first
``length`` bytes, behind which there are only zeros; what a former backup shares with a new one is never written to.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from zlib import crc32

from eruca.broker.store.file_copy import copy, crc_of
from eruca.broker.store.file_system import FileSystem, Unflushed
from eruca.broker.store.scan import data_end
from eruca.broker.store.segment import Segment

MANIFEST = "manifest.json"
MANIFEST_FORMAT = 2
"""1 has no ``store_id``."""
PARTIAL = ".partial"
"""End of the name of a backup that is not complete."""
_SETTLED = 2_000_000_000
"""In ns: another change within this time may leave the time of the last change as it is."""


class BackupFault(Exception):
    """A backup that cannot be made or restored; the text says why and what to do."""


@dataclass(frozen=True)
class Entry:
    """One file of a backup."""

    path: str
    size: int
    length: int
    crc: int
    inode: int
    """Inode and time of the last change of the file that was read: by these a later backup finds it unchanged."""
    modified: int
    final: bool
    """Whether the file had come to its end, so that a change of it shows in these."""


@dataclass
class Manifest:
    """What one backup holds."""

    format: int
    store_format: int
    made: str
    """UTC."""
    store: str
    begin_offset: int
    end_offset: int
    """The commit log offsets between which every record is there."""
    store_id: str = ""
    """Of the store that was backed up, if it has one."""
    files: list[Entry] = field(default_factory=list)

    def encode(self) -> bytes:
        """The content of ``manifest.json``."""
        return json.dumps(asdict(self), indent=1).encode()


def read_manifest(folder: Path) -> Manifest:
    """The manifest of the backup in a folder. Raises BackupFault."""
    try:
        table = json.loads((folder / MANIFEST).read_bytes())
        if table["format"] > MANIFEST_FORMAT:
            raise BackupFault(
                f"{folder} is a backup of format {table['format']}: restore it with the Eruca that made it"
            )
        table["files"] = [Entry(**entry) for entry in table["files"]]
        return Manifest(**table)
    except FileNotFoundError:
        raise BackupFault(f"{folder} is no backup, or not a complete one: it has no {MANIFEST}") from None
    except (ValueError, TypeError, KeyError) as fault:
        raise BackupFault(f"{folder / MANIFEST} cannot be read ({fault}): restore another backup") from None


def names_in(folder: Path) -> list[str]:
    """The names of the complete backups in a folder, the oldest first."""
    if not folder.is_dir():
        return []
    return sorted(each.name for each in folder.iterdir() if (each / MANIFEST).is_file() and each.suffix != PARTIAL)


class BackupFiles:
    """The files of a backup that is being made in ``folder`` at ``now`` (ms since 1970); ``former`` is the folder of
    the one before."""

    def __init__(self, folder: Path, former: Path | None, now: int, file_system: FileSystem) -> None:
        self.folder = folder
        self.entries: list[Entry] = []
        self.linked = self.copied = self.unchanged = self.copied_bytes = 0
        self._former = former
        self._now = now
        self._known = {entry.path: entry for entry in read_manifest(former).files} if former is not None else {}
        self._file_system = file_system
        self._folders: set[str] = {str(folder)}

    def place(self, path: str) -> Path:
        """Where a file belongs, in a folder that is there."""
        target = self.folder / path
        if str(target.parent) not in self._folders:
            target.parent.mkdir(parents=True, exist_ok=True)
            self._folders |= {str(self.folder / each) for each in target.relative_to(self.folder).parents}
        return target

    def put(self, path: str, data: bytes) -> None:
        """A file with this content."""
        self.place(path).write_bytes(data)
        self._add(Entry(path, len(data), len(data), crc32(data), 0, 0, final=False), copied=len(data))

    def take(
        self,
        source: Path,
        path: str,
        *,
        final: bool | None,
        link: bool = False,
        end: int | None = None,
        settle: Callable[[Path], bool] | None = None,
    ) -> None:
        """Take a file of the store, whatever is written to it meanwhile.

        ``final``: whether it has come to its end; None: the time of its last change says it. ``link``: a hard link will
        do. ``end``: what lies behind that is not wanted. ``settle`` may change the copy before it counts, and returns
        whether it has. Raises OSError, FileNotFoundError for a file that is gone.
        """
        status = source.stat()
        if final is None:
            final = status.st_mtime_ns < self._now * 1_000_000 - _SETTLED
        known = self._known.get(path)
        same = known is not None and known.final and (known.inode, known.size, known.modified) == _identity(status)
        target = self.place(path)
        if known is not None and same and self._former is not None and _link(self._former / path, target):
            self.unchanged += 1
            self.entries.append(known)
            return
        length = self._length(source, status.st_size)
        length = length if end is None else min(length, end)
        linked = link and final and _link(source, target)
        if linked:
            crc = crc_of(source, length)
        else:
            length, crc = copy(source, target, status.st_size, length)
            if settle is not None and settle(target):
                final = False
                length = self._length(target, status.st_size)
                crc = crc_of(target, length)
        size, inode, modified = status.st_size, status.st_ino, status.st_mtime_ns
        self._add(Entry(path, size, length, crc, inode, modified, final), copied=None if linked else length)

    def _length(self, path: Path, size: int) -> int:
        """Up to where a file has data. Raises OSError, and BackupFault for one that became shorter."""
        if not size:
            return 0
        try:
            return data_end(Segment(path, 0, size, self._file_system, writable=False), 0)
        except ValueError:  # mmap
            raise BackupFault(
                f"{path} became shorter while it was read: a broker recovers the store; try again when it is up"
            ) from None

    def _add(self, entry: Entry, *, copied: int | None) -> None:
        self.entries.append(entry)
        if copied is None:
            self.linked += 1
        else:
            self.copied += 1
            self.copied_bytes += copied

    def flush(self) -> None:
        """Bring all of them to the disk. Raises OSError."""
        files = {str(self.folder / entry.path) for entry in self.entries}
        self._file_system.flush_files(Unflushed(files, set(self._folders)))


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns


def _link(source: Path, target: Path) -> bool:
    """Whether the file could be linked: not to another file system, or to one without links."""
    try:
        os.link(source, target)
    except OSError:
        return False
    return True
