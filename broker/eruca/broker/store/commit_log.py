"""The commit log: one endless sequence of bytes in files of equal size (CommitLog and MappedFileQueue in RocketMQ).

Owns the files, the end of the log and how it moves on to the next file. Knows blank records, not
messages. Invariant: ``position`` is where the next record begins, everything before it belongs to
a record; writing below ``limit`` into ``memory`` at ``position - base`` cannot fail.
"""

from __future__ import annotations

import mmap
import os
import re
from pathlib import Path

from eruca.broker.store.file_copy import copy
from eruca.broker.store.file_system import FileSystem
from eruca.broker.store.segment import Segment
from eruca.protocol.record import BLANK_SIZE, MAGIC_V1, MAGIC_V2, MIN_RECORD_SIZE, encode_blank, peek

_NAME = re.compile(r"\d{20}\Z")
_POPULATE = 1 << 20


class StoreDamaged(Exception):
    """The files cannot be a store of this configuration; the text says what to do."""


class CommitLog:
    """The log's files in order; the last one is written to."""

    def __init__(
        self,
        path: Path,
        segment_size: int,
        file_system: FileSystem,
        *,
        populate: bool = True,
        hot_bytes: int = 256 << 20,
    ) -> None:
        self.path = path
        self.file_system = file_system
        self.segment_size = segment_size
        self.hot_bytes = hot_bytes
        self.segments: list[Segment] = []
        self.position = 0
        self.limit = 0
        self.base = 0
        self.memory: mmap.mmap | bytearray = bytearray()
        self.begun_at = 0
        """Where this run began to write: what lies before may be on the disk only."""
        self.new_files = False
        """Whether a file was made whose directory entry is not durable yet."""
        self.short_files: list[int] = []
        """Offsets of files that were missing or shorter than they must be, made whole with zeros."""
        self._populate = _POPULATE if populate else 0

    @property
    def min_offset(self) -> int:
        """Offset of the oldest byte."""
        segments = self.segments
        return segments[0].start if segments else 0

    def load(self) -> None:
        """Open the files there are; ``position`` is left at the end of the last file.

        Raises:
            StoreDamaged: a file is larger than configured, or starts at no multiple of the size.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        starts = sorted(int(name) for name in os.listdir(self.path) if _NAME.match(name))
        if not starts:
            return
        strange = [start for start in starts if (start - starts[0]) % self.segment_size or start % self.segment_size]
        if strange:
            raise StoreDamaged(
                f"{self.path}/{strange[0]:020d} does not start at a multiple of mappedFileSizeCommitLog "
                f"({self.segment_size}): start with the size the store was written with"
            )
        for start in range(starts[0], starts[-1] + 1, self.segment_size):
            file = self.path / f"{start:020d}"
            size = file.stat().st_size if start in starts else 0
            if size > self.segment_size:
                raise StoreDamaged(
                    f"{file} has {size} bytes, but mappedFileSizeCommitLog is {self.segment_size}: "
                    "start with the size the store was written with"
                )
            if size < self.segment_size:
                self.short_files.append(start)
            self.segments.append(Segment(file, start, self.segment_size, self.file_system))
        self.position = self.segments[-1].end
        self.new_files = True  # of a process that was killed before it has flushed the folder

    def open_end(self, position: int) -> None:
        """Continue writing at ``position``; later files must be gone already."""
        self.position = self.begun_at = position
        if self.segments:
            self._aim(self.unshared(self.segments[-1]))

    def unshared(self, segment: Segment) -> Segment:
        """A file that may be written to in its middle: where a backup has it too, a copy takes its place first.

        Raises:
            OSError: the disk is full or fails.
        """
        if os.fstat(segment.fd).st_nlink == 1:
            return segment
        aside = segment.path.with_name(f"{segment.path.name}.own")
        aside.unlink(missing_ok=True)
        copy(segment.path, aside, segment.size, segment.size)
        own = Segment(aside, segment.start, segment.size, self.file_system)
        own.flush()
        os.replace(aside, segment.path)
        self.file_system.flush_folder(self.path)
        own.path = segment.path
        self.segments[self.segments.index(segment)] = own
        return own

    def close(self) -> None:
        """Close the files; a mapping is released with its last view."""
        self.segments.clear()
        self.memory = bytearray()

    def drop_after(self, position: int) -> None:
        """Delete the files that begin after ``position`` (where a new one would begin, keep none)."""
        while self.segments and self.segments[-1].start > position:
            self.segments.pop().path.unlink(missing_ok=True)

    def forget_oldest(self, count: int) -> None:
        """Forget the ``count`` oldest files, which are deleted. Threads that read see the old list or the new one."""
        self.segments = self.segments[count:]

    def _aim(self, segment: Segment) -> None:
        self.memory = segment.mapping
        self.base = segment.start
        self.limit = self.position

    def fits(self, size: int) -> bool:
        """Whether ``size`` bytes fit into the current file."""
        return bool(self.segments) and self.position + size + BLANK_SIZE <= self.segments[-1].end

    def make_room(self, size: int) -> None:
        """Move ``position`` and ``limit`` so that ``size`` bytes fit, in a new file if they must.

        Raises:
            OSError: the disk is full or fails; the log is as before.
        """
        if not self.fits(size):
            self._roll()
        segment = self.segments[-1]
        at = self.position - segment.start
        safe = segment.start + segment.allocate(at, size + BLANK_SIZE, self._populate)
        self.limit = min(safe, segment.end) - BLANK_SIZE

    def _roll(self) -> None:
        start = self.segments[-1].end if self.segments else self.position
        last = self.segments[-1] if self.segments else None
        if last is not None and self.position < last.end:
            at = self.position - last.start
            last.allocate(at, BLANK_SIZE, 0)
            # Before there is a next file: a kill in between leaves no gap. If none comes, the next record covers it.
            last.view[at : at + BLANK_SIZE] = encode_blank(last.end - self.position)
        self._add(start)

    def _add(self, start: int) -> None:
        segment = Segment(self.path / f"{start:020d}", start, self.segment_size, self.file_system)
        self.segments.append(segment)
        self.new_files = True
        self.position = start
        self._aim(segment)

    def restart_at(self, position: int) -> None:
        """Let an empty log begin at ``position``, the beginning of a file."""
        while self.segments:
            self.segments.pop().path.unlink(missing_ok=True)
        self.position = self.limit = position

    def extend(self, data: memoryview) -> None:
        """Append bytes as another log has them at this place, ends of files included, on to the next file.

        Raises:
            OSError: the disk is full or fails; what is before ``position`` is written.
        """
        while data:
            if not self.segments or self.position == self.segments[-1].end:
                self._add(self.position)
            segment = self.segments[-1]
            at = self.position - segment.start
            count = min(len(data), segment.size - at)
            segment.allocate(at, count, 0)
            segment.view[at : at + count] = data[:count]
            self.position += count
            self.limit = self.position
            data = data[count:]

    def take_back(self, position: int) -> None:
        """Let the log end at ``position``, in its last file; what came behind is zeroed."""
        segment = self.segments[-1]
        segment.view[position - segment.start : self.position - segment.start] = bytes(self.position - position)
        self.position = self.limit = position

    def segment_of(self, offset: int) -> Segment | None:
        """The file that holds ``offset``, None when it is not (or no longer) there."""
        segments = self.segments
        if not segments:
            return None
        number = (offset - segments[0].start) // self.segment_size
        return segments[number] if 0 <= number < len(segments) else None

    def view(self, offset: int, size: int) -> memoryview | None:
        """A view of a record's bytes; None when they are not wholly in one file below the end."""
        segment = self.segment_of(offset)
        if segment is None or size <= 0 or offset + size > min(segment.end, self.position):
            return None
        at = offset - segment.start
        return segment.view[at : at + size]

    @property
    def hot_from(self) -> int:
        """Where the data begins that is read through the mapping: near the end, and written in this run.

        The page cache has it. A page that had to be read from the disk would hold up the whole process, and end it by
        SIGBUS if the disk failed.
        """
        return max(self.position - self.hot_bytes, self.begun_at)

    def bytes_at(self, offset: int, size: int, *, wait: bool) -> memoryview | bytes | None:
        """As ``view`` where the data is hot, else read from the file without the mapping.

        Raises:
            NotInMemory: the data is not in memory, and ``wait`` is False.
        """
        if offset >= self.hot_from:
            return self.view(offset, size)
        segment = self.segment_of(offset)
        if segment is None or size <= 0 or offset + size > min(segment.end, self.position):
            return None
        data = segment.read(offset - segment.start, size, wait=wait)
        return data if len(data) == size else None

    def record_size_at(self, offset: int, *, wait: bool = True) -> int:
        """Size of the record that begins at ``offset``; 0 when none begins there by its own word. Errors as
        ``bytes_at``."""
        head = self._head_at(offset, wait)
        return int.from_bytes(head[:4], "big") if head is not None else 0

    def _head_at(self, offset: int, wait: bool) -> memoryview | bytes | None:
        head = self.bytes_at(offset, MIN_RECORD_SIZE, wait=wait)
        if head is None:
            return None
        size, magic = peek(head)
        if magic not in (MAGIC_V1, MAGIC_V2) or int.from_bytes(head[28:36], "big") != offset:
            return None
        return head if self.view(offset, size) is not None else None

    def store_time_at(self, offset: int, *, wait: bool = True) -> int:
        """Store time in ms of the record at ``offset``; -1 when it cannot be read. Errors as ``bytes_at``."""
        head = self._head_at(offset, wait)
        if head is None:
            return -1
        at = 68 if head[39] & 0x10 else 56
        return int.from_bytes(head[at : at + 8], "big")
