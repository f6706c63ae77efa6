"""Checks a store that no broker has open, and describes the damage in sentences.

Owns nothing and changes nothing. Knows the files' forms by the modules that write them. Invariant:
a store that recovery would take as it is, with nothing to repair, has no findings.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from eruca.broker.store import native
from eruca.broker.store.commit_log import CommitLog
from eruca.broker.store.config import StoreConfig, parse_delay_levels
from eruca.broker.store.consume_queue import BLANK_SIZE_MARK, ConsumeQueue
from eruca.broker.store.cut import intended_cut
from eruca.broker.store.dispatch import Dispatch
from eruca.broker.store.file_system import FileSystem
from eruca.broker.store.marks import Lock, check_format, was_aborted
from eruca.broker.store.queue_table import QueueTable
from eruca.broker.store.scan import Scan, sound_record
from eruca.broker.store.segment import Segment
from eruca.protocol.record import Record

_HEADER = struct.Struct(">qqqqii")
_ENTRY = struct.Struct(">Iqii")


class Finding(NamedTuple):
    """One thing that is wrong."""

    path: Path
    """The file, or the folder of a queue."""
    sentence: str


@dataclass(slots=True)
class Verification:
    """What checking a store found."""

    root: Path
    records: int = 0
    log_bytes: int = 0
    queues: int = 0
    units: int = 0
    index_entries: int = 0
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What is worth knowing and no damage."""

    @property
    def sound(self) -> bool:
        """Whether nothing is damaged."""
        return not self.findings


def verify(root: Path, config: StoreConfig | None = None) -> Verification:
    """Check the store in a folder; ``config`` gives the paths and the index's sizes where they are
    not the usual ones (the sizes of the other files are seen from the files).

    Raises:
        StoreLocked: a broker has the store open.
        StoreTooNew: a newer version wrote it.
        FileNotFoundError: there is no store.
    """
    config = config or StoreConfig(store_path_root_dir=root)
    if not config.commit_log_path.is_dir():
        inner = next(root.glob("*/commitlog"), None)  # as below the folder of `eruca standalone`
        hint = f"; the store is in {inner.parent}" if inner else ""
        raise FileNotFoundError(f"{root} holds no store: it has no folder {config.commit_log_path.name}{hint}")
    check_format(root)
    lock = Lock(root) if (root / "lock").exists() else None
    try:
        return _Check(root, config).run()
    finally:
        if lock is not None:
            lock.release()


class _Check:
    def __init__(self, root: Path, config: StoreConfig) -> None:
        self.result = Verification(root)
        self._config = config
        file_system = FileSystem()
        self._log = CommitLog(config.commit_log_path, 0, file_system)
        sizes = Counter(path.stat().st_size for path in config.consume_queue_path.glob("*/*/*"))
        common = sizes.most_common(1)[0][0] if sizes else 0
        size = common if common >= 20 else config.consume_queue_file_size
        self._queues = QueueTable(config.consume_queue_path, size, file_system)
        self._dispatch = Dispatch(self._queues, None, parse_delay_levels(config.message_delay_level))
        self._seen: dict[ConsumeQueue, bytearray] = {}
        self._missing: Counter[tuple[str, int]] = Counter()
        self._earlier: Counter[tuple[str, int]] = Counter()
        """Messages that come before those of their queue: the topic was deleted and made again."""
        self._killed = was_aborted(root)
        """Whether work may have ended in the middle: a new file is empty, a put of the index not counted."""

    def run(self) -> Verification:
        if self._killed:
            self.result.notes.append("the store was not stopped in order; the next start recovers it")
        if (end := intended_cut(self.result.root)) is not None:
            self.result.notes.append(f"the log is to be cut off at {end}; the next start does it")
        self._open_log()
        self._queues.load()
        self._verify_queue_files()
        self._verify_log()
        self._verify_units()
        self._verify_index()
        self._log.close()
        return self.result

    def _find(self, path: Path, sentence: str) -> None:
        self.result.findings.append(Finding(path, sentence))

    # ---- commit log

    def _open_log(self) -> None:
        paths = sorted(path for path in self._log.path.iterdir() if len(path.name) == 20 and path.name.isdecimal())
        size = max((path.stat().st_size for path in paths), default=0)
        self._log.segment_size = size
        following = int(paths[0].name) if paths else 0
        for path in paths:
            start, there = int(path.name), path.stat().st_size
            if start != following:
                self._find(path, f"the file or files from {following:020d} to before this one are missing")
            if there < size and not (self._killed and there == 0 and path is paths[-1]):
                self._find(path, f"the file has {there} bytes instead of {size}")
            if there:
                self._log.segments.append(Segment(path, start, there, self._log.file_system, writable=False))
            following = start + size
        if self._log.segments:
            self._log.position = self._log.segments[-1].end

    def _verify_log(self) -> None:
        scan = Scan(self._log)
        for record in scan.records(self._log.min_offset):
            self.result.records += 1
            if not record.sys_flag & 4:
                self._verify_unit_of(record)
        self.result.log_bytes = scan.end - self._log.min_offset
        for damage in scan.damages:
            segment = self._log.segment_of(damage.start)
            path = segment.path if segment is not None else self._log.path
            self._find(
                path,
                f"offsets {damage.start} to {damage.end} ({damage.end - damage.start} bytes) hold no sound record: "
                f"{damage.reason}; the messages there are lost, the next start goes on behind them",
            )
        if scan.remains:
            self._find(
                self._log.segments[-1].path, f"an incomplete record lies at the end of the log, at offset {scan.end}"
            )

    # ---- consume queues

    def _verify_queue_files(self) -> None:
        size = self._queues.file_size
        for queue in self._queues.queues.values():
            self.result.queues += 1
            starts = self._queues.file_starts(queue)
            self.result.units += queue.max_offset - (starts[0] // 20 if starts else queue.max_offset)
            for before, start in zip([None, *starts], starts, strict=False):
                path = queue.path / f"{start:020d}"
                there = path.stat().st_size
                if there != size and not (self._killed and there == 0 and start == starts[-1]):
                    self._find(path, f"the file has {there} bytes instead of {size}")
                if before is not None and start != before + size:
                    self._find(path, f"the file that begins at {before + size:020d} is missing before this one")

    def _verify_unit_of(self, record: Record) -> None:
        queue = self._queues.queues.get((record.topic, record.queue_id))
        if queue is None or record.queue_offset >= queue.max_offset:
            last = self._queues.last_unit(queue) if queue is not None else None
            earlier = last is not None and record.physical_offset < last[0]
            (self._earlier if earlier else self._missing)[record.topic, record.queue_id] += 1
            return
        seen = self._seen.setdefault(queue, bytearray(queue.max_offset))
        unit = self._queues.unit(queue, record.queue_offset)
        code = self._dispatch.unit_code(record.topic, record.properties_text, record.store_timestamp)
        if unit == (record.physical_offset, record.size, code):
            seen[record.queue_offset] = 1
        elif unit is not None and unit[0] != record.physical_offset:
            return  # reported when the unit itself is checked
        else:
            seen[record.queue_offset] = 1
            self._find(
                queue.path,
                f"unit {record.queue_offset} says {unit}, its message at offset {record.physical_offset} "
                f"has size {record.size} and tag code {code}",
            )

    def _verify_units(self) -> None:
        for (topic, queue_id), count in sorted(self._earlier.items()):
            self.result.notes.append(
                f"{count} messages of {topic} queue {queue_id} are of before the topic was deleted and made again"
            )
        for (topic, queue_id), count in sorted(self._missing.items()):
            if (topic, queue_id) not in self._queues.queues:
                self.result.notes.append(
                    f"{count} messages of {topic} queue {queue_id} have no consume queue (deleted?)"
                )
            elif was_aborted(self.result.root):
                self.result.notes.append(
                    f"{count} messages are not yet in the consume queue of {topic} queue {queue_id}; "
                    "the next start adds them"
                )
            else:
                path = self._queues.path / topic / str(queue_id)
                self._find(path, f"{count} messages at the end of the log are not in this consume queue")
        for queue in self._queues.queues.values():
            for index in self._unseen(queue):
                self._verify_unit(queue, index)

    def _unseen(self, queue: ConsumeQueue) -> Iterator[int]:
        first = self._queues.beginning_from(queue, self._log.min_offset)
        seen = self._seen.get(queue, bytearray(queue.max_offset))
        index = seen.find(0, first)
        while index >= 0:
            yield index
            index = seen.find(0, index + 1)

    def _verify_unit(self, queue: ConsumeQueue, index: int) -> None:
        unit = self._queues.unit(queue, index)
        if unit is None or unit[1] == BLANK_SIZE_MARK:
            return
        data = self._log.view(unit[0], unit[1])
        record = sound_record(data, 0, unit[0]) if data is not None else None
        own = record is not None and (record.topic, record.queue_id) == (queue.topic, queue.queue_id)
        if own and record is not None and self._queues.unit(queue, record.queue_offset) == unit:
            self.result.notes.append(
                f"the message of {queue.topic} queue {queue.queue_id} offset {index} was lost; "
                f"its unit repeats offset {record.queue_offset}"
            )
            return
        self._find(queue.path, f"unit {index} points to offset {unit[0]}, where no sound message of this queue lies")

    # ---- index

    def _verify_index(self) -> None:
        slots, entries = self._config.max_hash_slot_num, self._config.max_index_num
        if not self._config.index_path.is_dir():
            return
        for path in sorted(self._config.index_path.iterdir()):
            size = path.stat().st_size
            if size != 40 + 4 * slots + 20 * entries:
                self.result.notes.append(
                    f"{path.name} was not checked: its {size} bytes do not fit maxHashSlotNum {slots} "
                    f"and maxIndexNum {entries}"
                )
                continue
            self._verify_index_file(path, slots, entries)

    def _verify_index_file(self, path: Path, slots: int, entries: int) -> None:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            *_, count = _HEADER.unpack_from(data)
            if not any(data[: _HEADER.size]):
                count = 1  # a file that was just made has no header before its first entry
            if not 1 <= count <= entries:
                self._find(path, f"the header counts {count} entries, at most {entries} fit")
                return
            heads = [0] * slots
            for number in range(1, count):
                value, offset, _, previous = _ENTRY.unpack_from(data, 40 + 4 * slots + 20 * number)
                self.result.index_entries += 1
                if previous != heads[value % slots]:
                    self._find(path, f"entry {number} is not chained to the entry before it in its slot")
                heads[value % slots] = number
                self._verify_entry(path, number, value, offset)
            named = struct.unpack_from(f">{slots}I", data, 40)
            if any(one != head and not (self._killed and one >= count) for one, head in zip(named, heads, strict=True)):
                self._find(path, "the hash slots do not name the newest entries")

    def _verify_entry(self, path: Path, number: int, value: int, offset: int) -> None:
        if offset < self._log.min_offset:
            return
        segment = self._log.segment_of(offset)
        record = sound_record(segment.view, offset - segment.start, offset, check_crc=False) if segment else None
        if record is None:
            self._find(path, f"entry {number} points to offset {offset}, where no record begins")
            return
        queue = ConsumeQueue(record.topic, record.queue_id, os.devnull)
        entries = native.keys([(queue, offset, record.size, record.properties_text, record.queue_offset, 0, 0)])
        if all(entry[0] != value for entry in entries):
            self._find(path, f"entry {number} has the hash of none of the keys of its message at offset {offset}")
