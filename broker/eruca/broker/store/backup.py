"""A backup of a store, beside the broker that writes to it or without one; and a store from a backup.

Owns what is taken in which order, and up to where the log is taken. Knows the files' forms by the modules that write
them; takes no lock. Invariants: every record that was stored when the backup began is in it; the log of a backup ends
with a whole record; its queues, index and offsets name nothing behind that end; a file that the broker may still write
to is copied, never linked.

What the store has in the middle of its work is settled by the order: first the mark (up to where queues and index are
complete), then offsets, queues and index cut off there, then the log, at last topics and groups. The next start makes
what lies between the mark and the end of the log, as after a kill.
"""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from eruca.broker.failover import epochs as lists
from eruca.broker.store.backup_files import (
    MANIFEST,
    MANIFEST_FORMAT,
    PARTIAL,
    BackupFault,
    BackupFiles,
    Manifest,
    names_in,
    read_manifest,
)
from eruca.broker.store.commit_log import CommitLog, StoreDamaged
from eruca.broker.store.config import CONSUME_QUEUE_UNIT as UNIT
from eruca.broker.store.config import StoreConfig
from eruca.broker.store.consume_queue import UNIT_FORM
from eruca.broker.store.cut import intended_cut
from eruca.broker.store.damage_mark import NAME as DAMAGE
from eruca.broker.store.epoch_file import NAME as EPOCHS
from eruca.broker.store.epoch_file import encode_epochs, read_epochs
from eruca.broker.store.file_copy import copy
from eruca.broker.store.file_system import FileSystem, Unflushed
from eruca.broker.store.index_file import IndexFile, size_of
from eruca.broker.store.marks import (
    FORMAT,
    Mark,
    check_format,
    read_checkpoint,
    read_mark,
    write_checkpoint,
    write_mark,
)
from eruca.broker.store.queue_file import starts_in
from eruca.broker.store.scan import Scan, data_end
from eruca.broker.store.segment import Segment
from eruca.broker.store.store_id import read_store_id
from eruca.remoting.files import replace_file
from eruca.remoting.operating_system import read_at, write_at

LATE = frozenset({"topics.json", "subscriptionGroup.json"})
"""State that is taken after the log, so that no message lacks its topic; other state must not be newer than the log."""
_LOOKS = 20
_LOOK_AGAIN = 0.05
"""Seconds until something is looked at again that was written to at that moment."""


def back_up(config: StoreConfig, folder: Path, now: int) -> tuple[BackupFiles, Manifest]:
    """Make a backup of a store as a new folder in ``folder``, named by the time ``now`` (ms since 1970).

    What the backup before it has, it shares.

    Raises:
        BackupFault: there is no store, or ``folder`` lies in it.
        StoreTooNew: a newer version wrote the store.
        OSError: a file cannot be read or written; nothing is left of the backup.
    """
    if intended_cut(config.store_path_root_dir) is not None:
        raise BackupFault(
            f"the log of {config.store_path_root_dir} is being cut off: start its broker, then back it up"
        )
    if not config.commit_log_path.is_dir():
        raise BackupFault(
            f"{config.store_path_root_dir} holds no store: it has no folder {config.commit_log_path.name}"
        )
    for own in (config.store_path_root_dir, config.commit_log_path):
        if folder.resolve().is_relative_to(own.resolve()):
            raise BackupFault(f"{folder} lies in the store, in {own}: name a folder outside of it")
    check_format(config.store_path_root_dir)
    file_system = FileSystem()
    folder.mkdir(parents=True, exist_ok=True)
    names = names_in(folder)
    made = datetime.fromtimestamp(now / 1000, UTC)
    name = f"{made:%Y%m%dT%H%M%S}.{made.microsecond // 1000:03d}Z"
    partial = folder / f"{name}{PARTIAL}"
    partial.mkdir()
    try:
        files = BackupFiles(partial, folder / names[-1] if names else None, now, file_system)
        manifest = _Backup(config, files, file_system).run(made.isoformat())
        files.flush()
        replace_file(partial / MANIFEST, manifest.encode(), backup=False)
        partial.rename(folder / name)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    file_system.flush_folder(folder)
    files.folder = folder / name
    return files, manifest


class _Backup:
    def __init__(self, config: StoreConfig, files: BackupFiles, file_system: FileSystem) -> None:
        self._config = config
        self._root = config.store_path_root_dir
        self._files = files
        self._file_system = file_system
        self._mark: Mark | None = None

    def run(self, made: str) -> Manifest:
        self._take_mark()
        state = sorted(path for path in (self._root / "config").glob("*.json"))
        for path in state:
            if path.name not in LATE:
                self._take_state(path)
        self._take_state(self._root / "eruca.delays")
        self._take_state(self._root / DAMAGE)
        self._take_queues()
        self._take_index()
        log = self._open_log()
        end = self._take_log(log)
        for path in state:
            if path.name in LATE:
                self._take_state(path)
        self._take_epochs(end)
        self._files.put("abort", b"")  # so that a start recovers what lies behind the mark
        taken = [Path(entry.path).name for entry in self._files.entries if entry.path.startswith("commitlog/")]
        begin = int(taken[0]) if taken else end
        store = read_store_id(self._root)
        return Manifest(
            MANIFEST_FORMAT,
            FORMAT,
            made,
            str(self._root),
            begin,
            end,
            store.value if store is not None else "",
            self._files.entries,
        )

    def _take_mark(self) -> None:
        for _ in range(_LOOKS):
            checkpoint = read_checkpoint(self._root)
            self._mark = read_mark(self._root, checkpoint)
            if self._mark is not None or not (self._root / "eruca.mark").exists():
                break
            time.sleep(_LOOK_AGAIN)  # between the two files
        write_checkpoint(self._files.folder, checkpoint, self._file_system)
        self._listed("checkpoint")
        if self._mark is not None:
            write_mark(self._files.folder, self._mark, checkpoint, self._file_system)
            self._listed("eruca.mark")

    def _listed(self, name: str) -> None:
        """List a file that was written into the backup."""
        self._files.put(name, (self._files.folder / name).read_bytes())

    def _take_state(self, path: Path) -> None:
        with suppress(FileNotFoundError):
            self._files.put(str(path.relative_to(self._root)), path.read_bytes())

    def _take_epochs(self, end: int) -> None:
        """The list of epochs of the log as far as it was taken: by it a restored store finds what it shares."""
        try:
            epochs = lists.cut(read_epochs(self._root), end)
        except StoreDamaged as fault:
            raise BackupFault(str(fault)) from None
        if epochs:
            self._files.put(EPOCHS, encode_epochs(epochs))

    # ---- queues and index

    def _take_queues(self) -> None:
        folder = self._config.consume_queue_path
        for queue in sorted(folder.glob("*/*")):
            for start in starts_in(str(queue)):
                source = queue / f"{start:020d}"
                settle = None if self._mark is None else self._cut_units
                with suppress(FileNotFoundError):  # its messages were deleted, or its topic
                    path = f"consumequeue/{queue.parent.name}/{queue.name}/{source.name}"
                    self._files.take(source, path, final=None, settle=settle)

    def _cut_units(self, copied: Path) -> bool:
        """Put zeros over the units at the end of a copy that the mark does not count; whether there were any."""
        assert self._mark is not None
        size = copied.stat().st_size
        if not size:
            return False
        with copied.open("r+b") as file:
            end = data_end(Segment(copied, 0, size, self._file_system, writable=False), 0)
            count = kept = -(-end // UNIT)
            while kept and self._is_behind(read_at(file.fileno(), UNIT, (kept - 1) * UNIT)):
                kept -= 1
            if kept < count:
                write_at(file.fileno(), bytes(min((count - kept) * UNIT, size - kept * UNIT)), kept * UNIT)
            return kept < count

    def _is_behind(self, unit: bytes) -> bool:
        assert self._mark is not None
        offset, size, _ = UNIT_FORM.unpack(unit.ljust(UNIT, b"\0"))
        return bool(size <= 0 or offset >= self._mark.written)

    def _take_index(self) -> None:
        folder = self._config.index_path
        names = sorted(path.name for path in folder.glob("[0-9]" * 17)) if folder.is_dir() else []
        for name in names:
            final = name != names[-1]
            with suppress(FileNotFoundError):
                if not (folder / name).stat().st_size:  # it is being made
                    continue
                self._files.take(
                    folder / name,
                    f"index/{name}",
                    final=final,
                    settle=None if final or self._mark is None else self._cut_entries,
                )

    def _cut_entries(self, copied: Path) -> bool:
        """Take back the entries of a copy that the mark does not count, and make its slots agree with the others.

        Slots lie before entries in the file, and were read before them: they name no entry that the copy lacks.
        """
        assert self._mark is not None
        slots, entries = self._config.max_hash_slot_num, self._config.max_index_num
        size = copied.stat().st_size
        if size != size_of(slots, entries):
            raise BackupFault(
                f"index file {copied.name} has {size} bytes, which do not fit maxHashSlotNum {slots} and maxIndexNum "
                f"{entries}: name the broker.conf of the store with -c"
            )
        end = data_end(Segment(copied, 0, size, self._file_system, writable=False), 0)
        file = IndexFile(copied, slots, entries, self._file_system)
        file.count = min(max(-(-(end - file.entries_at) // 20), 1), entries)
        file.cut(self._mark.written, self._mark.written)
        return True

    # ---- the log

    def _open_log(self) -> CommitLog:
        log = CommitLog(self._config.commit_log_path, 0, self._file_system)
        paths = sorted(path for path in log.path.iterdir() if len(path.name) == 20 and path.name.isdecimal())
        for path in paths:
            try:
                size = path.stat().st_size
                if size:  # else it is being made
                    log.segments.append(Segment(path, int(path.name), size, self._file_system, writable=False))
            except FileNotFoundError:  # deleted by retention, which deletes the oldest ones
                log.segments.clear()
        log.segment_size = max((segment.size for segment in log.segments), default=0)
        return log

    def _take_log(self, log: CommitLog) -> int:
        """Take the files of the log; returns where it ends."""
        if not log.segments:
            return 0
        end = self._end_of(log)
        for segment in log.segments:
            full = segment is not log.segments[-1] and segment.size == log.segment_size
            if segment.start >= end and segment is not log.segments[0]:
                break
            try:
                self._files.take(
                    segment.path,
                    f"commitlog/{segment.path.name}",
                    final=full,
                    link=full,
                    end=None if full else max(end - segment.start, 0),
                )
            except FileNotFoundError:
                if self._files.entries and self._files.entries[-1].path.startswith("commitlog/"):
                    raise
        return end

    def _end_of(self, log: CommitLog) -> int:
        """The end of the last record that is whole at this moment."""
        last = log.segments[-1]
        start = self._mark.written if self._mark is not None else last.start
        if log.segment_of(start) is None:
            start = last.start
        bound = last.start + data_end(last, 0)
        for _ in range(_LOOKS):
            scan = Scan(log)
            end = start
            for record in scan.records(start):
                end = record.physical_offset + record.size
                if end >= bound:
                    break
            else:
                end = scan.end
            if not scan.damages:
                break
            time.sleep(_LOOK_AGAIN)  # perhaps a record that was being written
        return end


def restore(folder: Path, config: StoreConfig, name: str | None = None) -> Manifest:
    """Make a store of a backup in ``folder``, the newest one or that of this name, where there is none.

    The first start recovers it, and gives it an id of its own. Raises:
        BackupFault: there is no such backup, one of its files is damaged, or the store's folder is not empty.
        OSError: a file cannot be read or written; what was restored so far is deleted again.
    """
    names = names_in(folder)
    if not names or (name is not None and name not in names):
        raise BackupFault(
            f"{folder} holds no complete backup{f' {name}' if name else ''}: there is {', '.join(names) or 'none'}"
        )
    made = folder / (name or names[-1])
    manifest = read_manifest(made)
    if manifest.store_format > FORMAT:
        raise BackupFault(f"{made} is of store format {manifest.store_format}: restore it with the Eruca that made it")
    root = config.store_path_root_dir
    for place in (root, config.commit_log_path):
        if place.is_dir() and any(place.iterdir()):
            raise BackupFault(f"{place} is not empty: restore into an empty folder")
    written: list[Path] = []
    try:
        for entry in manifest.files:
            target = _target(config, entry.path)
            target.parent.mkdir(parents=True, exist_ok=True)
            written.append(target)
            length, crc = copy(made / entry.path, target, entry.size, entry.length)
            if (length, crc) != (entry.length, entry.crc):
                raise BackupFault(
                    f"{made / entry.path} is damaged: its {length} bytes have the CRC-32 {crc:08x}, not "
                    f"{entry.crc:08x} over {entry.length} bytes; restore another backup"
                )
        FileSystem().flush_files(Unflushed({str(path) for path in written}, {str(path.parent) for path in written}))
    except BaseException:
        for path in written:
            path.unlink(missing_ok=True)
        raise
    return manifest


def _target(config: StoreConfig, path: str) -> Path:
    """Where a file of a backup belongs. Raises BackupFault for a path that leads out of the store."""
    parts = path.split("/")
    if not all(parts) or {".", ".."} & set(parts) or "\0" in path:
        raise BackupFault(f"the manifest names {path!r}, which lies outside a store: restore another backup")
    if parts[0] == "commitlog":
        return config.commit_log_path.joinpath(*parts[1:])
    return config.store_path_root_dir.joinpath(*parts)
