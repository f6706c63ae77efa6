"""The key index: which messages of a topic carry a key.

Owns the index files: header, hash slots, entries chained by slot. Knows hashes and commit log
offsets, not messages. Invariant: the entries of a file are in the order of the log, and each slot
names the newest entry of its chain; entries beyond ``count`` do not exist.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import lru_cache
from pathlib import Path

from eruca.broker.store.segment import Unflushed

_HEADER = struct.Struct(">qqqqii")
_ENTRY = struct.Struct(">Iqi4s")
_EMPTY = b"\0\0\0\0"
_NAME = re.compile(r"\d{17}\Z")
_WINDOW = 1 << 20
_TOGETHER = 64
MAX_SECONDS = 0x7FFFFFFF

IndexEntry = tuple[int, int, int]
"""Index hash of the key, commit log offset and store time in ms of the message."""


@lru_cache(maxsize=_TOGETHER + 1)
def _entries(count: int) -> struct.Struct:
    return struct.Struct(">" + "Iqi4s" * count)


def index_hash(unsigned: int) -> int:
    """The hash an index keeps of a key's ``String.hashCode`` (unsigned here): its absolute value,
    0 for the one number that has none."""
    if unsigned & 0x80000000:
        return (0x1_0000_0000 - unsigned) & 0x7FFFFFFF
    return unsigned


class IndexFile:
    """One index file, mapped at its full size."""

    def __init__(self, path: Path, slots: int, entries: int) -> None:
        """Open or make the file.

        Raises:
            OSError: it cannot be made, or the disk has no room for its slots.
        """
        self.path = path
        self.slots = slots
        self.entries = entries
        self.entries_at: int = _HEADER.size + 4 * slots
        size = self.entries_at + 20 * entries
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self.short = os.fstat(fd).st_size < size
            """Whether the file was new or cut short when it was opened."""
            if self.short:
                os.ftruncate(fd, size)
            os.posix_fallocate(fd, 0, self.entries_at)
            self.map = mmap.mmap(fd, size)
        finally:
            os.close(fd)
        self._allocated = self.entries_at
        self.begin_time, self.end_time, self.begin_offset, self.end_offset, self.used_slots, count = (
            _HEADER.unpack_from(self.map)
        )
        self.count: int = min(max(count, 1), entries)
        """Index of the next entry; entry 0 is never used."""

    @property
    def full(self) -> bool:
        """Whether no further entry fits."""
        return self.count >= self.entries

    @property
    def sound(self) -> bool:
        """Whether the header agrees with the first and the last entry, and nothing follows them."""
        if self.short:
            return False
        if self.count == 1:
            return self.full or not any(self.entry(1))
        first, last = self.entry(1)[1], self.entry(self.count - 1)[1]
        ends = self.full or not any(self.entry(self.count))
        return ends and first == self.begin_offset and last == self.end_offset

    def inherit(self, predecessor: IndexFile) -> None:
        """Carry the predecessor's end until the first entry comes."""
        self.begin_time = self.end_time = predecessor.end_time
        self.begin_offset = self.end_offset = predecessor.end_offset
        self.write_header()

    def write_header(self) -> None:
        """Put the counters into the file."""
        _HEADER.pack_into(
            self.map,
            0,
            self.begin_time,
            self.end_time,
            self.begin_offset,
            self.end_offset,
            self.used_slots,
            self.count,
        )

    def allocate(self, count: int) -> int:
        """Make sure that ``count`` entries more can be written; returns how many really can.

        Raises:
            OSError: the disk is full.
        """
        end = min(self.entries_at + 20 * (self.count + count), len(self.map))
        if end <= self._allocated:
            return (self._allocated - self.entries_at) // 20 - self.count
        start = max(self._allocated, self.entries_at + 20 * self.count)
        stop = min(end + _WINDOW, len(self.map))
        fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            try:
                os.posix_fallocate(fd, start, stop - start)
            except OSError:
                stop = end
                os.posix_fallocate(fd, start, stop - start)
        finally:
            os.close(fd)
        self._allocated = stop
        return (stop - self.entries_at) // 20 - self.count

    def put(self, entries: list[IndexEntry]) -> None:
        """Add entries in the order of the log; room must be there."""
        memory = self.map
        slots = self.slots
        count = self.count
        begin = self.begin_time
        used = 0
        flat: list[int | bytes] = []
        for value, offset, time in entries:
            seconds = (time - begin) // 1000 if begin > 0 and time > begin else 0
            if count <= 1:
                self.begin_time = begin = time
                self.begin_offset = offset
            slot = 40 + value % slots * 4
            previous = memory[slot : slot + 4]
            if previous == _EMPTY:
                used += 1
            flat += (value, offset, seconds if seconds < MAX_SECONDS else MAX_SECONDS, previous)
            memory[slot : slot + 4] = count.to_bytes(4, "big")
            count += 1
        at = self.entries_at + self.count * 20
        for first in range(0, len(entries), _TOGETHER):
            part = flat[4 * first : 4 * (first + _TOGETHER)]
            _entries(len(part) // 4).pack_into(memory, at + 20 * first, *part)
        self.count = count
        self.used_slots += used
        _, self.end_offset, self.end_time = entries[-1]
        self.write_header()

    def entry(self, number: int) -> tuple[int, int, int, int]:
        """Hash, commit log offset, seconds since the file began, previous entry of the chain."""
        value, offset, seconds, previous = _ENTRY.unpack_from(self.map, self.entries_at + number * 20)
        return value, offset, seconds, int.from_bytes(previous, "big")

    def chain(self, value: int) -> Iterator[tuple[int, int]]:
        """Offset and approximate store time of each entry with a hash, newest first."""
        at = 40 + value % self.slots * 4
        number = int.from_bytes(self.map[at : at + 4], "big")
        above = self.count
        while 0 < number < above:
            found, offset, seconds, previous = self.entry(number)
            if found == value:
                yield offset, self.begin_time + seconds * 1000
            above, number = number, previous

    def cut(self, offset: int) -> None:
        """Take back the entries at or after a commit log offset and make all slots anew."""
        data = self.map[self.entries_at + 20 : self.entries_at + 20 * self.count]
        heads = [0] * self.slots
        used = 0
        last = -1
        kept = 1
        repairs: list[tuple[int, int]] = []
        last_seconds = 0
        for value, at, seconds, previous in _ENTRY.iter_unpack(data):
            if at >= offset or at < last or value > 0x7FFFFFFF:
                break
            slot = value % self.slots
            head = heads[slot]
            if head == 0:
                used += 1
            if int.from_bytes(previous, "big") != head:
                repairs.append((kept, head))
            heads[slot] = kept
            kept += 1
            last, last_seconds = at, seconds
        for number, head in repairs:
            at = self.entries_at + number * 20 + 16
            self.map[at : at + 4] = head.to_bytes(4, "big")
        self.map[_HEADER.size : self.entries_at] = struct.pack(f">{self.slots}I", *heads)
        if kept < self.count:
            self.map[self.entries_at + 20 * kept : self.entries_at + 20 * self.count] = bytes(20 * (self.count - kept))
            self.end_offset = last if kept > 1 else self.begin_offset
            self.end_time = self.begin_time + last_seconds * 1000
        self.count = kept
        self.used_slots = used
        self.write_header()


class Index:
    """All index files under one folder; the newest one is written to."""

    def __init__(self, path: Path, slots: int, entries: int, clock: Callable[[], int]) -> None:
        self.path = path
        self.slots = slots
        self.entries = entries
        self.files: list[IndexFile] = []
        self.filled: list[IndexFile] = []
        """Files that became full since the last flush."""
        self._clock = clock
        self._room = 0
        self._partial = False

    def load(self) -> list[str]:
        """Open the files there are; returns a sentence for each that cannot be used.

        Raises:
            OSError: the folder cannot be made.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        notes = []
        wanted = _HEADER.size + 4 * self.slots + 20 * self.entries
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
            self.files.append(IndexFile(self.path / name, self.slots, self.entries))
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
            file = IndexFile(path, self.slots, self.entries)
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
        """Let go of the files."""
        self.files.clear()
        self.filled.clear()

    def take_unflushed(self) -> Unflushed:
        """The files changed since the last call, to be given to ``flush_files``."""
        files = {file.path for file in [*self.filled, *self.files[-1:]]}
        self.filled.clear()
        return Unflushed(files, {self.path})

    @property
    def end_offset(self) -> int:
        """Commit log offset of the newest message that has an entry; -1 when none has."""
        return self.files[-1].end_offset if self.files else -1

    def unsound_from(self, expected: int) -> int | None:
        """Commit log offset from which on the index must be made anew; None when all files are sound
        and reach ``expected`` (an end seen earlier).

        The files from the first unsound one on are deleted.
        """
        for number, file in enumerate(self.files):
            if not file.sound:
                for one in self.files[number:]:
                    one.path.unlink(missing_ok=True)
                del self.files[number:]
                return self.end_offset + 1
        return self.end_offset + 1 if self.end_offset < expected else None

    def cut(self, offset: int, *, trusted: bool = False) -> None:
        """Take back the entries at or after a commit log offset, whole files where all are.

        Slots are made anew, unless the files are ``trusted`` and nothing has to go.
        """
        while self.files:
            file = self.files[-1]
            if trusted and file.end_offset < offset:
                return
            if file.count > 1 and file.entry(1)[1] < offset:
                file.cut(offset)
                return
            self.files.pop().path.unlink(missing_ok=True)

    def drop_below(self, offset: int) -> int:
        """Delete the files whose entries all lie below a commit log offset, never the newest."""
        gone = 0
        while len(self.files) > 1 and self.files[0].end_offset < offset:
            self.files.pop(0).path.unlink(missing_ok=True)
            gone += 1
        return gone

    def search(self, unsigned_hash: int, begin: int, end: int) -> Iterator[int]:
        """Commit log offsets of the entries with a key's hash stored between two times, newest first.

        Times are exact to a second: the caller looks at the records.
        """
        value = index_hash(unsigned_hash)
        for file in reversed(self.files):
            if file.count > 1 and file.begin_time <= end and file.end_time + 1000 >= begin:
                for offset, time in file.chain(value):
                    if time + 999 < begin:
                        break
                    if time <= end:
                        yield offset
            if file.begin_time < begin:
                return
