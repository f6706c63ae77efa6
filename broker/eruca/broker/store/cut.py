"""Cutting a log: what a store has from one offset on goes, and all that points there.

Owns the order of steps. The part that goes is copied to ``rolledback/`` first; then ``eruca.cut`` says that the log is
to be cut (the intention); then files and zeros are written, the store is recovered, and its tables are set back; last
the intention goes. Invariants: while the intention is there, an opening of the store does all of this again, and
nothing is stored before; without it nothing was changed. So a process that ends at any step leaves the whole log or the
cut one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from eruca.broker.failover import epochs as lists
from eruca.broker.store.commit_log import CommitLog
from eruca.broker.store.config import StoreConfig
from eruca.broker.store.epoch_file import read_epochs, write_epochs
from eruca.broker.store.file_system import FileSystem
from eruca.broker.store.marks import Lock, check_format, set_abort
from eruca.broker.store.scan import Scan, data_end
from eruca.broker.store.store_id import forget_store_id
from eruca.protocol.bodies import ConsumerOffsets
from eruca.protocol.errors import ProtocolError
from eruca.protocol.fastjson import Style
from eruca.protocol.names import TRANSACTION_GROUP
from eruca.remoting.files import backup_of, replace_file

ROLLED_BACK = "rolledback"
"""The folder of what was cut off, in a folder for each cut with its offset as name; files are named as in the log."""
MOST_KEPT = 10
"""Cuts whose part is kept; the oldest goes first."""
_INTENTION = "eruca.cut"
_PIECE = 4 << 20


class CutRefused(Exception):
    """The log cannot be cut there; the text says why. Nothing was changed."""


class Intended(NamedTuple):
    """A cut that was written down: where the log ends by it, where it ended, and where the part between is kept."""

    end: int
    former_end: int
    kept: Path


def intend_cut(config: StoreConfig, end: int, file_system: FileSystem, *, as_master: bool = False) -> Intended | None:
    """Keep what a store has from ``end`` on, and write down that it goes; the next opening cuts it off.

    None when the log ends there. The store must be closed. ``as_master``: only what the group's master has not goes, so
    that the store keeps its id.

    Raises:
        CutRefused: no record ends there, or an earlier cut is not done.
        StoreLocked: the store is in use.
        StoreTooNew: a newer version wrote it.
        StoreDamaged: its files do not fit the configuration, or its list of epochs is damaged.
        OSError: the disk is full or fails; the log is as before.
    """
    root = config.store_path_root_dir
    lock = Lock(root)
    log = _log_of(config, file_system)
    try:
        check_format(root)
        read_epochs(root)
        if intended_cut(root) is not None:
            raise CutRefused(f"an earlier cut of the store {root} is not done: open it first, by a start of its broker")
        _check_sizes(config)
        log.load()
        former_end = _former_end(log, end)
        if former_end == end:
            return None
        kept = _keep(root, log, end, former_end, file_system)
        if not as_master:
            forget_store_id(root, file_system)
        replace_file(root / _INTENTION, b"%d\n" % end, backup=False)
        return Intended(end, former_end, kept)
    finally:
        log.close()
        lock.release()


def intended_cut(root: Path) -> int | None:
    """Where a store's log is to be cut off; None when it is not."""
    try:
        return int((root / _INTENTION).read_text())
    except FileNotFoundError:
        return None


def cut_files(config: StoreConfig, end: int, file_system: FileSystem) -> None:
    """Cut off the files of the log at ``end``; the recovery that must follow cuts queues and index.

    Raises:
        OSError: the disk is full or fails; to be done again.
    """
    root = config.store_path_root_dir
    set_abort(root, file_system)
    for mark in (root / "eruca.mark", root / "eruca.delays", root / "config" / "delayOffset.json"):
        mark.unlink(missing_ok=True)  # of the log as it was; what was delivered is read from the log that is left
        backup_of(mark).unlink(missing_ok=True)
    log = _log_of(config, file_system)
    try:
        log.load()
        for segment in reversed(log.segments[1:]):
            if segment.start > end:
                segment.unlink()
        if (holder := log.segment_of(end)) is not None:
            segment = log.unshared(holder)
            at, stop = end - segment.start, data_end(segment, end - segment.start)
            for start in range(at, stop, _PIECE):
                size = min(_PIECE, stop - start)
                segment.view[start : start + size] = bytes(size)
            segment.flush_from(at)
        file_system.flush_folder(log.path)
    finally:
        log.close()
    epochs = read_epochs(root)
    if lists.cut(epochs, end) != epochs:
        write_epochs(root, lists.cut(epochs, end))


def settle_cut(root: Path, max_offset: Callable[[str, int], int], file_system: FileSystem) -> None:
    """Set committed offsets back to the ends of queues, and forget the intention: the cut is done.

    Those of transactions go altogether: an end that was cut off leaves a half message before them undecided.

    Raises:
        OSError: the disk is full or fails; to be done again.
    """
    path = root / "config" / "consumerOffset.json"
    for each in (path, backup_of(path)):
        if each.exists():
            _set_back(each, max_offset)
    (root / _INTENTION).unlink()
    file_system.flush_folder(root)


def _set_back(path: Path, max_offset: Callable[[str, int], int]) -> None:
    try:
        offsets = ConsumerOffsets.decode(path.read_bytes())
    except ProtocolError:
        return  # the start of the broker says so, and goes by the copy
    table: dict[str, dict[int, int]] = {}
    for key, queues in offsets.offset_table.items():
        topic, _, group = key.partition("@")
        if group != TRANSACTION_GROUP:
            ends = {queue_id: max_offset(topic, queue_id) for queue_id in queues}
            table[key] = {queue_id: min(offset, ends[queue_id]) for queue_id, offset in queues.items()}
    replace_file(path, ConsumerOffsets(offset_table=table).encode(Style.PRETTY), backup=False)


def _log_of(config: StoreConfig, file_system: FileSystem) -> CommitLog:
    return CommitLog(config.commit_log_path, config.mapped_file_size_commit_log, file_system)


def _check_sizes(config: StoreConfig) -> None:
    """Raise CutRefused for files of other sizes than configured: they would be read as something else."""
    for folder, files, size, key in (
        (config.commit_log_path, "?" * 20, config.mapped_file_size_commit_log, "mappedFileSizeCommitLog"),
        (config.consume_queue_path, f"*/*/{'?' * 20}", config.consume_queue_file_size, "mappedFileSizeConsumeQueue"),
    ):
        for file in folder.glob(files):
            if (found := file.stat().st_size) not in (0, size):
                raise CutRefused(f"{file} has {found} bytes, but {key} is {size}: name the broker.conf of the store")


def _former_end(log: CommitLog, end: int) -> int:
    """Where a log ends that is to be cut at ``end``. Raises CutRefused unless a record, or a file, ends there."""
    segment = log.segment_of(end)
    if segment is None:
        raise CutRefused(
            f"the log has nothing at {end}: its files hold {log.min_offset} to {log.segments[-1].end}"
            if log.segments
            else "the log is empty"
        )
    before = segment.start
    scan = Scan(log)
    for record in scan.records(segment.start):
        if record.physical_offset < end:
            before = record.physical_offset + record.size
    if before != end:
        raise CutRefused(f"no record ends at {end}: the last one that begins before ends at {before}")
    last = log.segments[-1]
    return max(scan.end, last.start + data_end(last, 0))


def _keep(root: Path, log: CommitLog, end: int, former_end: int, file_system: FileSystem) -> Path:
    """Copy what goes, by way of a name that says that it is not whole yet."""
    folder = root / ROLLED_BACK
    folder.mkdir(exist_ok=True)
    for unfinished in folder.glob("*.tmp"):
        shutil.rmtree(unfinished)
    aside = folder / f"{end:020d}.tmp"
    aside.mkdir()
    for segment in log.segments:
        start, stop = max(end, segment.start), min(former_end, segment.end)
        if start < stop:
            with (aside / f"{start:020d}").open("xb") as copy:
                for at in range(start, stop, _PIECE):
                    copy.write(segment.read(at - segment.start, min(_PIECE, stop - at), wait=True))
                copy.flush()
                file_system.flush(copy.fileno())
    file_system.flush_folder(aside)
    kept = _free_name(folder, end)
    os.rename(aside, kept)
    file_system.flush_folder(folder)
    file_system.flush_folder(root)
    for old in sorted(folder.iterdir(), key=lambda each: each.stat().st_mtime_ns)[:-MOST_KEPT]:
        shutil.rmtree(old)
    return kept


def _free_name(folder: Path, end: int) -> Path:
    kept, number = folder / f"{end:020d}", 1
    while kept.exists():
        number += 1
        kept = folder / f"{end:020d}-{number}"
    return kept
