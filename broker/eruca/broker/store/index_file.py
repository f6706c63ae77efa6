"""One file of the key index: header, hash slots, entries chained by slot.

Owns the layout (IndexHeader and IndexFile in 4.9.7) and what of a file is valid after a crash. Knows hashes and commit
log offsets, not messages. Invariant: the entries are in the order of the log, and each slot names the newest entry of
its chain; entries beyond ``count`` do not exist.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path

from eruca.broker.store import native
from eruca.broker.store.file_system import FileSystem
from eruca.broker.store.layout import IndexEntry
from eruca.remoting.operating_system import open_file

_HEADER = struct.Struct(">qqqqii")
_ENTRY = struct.Struct(">Iqi4s")
_WINDOW = 1 << 20
_CHECK_EVERY = 65_536
_EMPTY_SECTOR = 480
"""No entries have this many zeros in a row; a sector of 512 bytes that was never written does."""


def size_of(slots: int, entries: int) -> int:
    """Bytes of a file with ``slots`` slots and ``entries`` entries."""
    return _HEADER.size + 4 * slots + _ENTRY.size * entries


class IndexFile:
    """One index file, mapped at its full size."""

    def __init__(self, path: Path, slots: int, entries: int, file_system: FileSystem) -> None:
        """Open or make the file.

        Raises:
            OSError: it cannot be made, or the disk has no room for its slots.
        """
        self.path = path
        self.slots = slots
        self.entries = entries
        self._file_system = file_system
        self.entries_at: int = _HEADER.size + 4 * slots
        size = size_of(slots, entries)
        fd = open_file(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            self.short = os.fstat(fd).st_size < size
            """Whether the file was new or cut short when it was opened."""
            if self.short:
                os.ftruncate(fd, size)
            self._file_system.allocate(fd, 0, self.entries_at)
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
        fd = open_file(self.path, os.O_RDWR)
        try:
            try:
                self._file_system.allocate(fd, start, stop - start)
            except OSError:
                stop = end
                self._file_system.allocate(fd, start, stop - start)
        finally:
            os.close(fd)
        self._allocated = stop
        return (stop - self.entries_at) // 20 - self.count

    def put(self, entries: list[IndexEntry]) -> None:
        """Add entries in the order of the log; room must be there."""
        used = native.put_entries(self.map, self.slots, self.entries_at, self.count, self.begin_time, entries)
        if self.count <= 1:
            _, self.begin_offset, self.begin_time = entries[0]
        self.count += len(entries)
        self.used_slots += used
        _, self.end_offset, self.end_time = entries[-1]
        self.write_header()

    def entry(self, number: int) -> tuple[int, int, int, int]:
        """Hash, commit log offset, seconds since the file began, previous entry of the chain."""
        value, offset, seconds, previous = _ENTRY.unpack_from(self.map, self.entries_at + number * 20)
        return value, offset, seconds, int.from_bytes(previous, "big")

    def chain(self, value: int, *, wait: bool = True) -> Iterator[tuple[int, int]]:
        """Offset and approximate store time of each entry with a hash, newest first.

        The file is read and not its mapping: a page that must come from the disk holds up nobody then.

        Raises:
            NotInMemory: it is not in memory, and ``wait`` is False.
            OSError: the disk fails.
        """
        try:
            fd = open_file(self.path, os.O_RDONLY)
        except FileNotFoundError:  # deleted meanwhile
            return
        try:
            above = self.count
            number = int.from_bytes(self._file_system.read(fd, 40 + value % self.slots * 4, 4, wait=wait), "big")
            while 0 < number < above:
                entry = self._file_system.read(fd, self.entries_at + number * _ENTRY.size, _ENTRY.size, wait=wait)
                found, offset, seconds, previous = _ENTRY.unpack(entry)
                if found == value:
                    yield offset, self.begin_time + seconds * 1000
                above, number = number, int.from_bytes(previous, "big")
        finally:
            os.close(fd)

    def cut(self, offset: int, synced: int = 0, check: Callable[[], object] = bool) -> None:
        """Take back the entries at or after a commit log offset, and make the slots agree with those that are left.

        Entries before ``synced`` are known to be as they were written, and the slots to be no older than they are. So
        their chains hold: a slot that a later entry changed is led back along its chain. Where that is not so, and
        without ``synced``, all slots are built again. ``check`` is called now and then, and may raise.
        """
        first = self._first_from(min(synced, offset))
        heads = self._heads_before(first) if first > 1 else None
        if heads is None:
            first, heads = 1, array("I", bytes(4 * self.slots))
        kept = self._chain_again(heads, first, offset, check)
        self.used_slots = self.slots - heads.count(0)
        if sys.byteorder == "little":
            heads.byteswap()
        self.map[_HEADER.size : self.entries_at] = heads.tobytes()
        if kept < self.count:
            self.map[self.entries_at + 20 * kept : self.entries_at + 20 * self.count] = bytes(20 * (self.count - kept))
            _, last, seconds, _ = self.entry(kept - 1) if kept > 1 else (0, self.begin_offset, 0, 0)
            self.end_offset = last
            self.end_time = self.begin_time + seconds * 1000
        self.count = kept
        self.write_header()

    def _first_from(self, offset: int) -> int:
        """The first entry at or after a commit log offset, or that did not reach the disk: its sector is empty then."""
        end = self.entries_at + 20 * self.count
        lost = self.map.find(bytes(_EMPTY_SECTOR), self.entries_at + 20, end)
        low, high = 1, self.count if lost < 0 else (lost - self.entries_at) // 20
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle)[1] < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def _heads_before(self, first: int) -> array[int] | None:
        """The slots as they were before entry ``first``; None where a chain does not lead back there."""
        heads = array("I", bytes(self.map[_HEADER.size : self.entries_at]))
        if sys.byteorder == "little":
            heads.byteswap()
        for slot in [slot for slot, head in enumerate(heads) if head >= first]:
            head = heads[slot]
            while head >= first:
                value, _, _, previous = self.entry(head) if head < self.count else (-1, 0, 0, 0)
                if value % self.slots != slot or previous >= head:
                    return None
                head = previous
            heads[slot] = head
        return heads

    def _chain_again(self, heads: array[int], first: int, offset: int, check: Callable[[], object]) -> int:
        """Chain the sound entries from ``first`` on, up to a commit log offset, to ``heads``; where they end."""
        data = self.map[self.entries_at + 20 * first : self.entries_at + 20 * self.count]
        last = self.entry(first - 1)[1] if first > 1 else -1
        kept = first
        for value, at, _, previous in _ENTRY.iter_unpack(data):
            if at >= offset or at < last or value > 0x7FFFFFFF:
                break
            if not kept % _CHECK_EVERY:
                check()
            slot = value % self.slots
            if int.from_bytes(previous, "big") != heads[slot]:
                place = self.entries_at + kept * 20 + 16
                self.map[place : place + 4] = heads[slot].to_bytes(4, "big")
            heads[slot] = kept
            kept += 1
            last = at
        return kept
