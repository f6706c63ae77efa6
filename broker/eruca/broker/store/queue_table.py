"""The table of consume queues and their files: where each message lies in the commit log (ConsumeQueue in RocketMQ).

Owns the queue files and the units not yet written out. Knows nothing of records. Units are
collected in memory and written out by ``write_out`` (they can always be made again from the log),
so that a queue costs neither a mapping nor an open file. All methods belong to the store's thread,
but for reading with ``wait``, which any thread may do. Invariant: units below a queue's
``written`` are in the files.
"""

from __future__ import annotations

import os
import shutil
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from threading import Lock

from eruca.broker.store.config import CONSUME_QUEUE_UNIT as UNIT
from eruca.broker.store.consume_queue import BLANK_SIZE_MARK, BLANK_UNIT, UNIT_FORM, ConsumeQueue, place_of
from eruca.broker.store.file_system import FileSystem, Unflushed
from eruca.broker.store.queue_file import NEWEST, count_units, file_of, starts_in
from eruca.protocol.names import is_legal
from eruca.remoting import descriptors
from eruca.remoting.operating_system import open_file

_OPEN_FILES, _SHARE = 256, 8
"""The number of files that are open at a time, or the eighth part of the descriptors where these are few."""
_CACHE_UNITS = 800
_LOOKED_AT = 12_800
"""Units that are read at once where many say nothing."""
_CACHED_IN_ALL = 800_000
_MAX_TAIL = 65_536


def _folders_in(folder: str) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir())


class QueueTable:
    """All consume queues and their files under one folder."""

    def __init__(self, path: Path, file_size: int, file_system: FileSystem) -> None:
        self.path = path
        self.file_size = file_size
        self.queues: dict[tuple[str, int], ConsumeQueue] = {}
        self.dirty: set[ConsumeQueue] = set()
        """Queues with units not yet written out."""
        self.unsynced: set[str] = set()
        """Files written to since they were last flushed."""
        self._new_folders: set[str] = set()
        self._file_system = file_system
        self._files: OrderedDict[str, int] = OrderedDict()
        self._most_files = min(_OPEN_FILES, max(1, descriptors.limit() // _SHARE))
        self.trimming = Lock()
        """Held while units leave a queue's memory, and by other threads while they look there."""

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, made when it is missing (no file is made before it has a message).

        Raises:
            ValueError: a name that may not be a folder's, or a queue id out of range.
        """
        found = self.queues.get((topic, queue_id))
        if found is None:
            if not is_legal(topic) or len(topic) > 127 or not 0 <= queue_id <= 0x7FFFFFFF:
                raise ValueError(f"no queue can be called {topic!r}, {queue_id}")
            found = ConsumeQueue(topic, queue_id, f"{self.path}/{topic}/{queue_id}")
            self.queues[topic, queue_id] = found
        return found

    # ---- files

    def _file(self, path: str, *, create: bool) -> int:
        fd = self._files.get(path)
        if fd is not None:
            self._files.move_to_end(path)
            return fd
        flags = os.O_RDWR
        try:
            fd = open_file(path, flags)
        except FileNotFoundError:
            if not create:
                raise
            folder = os.path.dirname(path)
            os.makedirs(folder, exist_ok=True)
            fd = open_file(path, flags | os.O_CREAT, 0o644)
            self._new_folders.update((folder, os.path.dirname(folder), str(self.path)))
        if create and os.fstat(fd).st_size < self.file_size:
            os.ftruncate(fd, self.file_size)
        self._files[path] = fd
        if len(self._files) > self._most_files:
            os.close(self._files.popitem(last=False)[1])
        return fd

    def _pieces(self, queue: ConsumeQueue, index: int, size: int) -> Iterator[tuple[str, int, int]]:
        """Path, position and size of each file's part of ``size`` bytes at unit ``index``."""
        start = index * UNIT
        while size > 0:
            at = start % self.file_size
            part = min(size, self.file_size - at)
            yield file_of(queue, start - at), at, part
            start += part
            size -= part

    def file_starts(self, queue: ConsumeQueue) -> list[int]:
        """Byte offsets at which the queue's files begin, in order."""
        return starts_in(queue.folder)

    def _write(self, queue: ConsumeQueue, index: int, data: bytes | bytearray | memoryview) -> None:
        done = 0
        for path, at, part in self._pieces(queue, index, len(data)):
            fd = self._file(path, create=True)
            if self._file_system.write(fd, data[done : done + part], at) != part:
                raise OSError(28, "the disk is full", str(path))
            self.unsynced.add(path)
            done += part

    def write_out(self, queue: ConsumeQueue, keep: int = 64) -> int:
        """Write the units that are only in memory; keep the newest ``keep`` there as well.

        Returns how many were written.

        Raises:
            OSError: the disk is full or fails; the units stay in memory.
        """
        end = queue.max_offset
        count = end - queue.written
        if count > 0:
            self._write(queue, queue.written, bytes(queue.tail[(queue.written - queue.tail_start) * UNIT :]))
            queue.written = end
        surplus = len(queue.tail) // UNIT - keep
        if surplus > keep:
            with self.trimming:
                del queue.tail[: surplus * UNIT]
                queue.tail_start += surplus
        return max(count, 0)

    def write_some(self, most: int | None = None) -> bool:
        """Write out the queues that have something, at most ``most``; whether none is left.

        Raises:
            OSError: as ``write_out``; the queues not reached stay dirty.
        """
        keep = max(32, min(1024, 100_000 // (len(self.queues) or 1)))
        for queue in list(islice(self.dirty, most)):
            self.write_out(queue, keep)
            self.dirty.discard(queue)
        return not self.dirty or most is None

    def take_unflushed(self) -> Unflushed:
        """Files and folders changed since the last call, to be given to ``flush_files``."""
        taken = Unflushed(self.unsynced, self._new_folders)
        self.unsynced, self._new_folders = set(), set()
        return taken

    def give_back(self, unflushed: Unflushed) -> None:
        """Note files again whose flush failed."""
        self.unsynced |= unflushed.files
        self._new_folders |= unflushed.folders

    def doubt(self, queue: ConsumeQueue, physical_offset: int) -> None:
        """The units at or after a commit log offset may be in memory only: the next flush takes their files, too."""
        index = self.units_before(queue, physical_offset)
        if index >= queue.max_offset:
            return
        for start in self.file_starts(queue):
            if start + self.file_size > index * UNIT:
                self.unsynced.add(file_of(queue, start))
        self._new_folders.update((queue.folder, os.path.dirname(queue.folder), str(self.path)))

    def close(self) -> None:
        """Close the files; what is not written out is lost."""
        while self._files:
            os.close(self._files.popitem()[1])

    # ---- units

    def append(self, queue: ConsumeQueue, unit: bytes) -> None:
        """Add one unit at the queue's end."""
        queue.tail += unit
        self.dirty.add(queue)

    def fill_head(self, queue: ConsumeQueue, offset: int) -> None:
        """Let an empty queue begin at ``offset``; the units before it in its file are blank.

        Raises:
            OSError: the disk is full or fails.
        """
        queue.begin_at(offset)
        first = offset - offset % (self.file_size // UNIT)
        if offset > first:
            self._write(queue, first, BLANK_UNIT * (offset - first))

    def units(self, queue: ConsumeQueue, index: int, count: int, *, wait: bool = True) -> bytes:
        """The units from ``index`` on, fewer when the queue or a file ends before.

        Raises:
            NotInMemory: they would have to be read from the disk, and ``wait`` is False.
        """
        if wait:
            with self.trimming:
                held = self._held(queue, index, count)
        else:
            held = self._held(queue, index, count)
        if held is not None:
            return held
        cache_start, cached = queue.cache
        at = (index - cache_start) * UNIT
        if at >= 0 and at + count * UNIT <= len(cached):
            return cached[at : at + count * UNIT]
        ahead = max(NEWEST, min(_CACHE_UNITS, _CACHED_IN_ALL // (len(self.queues) or 1)))
        wanted = min(max(count, ahead), queue.written - index)
        data = self._read(queue, index, wanted, wait=wait)
        queue.cache = (index, data)
        if len(data) < min(count, wanted) * UNIT or count <= wanted:
            return data[: count * UNIT]
        return data + self.units(queue, index + wanted, count - wanted, wait=wait)

    @staticmethod
    def _held(queue: ConsumeQueue, index: int, count: int) -> bytes | None:
        at = (index - queue.tail_start) * UNIT
        return bytes(queue.tail[at : at + count * UNIT]) if at >= 0 else None

    def end_of(self, queue: ConsumeQueue) -> int:
        """The queue's ``max_offset``, for any thread."""
        with self.trimming:
            return queue.max_offset

    def _read(self, queue: ConsumeQueue, index: int, count: int, *, wait: bool) -> bytes:
        path, at, part = next(self._pieces(queue, index, count * UNIT))
        try:
            if not wait:
                return self._file_system.read(self._file(path, create=False), at, part, wait=False)
            fd = open_file(path, os.O_RDONLY)
        except FileNotFoundError:
            return b""
        try:
            return self._file_system.read(fd, at, part, wait=True)
        finally:
            os.close(fd)

    def unit(self, queue: ConsumeQueue, index: int, *, wait: bool = True) -> tuple[int, int, int] | None:
        """Commit log offset, size and tag code of one unit; None where there is none. Errors as ``units``."""
        if not 0 <= index < (self.end_of(queue) if wait else queue.max_offset):
            return None
        data = self.units(queue, index, 1, wait=wait)
        return UNIT_FORM.unpack(data) if len(data) == UNIT else None

    def _looked_at(self, queue: ConsumeQueue, index: int, count: int) -> bytes:
        """As ``units``, without read-ahead and without the cache: for one look at each of many queues."""
        cache_start, cached = queue.cache
        if index >= queue.tail_start or 0 <= (index - cache_start) * UNIT < len(cached):
            return self.units(queue, index, count)
        return self._read(queue, index, min(count, max(queue.written - index, 1)), wait=True)

    def unit_alone(self, queue: ConsumeQueue, index: int) -> tuple[int, int, int] | None:
        """As ``unit``, read as ``_looked_at`` does."""
        data = self._looked_at(queue, index, 1) if 0 <= index < self.end_of(queue) else b""
        return UNIT_FORM.unpack(data) if len(data) == UNIT else None

    def begins_at_or_after(self, queue: ConsumeQueue, physical_offset: int) -> bool:
        """Whether the queue's first message lies at or after a commit log offset: nothing of it was deleted."""
        unit = self.unit_alone(queue, queue.min_offset)
        return unit is not None and unit[1] != BLANK_SIZE_MARK and unit[0] >= physical_offset

    def last_unit(self, queue: ConsumeQueue) -> tuple[int, int, int] | None:
        """The queue's newest unit; None where it has none."""
        return self.unit_alone(queue, queue.max_offset - 1)

    def first_from(self, queue: ConsumeQueue, physical_offset: int) -> int:
        """Index of the first unit at or after a commit log offset; left out are blank ones, and those that do not say
        where their messages lie."""
        low = first = self._first_index(queue)
        high = end = queue.max_offset
        while low < high:  # all units below ``low`` that say it are before the offset, and none from ``high`` on is
            middle = (low + high) // 2
            index, place = next(self._saying(queue, middle, high), (high, physical_offset))
            if place < physical_offset:
                low = index + 1
            else:
                high = middle
        known = self._last_saying(queue, first, low - 1)
        if known is not None and known[1] >= physical_offset:  # the unit before is damaged and misled the halving
            low = first
        return next((index for index, place in self._saying(queue, low, end) if place >= physical_offset), end)

    def beginning_from(self, queue: ConsumeQueue, physical_offset: int) -> int:
        """As ``first_from``, or the first of the units directly before it that do not say where their messages lie:
        they may lie there, too."""
        first = self._first_index(queue)
        known = self._last_saying(queue, first, self.first_from(queue, physical_offset))
        return first if known is None else known[0] + 1

    def _first_index(self, queue: ConsumeQueue) -> int:
        starts = self.file_starts(queue)
        return starts[0] // UNIT if starts else queue.tail_start

    def _saying(self, queue: ConsumeQueue, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """Index and place of the units in a range that say where their messages lie; the place of a blank one is -1."""
        count, per_file = 1, self.file_size // UNIT
        while begin < end:
            data = self._looked_at(queue, begin, min(count, end - begin))
            found = len(data) // UNIT
            said = data[: found * UNIT] if data.strip(b"\0") else b""
            for index, unit in enumerate(UNIT_FORM.iter_unpack(said), begin):
                place = -1 if unit[1] == BLANK_SIZE_MARK else place_of(unit)
                if place is not None:
                    yield index, place
            begin += found or per_file - begin % per_file
            count = min(2 * count, _LOOKED_AT)

    def _last_saying(self, queue: ConsumeQueue, begin: int, end: int) -> tuple[int, int] | None:
        """The last of them; None without one."""
        count = 1
        while end > begin:
            start = max(begin, end - count)
            found = list(self._saying(queue, start, end))
            if found:
                return found[-1]
            end = start
            count = min(2 * count, _LOOKED_AT)
        return None

    def units_before(self, queue: ConsumeQueue, physical_offset: int) -> int:
        """One after the queue's last unit before a commit log offset."""
        last = self.last_unit(queue)
        return (
            queue.max_offset if last is None or last[0] < physical_offset else self.first_from(queue, physical_offset)
        )

    # ---- opening, cutting, dropping

    def load(self, check: Callable[[], object] = bool) -> None:
        """Find the queues on the disk and where each ends; ``check`` is called before each topic, and may raise."""
        if not self.path.is_dir():
            return
        for topic in _folders_in(str(self.path)):
            check()
            if is_legal(topic):
                for name in _folders_in(f"{self.path}/{topic}"):
                    if name.isdecimal() and len(name) <= 10:
                        self._load_queue(self.queue(topic, int(name)))

    def _load_queue(self, queue: ConsumeQueue) -> None:
        starts = self.file_starts(queue)
        if not starts:
            return
        end = starts[0] // UNIT
        for start in reversed(starts):
            count, newest = count_units(file_of(queue, start), self.file_size)
            if count:
                end = start // UNIT + count
                break
        else:
            newest = b""
        queue.begin_at(end)
        queue.cache = (end - len(newest) // UNIT, newest)
        queue.min_offset = starts[0] // UNIT
        queue.next_offset = end

    def count_on(self) -> None:
        """Let the next message of each queue follow the last one that was dispatched."""
        for queue in list(self.queues.values()):
            queue.next_offset = queue.max_offset

    def cut(self, queue: ConsumeQueue, index: int) -> None:
        """Take back the units from ``index`` on; their place in the files is zero again.

        Raises:
            OSError: the disk fails.
        """
        for start in self.file_starts(queue):
            path = file_of(queue, start)
            if start // UNIT >= index:
                self._unlink(path)
            elif start + self.file_size > index * UNIT:
                fd = self._file(path, create=True)
                os.ftruncate(fd, index * UNIT - start)
                os.ftruncate(fd, self.file_size)
                self.unsynced.add(path)
        queue.tail.clear()
        queue.tail_start = queue.written = queue.next_offset = index
        queue.cache = (0, b"")
        queue.lost = {offset for offset in queue.lost if offset < index}
        self.dirty.discard(queue)

    def begin_again(self, queue: ConsumeQueue, index: int) -> None:
        """Take back the units from ``index`` on, which may lie before the queue's beginning: then it begins there.

        Raises:
            OSError: the disk is full or fails.
        """
        self.cut(queue, index)
        if index < queue.min_offset:
            self.fill_head(queue, index)

    def _unlink(self, path: str) -> None:
        self._forget(path)
        with suppress(FileNotFoundError):
            os.unlink(path)

    def _forget(self, path: str) -> None:
        fd = self._files.pop(path, None)
        if fd is not None:
            os.close(fd)
        self.unsynced.discard(path)

    def drop(self, queue: ConsumeQueue) -> None:
        """Forget a queue and delete its files."""
        self.queues.pop((queue.topic, queue.queue_id), None)
        self.dirty.discard(queue)
        for start in self.file_starts(queue):
            self._forget(file_of(queue, start))
        shutil.rmtree(queue.path, ignore_errors=True)
        with suppress(OSError):  # the topic has other queues
            queue.path.parent.rmdir()

    def drop_files_below(self, queue: ConsumeQueue, index: int) -> list[tuple[str, int]]:
        """Delete the files that lie wholly below unit ``index``, never the last.

        Returns their paths, with the times of their last changes in ms since 1970.
        """
        gone = []
        for start in self.file_starts(queue)[:-1]:
            if start + self.file_size > index * UNIT:
                break
            path = file_of(queue, start)
            modified = os.stat(path).st_mtime_ns // 1_000_000
            self._unlink(path)
            gone.append((path, modified))
        return gone

    def force_tail(self, queue: ConsumeQueue) -> None:
        """Write out a queue whose units in memory have become many; a full disk is for later.

        A queue whose units cannot be written keeps them, and is tried again with the others.
        """
        if len(queue.tail) > _MAX_TAIL * UNIT:
            try:
                self.write_out(queue, 1024)
            except OSError:
                return
