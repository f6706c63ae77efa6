"""The key index: which messages of a topic carry a key (IndexService in RocketMQ).

Owns the sequence of index files (one is ``index_file``). Knows hashes and commit log offsets, not
messages. Invariant: entries are in the order of the log over all files; only the newest file is
written to.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

from eruca.broker.store.file_system import FileSystem, Unflushed
from eruca.broker.store.index_file import IndexFile, size_of
from eruca.broker.store.layout import IndexEntry, index_hash

_NAME = re.compile(r"\d{17}\Z")


class Index:
    """All index files under one folder; the newest one is written to."""

    def __init__(self, path: Path, slots: int, entries: int, clock: Callable[[], int], file_system: FileSystem) -> None:
        self.path = path
        self.slots = slots
        self.entries = entries
        self.files: list[IndexFile] = []
        self.filled: list[IndexFile] = []
        """Files that became full since the last flush."""
        self._unsound: list[IndexFile] = []
        self._clock = clock
        self._file_system = file_system
        self._room = 0
        self._partial = False

    def load(self) -> list[str]:
        """Open the files there are; returns a sentence for each that cannot be used.

        Raises:
            OSError: the folder cannot be made.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        notes = []
        wanted = size_of(self.slots, self.entries)
        for name in sorted(os.listdir(self.path)):
            if not _NAME.match(name):
                continue
            size = (self.path / name).stat().st_size
            if size > wanted:
                notes.append(
                    f"index file {name} has {size} bytes instead of {wanted} "
                    "(maxHashSlotNum and maxIndexNum differ from those it was written with); it is not used"
                )
                continue
            self.files.append(IndexFile(self.path / name, self.slots, self.entries, self._file_system))
        return notes

    def put(self, entries: list[IndexEntry]) -> None:
        """Add entries in the order of the log; those before the newest file's end are there already.

        Raises:
            OSError: the disk is full; nothing or only a beginning was added, and all may be given again.
        """
        if not entries:
            return
        file = self.files[-1] if self.files else self._add()
        if entries[0][1] < file.end_offset or self._partial:
            entries = self._not_yet(entries, file)
        self._partial = True
        while entries:
            if file.full:
                file = self._add()
            part = entries[: file.entries - file.count]
            if self._room < len(part):
                self._room = file.allocate(len(part))
            self._room -= len(part)
            file.put(part)
            entries = entries[len(part) :]
        self._partial = False

    def _not_yet(self, entries: list[IndexEntry], file: IndexFile) -> list[IndexEntry]:
        """The entries that the index lacks, after a put that ended in the middle."""
        end = file.end_offset
        have = {file.entry(number)[0] for number in range(1, file.count) if file.entry(number)[1] == end}
        return [entry for entry in entries if entry[1] > end or (entry[1] == end and entry[0] not in have)]

    def _add(self) -> IndexFile:
        moment = self._clock()
        while True:
            time = datetime.fromtimestamp(moment / 1000)
            path = self.path / f"{time:%Y%m%d%H%M%S}{moment % 1000:03d}"
            if not path.exists():
                break
            moment += 1
        try:
            file = IndexFile(path, self.slots, self.entries, self._file_system)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        if self.files:
            self.files[-1].write_header()
            self.filled.append(self.files[-1])
            file.inherit(self.files[-1])
        self.files.append(file)
        self._room = 0
        return file

    def close(self) -> None:
        """Close the files."""
        self.files.clear()
        self.filled.clear()

    def take_unflushed(self) -> Unflushed:
        """The files changed since the last call, to be given to ``flush_files``."""
        files = {str(file.path) for file in [*self.filled, *self.files[-1:]]}
        self.filled.clear()
        return Unflushed(files, {str(self.path)})

    def doubt(self, offset: int) -> None:
        """Entries at or after a commit log offset may be in memory only: the next flush takes their files, too."""
        self.filled = [file for file in self.files[:-1] if file.end_offset >= offset]

    @property
    def end_offset(self) -> int:
        """Commit log offset of the newest message that has an entry; -1 when none has."""
        return self.files[-1].end_offset if self.files else -1

    def unsound_from(self, expected: int) -> int | None:
        """Commit log offset from which on the index must be built again; None when all files are sound
        and reach ``expected`` (an end seen earlier).

        The next ``cut`` deletes the files from the first unsound one on.
        """
        for number, file in enumerate(self.files):
            if not file.sound:
                self._unsound = self.files[number:]
                return self.files[number - 1].end_offset + 1 if number else 0
        return self.end_offset + 1 if self.end_offset < expected else None

    def cut(self, offset: int, *, synced: int = 0, trusted: bool = False, check: Callable[[], object] = bool) -> None:
        """Take back the entries at or after a commit log offset, whole files where all are.

        Slots are built again, unless the files are ``trusted`` and nothing has to go. The entries before ``synced`` are
        on the disk in order: then only the slots that later entries changed are built again. ``check`` is called now
        and then, and may raise: what is there then can be cut again.
        """
        for file in self._unsound:
            file.path.unlink(missing_ok=True)
            self.files.remove(file)
        self._unsound = []
        while self.files:
            file = self.files[-1]
            if trusted and file.end_offset < offset:
                return
            if file.count > 1 and file.entry(1)[1] < offset:
                file.cut(offset, synced, check)
                return
            self.files.pop().path.unlink(missing_ok=True)

    def drop_below(self, offset: int) -> list[tuple[Path, int]]:
        """Delete the files whose entries all lie below a commit log offset, never the newest.

        Returns their paths, with the store times of their newest messages.
        """
        gone = []
        while len(self.files) > 1 and self.files[0].end_offset < offset:
            file = self.files.pop(0)
            file.path.unlink(missing_ok=True)
            gone.append((file.path, file.end_time))
        return gone

    def search(self, code: int, begin: int, end: int, *, wait: bool = True) -> Iterator[int]:
        """Commit log offsets of the entries with a key's hash code stored between two times, newest first.

        Times are exact to a second: the caller looks at the records. Errors as ``IndexFile.chain``.
        """
        value = index_hash(code)
        for file in reversed(tuple(self.files)):
            if file.count > 1 and file.begin_time <= end and file.end_time + 1000 >= begin:
                for offset, time in file.chain(value, wait=wait):
                    if time + 999 < begin:
                        break
                    if time <= end:
                        yield offset
            if file.begin_time < begin:
                return
