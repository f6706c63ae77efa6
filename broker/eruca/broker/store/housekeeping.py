"""Housekeeping: writes out queues and index, writes the checkpoint, deletes expired files.

Does the work of RocketMQ's FlushConsumeQueueService (with StoreCheckpoint), CleanCommitLogService and
CleanConsumeQueueService; ``scheduler`` says when. Owns checkpoint, mark and the state of the disk. Knows log, queues
and index as files, not requests. Invariant: the mark is written only after all units it counts are in their files, and
it claims as flushed only what was flushed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import structlog

from eruca.broker.store.appender import Appender
from eruca.broker.store.commit_log import CommitLog
from eruca.broker.store.config import CONSUME_QUEUE_UNIT, StoreConfig
from eruca.broker.store.consume_queue import ConsumeQueue, place_of
from eruca.broker.store.dispatch import Dispatch
from eruca.broker.store.file_system import FileSystem, Unflushed
from eruca.broker.store.flush import Flush
from eruca.broker.store.index import Index
from eruca.broker.store.marks import Checkpoint, Mark, write_checkpoint, write_mark
from eruca.broker.store.queue_table import QueueTable
from eruca.broker.store.retention import HOUR, ClockWatch, Disk, LogFile, disk_of, disk_refusal, expendable
from eruca.broker.store.scan import record_at
from eruca.broker.store.segment import Segment

_LOOKED_BACK = 64
"""Units that may be damaged at the end of a queue."""
DROPPED_AT_ONCE = 8
"""Queues to delete before others have their turn."""

log = structlog.get_logger("eruca.broker.store")
retention_log = structlog.get_logger("eruca.broker.store.retention")


class Expendable(NamedTuple):
    """A file of the log that is to be deleted: when it was changed last, in ms since 1970, and why it goes."""

    segment: Segment
    modified: int
    reason: str


class Housekeeping:
    """Writes out, marks and deletes the files of an open store."""

    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        queues: QueueTable,
        index: Index | None,
        dispatch: Dispatch,
        flush: Flush,
        appender: Appender,
        clock: Callable[[], int],
        monotonic: Callable[[], int],
        file_system: FileSystem,
    ) -> None:
        self.checkpoint = Checkpoint()
        self.mark = Mark(0, 0, 0, 0, -1)
        self.disk: Disk | None = None
        """How full the disk was at the last check."""
        self.needed: Callable[[bool], int] | None = None
        """Returns the commit log offset from which on nothing is deleted; called with True if the disk is too full."""
        self.held_back = 0
        """Commit log offset up to which the last round would have deleted files without ``needed``."""
        self.deleted_files = 0
        self._config = config
        self._log = log
        self._queues = queues
        self._index = index
        self._dispatch = dispatch
        self._flush = flush
        self._appender = appender
        self._clock = clock
        self._monotonic = monotonic
        self._watch = ClockWatch(clock(), monotonic())
        self._file_system = file_system
        self._full: str | None = None
        self._covered = (0, 0)
        """Commit log offset and number of units that the last write-out covers, or the one that is going on."""

    # ---- writing out

    @property
    def is_marked(self) -> bool:
        """Whether nothing came since the mark was written."""
        return self._dispatch.position == self.mark.written

    def begin(self) -> tuple[int, int]:
        """Begin a write-out: up to which commit log offset it covers, and the store time of the newest message that was
        dispatched."""
        queues = self._queues.queues.values()
        position = self._dispatch.unindexed_from
        if position is None:
            position = self._dispatch.position
            units = sum(queue.tail_start + len(queue.tail) // CONSUME_QUEUE_UNIT for queue in queues)
        else:  # a start begins there, so that what the index lacks comes into it
            units = sum(self._queues.units_before(queue, position) for queue in queues)
        self._covered = (position, units)
        return position, self._dispatch.newest

    def unflushed(self) -> list[Unflushed]:
        """The files of queues and index to flush; ``give_back`` takes them when that fails, or ends early."""
        taken = [self._queues.take_unflushed()]
        if self._index is not None:
            taken.append(self._index.take_unflushed())
        return taken

    def flush(self, unflushed: list[Unflushed]) -> None:
        """Bring these files to the disk; any thread.

        Raises:
            OSError: one of them cannot be flushed.
        """
        for one in unflushed:
            self._file_system.flush_files(one)

    def give_back(self, unflushed: list[Unflushed], *, failed: bool) -> None:
        """Note files again that were not flushed; after a flush that ``failed`` they are written again first."""
        for one in unflushed:
            if failed:
                self._file_system.write_files_again(one.files)
            self._queues.give_back(one)

    def next_checkpoint(self, moment: int) -> Checkpoint | None:
        """The checkpoint after a write-out whose files are flushed; None when the log is not flushed as far."""
        if self._flush.flushed < self._covered[0]:
            return None
        full = self._index.files[-2].end_time if self._index is not None and len(self._index.files) > 1 else 0
        moment = max(moment, self.checkpoint.physic)
        return Checkpoint(moment, moment, max(full, self.checkpoint.indexed), self._covered[0])

    def write_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Bring a checkpoint to the disk, which may take long; any thread. ``note`` follows.

        Raises:
            OSError: the disk is full or fails.
        """
        write_checkpoint(self._config.store_path_root_dir, checkpoint, self._file_system)

    def note(self, checkpoint: Checkpoint | None) -> None:
        """Write the mark after a write-out; with the ``checkpoint`` that was written, if it was flushed.

        Raises:
            OSError: the disk is full or fails.
        """
        indexed = self._index.end_offset if self._index is not None else -1
        self.mark = Mark(*self._covered, *(self.mark[2:4] if checkpoint is None else self._covered), indexed)
        self.checkpoint = checkpoint or self.checkpoint
        write_mark(self._config.store_path_root_dir, self.mark, self.checkpoint, self._file_system)

    def persist(self, *, sync: bool = True) -> None:
        """Write out and flush queues and index, write checkpoint and mark, all at once.

        Raises:
            OSError: the disk is full or fails.
        """
        _, moment = self.begin()
        self._queues.write_some(None)
        if sync:
            files = self.unflushed()
            try:
                self.flush(files)
            except OSError:
                self.give_back(files, failed=True)
                raise
        checkpoint = self.next_checkpoint(moment) if sync else None
        if checkpoint is not None:
            self.write_checkpoint(checkpoint)
        self.note(checkpoint)

    # ---- deleting

    def check_disk(self) -> None:
        """Check how full the disk is; above the limit the store accepts nothing until there is room again."""
        self.disk = disk_of(self._config.store_path_root_dir)
        if self._flush.fault is None:
            before, self._full = self._full, disk_refusal(self.disk, self._config)
            self._appender.refusal = self._full or self._appender.standing
            if before is None and self._full is not None:
                log.error("disk_full", reason=self._full)
            elif before is not None and self._full is None:
                log.info("disk_has_room", used=round(self.disk.ratio, 3))

    @property
    def distrust(self) -> str | None:
        """Why no file is deleted for its age at present; None where files are."""
        pause = self._watch.pause(self._monotonic())
        if not pause:
            return None
        return (
            f"the clock of the broker's machine moved by {self._watch.moved / HOUR:.1f} hours at once, so the age of "
            f"files is not believed: check the clock, and ask again in {-(-pause // 60_000)} minutes"
        )

    def due(self, *, by_hand: bool = False) -> list[Expendable]:
        """The oldest files of the log that are to be deleted now."""
        self.check_disk()
        assert self.disk is not None
        now, passed = self._clock(), self._monotonic()
        if self._watch.jumped(now, passed):
            log.warning(
                "clock_jumped",
                moved_hours=round(self._watch.moved / HOUR, 2),
                consequence="no file is deleted for its age in the next hour; check the clock of this machine",
            )
        by_age = not self._watch.pause(passed)
        hour = datetime.fromtimestamp(now / 1000).hour
        files = []
        for segment in self._log.segments:
            stat = os.fstat(segment.fd)
            taken = stat.st_blocks * 512 if hasattr(stat, "st_blocks") else stat.st_size  # Windows has no blocks
            files.append(LogFile(stat.st_mtime_ns // 1_000_000, taken))
        reasons = expendable(files, self._config, self.disk, now, hour, by_hand=by_hand, by_age=by_age)
        oldest = self._log.segments[: self._released(len(reasons))]
        return [
            Expendable(segment, file.modified, reason)
            for segment, file, reason in zip(oldest, files, reasons, strict=False)
        ]

    def deleted(self, file: Expendable) -> None:
        """A file of the log was deleted."""
        self._note_deleted(file.segment.path, file.modified, file.reason)

    def _note_deleted(self, path: Path | str, modified: int, reason: str = "all of its messages were deleted") -> None:
        self.deleted_files += 1
        retention_log.info(
            "file_deleted", file=str(path), age_hours=round((self._clock() - modified) / HOUR, 1), reason=reason
        )

    def forget_files(self, count: int) -> None:
        """Forget the ``count`` oldest files of the log, which are deleted, and their part of the index."""
        if count:
            self._log.forget_oldest(count)
            self._dispatch.log_begins_later = True
            if self._index is not None:
                for path, modified in self._index.drop_below(self._log.min_offset):
                    self._note_deleted(path, modified)
            self.check_disk()

    def _released(self, count: int) -> int:
        """How many of the ``count`` oldest files are not needed any more."""
        self.held_back = 0
        if not count or self.needed is None:
            return count
        assert self.disk is not None
        kept_from = self.needed(self.disk.ratio > self._config.disk_space_clean_forcibly_ratio)
        ends = [segment.end for segment in self._log.segments[:count]]
        free = sum(end <= kept_from for end in ends)
        if free < count:
            self.held_back = ends[-1]
            log.info("files_kept", files=count - free, reason="messages in them wait to be delivered")
        return free

    def move_min_offsets(self) -> None:
        """Let each queue begin at its first message that the log still holds; older files go."""
        for queue, first in self.later_beginnings(list(self._queues.queues.values())):
            self.begin_at(queue, first)

    def later_beginnings(self, queues: Iterable[ConsumeQueue]) -> list[tuple[ConsumeQueue, int]]:
        """Those of the queues whose first messages are gone, with the offset of the first that is left, or may be;
        any thread."""
        oldest = self._log.min_offset
        return [
            (queue, self._queues.beginning_from(queue, oldest))
            for queue in queues
            if not self._queues.begins_at_or_after(queue, oldest)
        ]

    def begin_at(self, queue: ConsumeQueue, first: int) -> None:
        """Let a queue begin at a message; its older files go."""
        if self._queues.queues.get((queue.topic, queue.queue_id)) is queue and first <= queue.max_offset:
            if self._queues.begins_at_or_after(queue, self._log.min_offset):
                return  # its topic was deleted and made again since that was found
            queue.min_offset = max(first, queue.min_offset)
            if queue.written <= queue.min_offset:  # else the last file there is would stay, though all of it is gone
                with suppress(OSError):  # a full disk: the file stays for now
                    self._queues.write_out(queue)
            for path, modified in self._queues.drop_files_below(queue, queue.min_offset):
                self._note_deleted(path, modified)

    def drop_topic(self, topic: str, most: int | None = None, *, before: int | None = None) -> int:
        """Delete the first queues of a topic, at most ``most`` (its records stay in the log); returns how many.

        With ``before`` only those whose newest message lies before that commit log offset.

        Raises:
            OSError: the disk is full or fails.
        """
        if before is None:
            ids = sorted(queue_id for name, queue_id in self._queues.queues if name == topic)[:most]
            gone = [self._queues.queues[topic, queue_id] for queue_id in ids]
        else:
            gone = list(islice(self._older_queues({topic: before}), most))
        self.drop(gone)
        return len(gone)

    def drop_unused(self, used: set[str], most: int | None = None) -> list[str]:
        """Delete the queues of topics that are not in ``used``, at most ``most``; returns those topics."""
        gone = list(islice((queue for (name, _), queue in self._queues.queues.items() if name not in used), most))
        self.drop(gone)
        return sorted({queue.topic for queue in gone})

    def older_queues(self, ends: Mapping[str, int]) -> list[ConsumeQueue]:
        """The queues whose newest message lies before its topic's offset in ``ends``; none that has others to come.
        Units that do not lead to their messages do not say it."""
        return list(self._older_queues(ends))

    def _older_queues(self, ends: Mapping[str, int]) -> Iterator[ConsumeQueue]:
        for (topic, _), queue in self._queues.queues.items():
            whole = topic in ends and queue.next_offset <= queue.max_offset
            place = self._newest_place(queue) if whole else None
            if place is not None and place < ends[topic]:
                yield queue

    def _newest_place(self, queue: ConsumeQueue) -> int | None:
        """Where the newest message lies to which its unit leads; None where the last units lead to none."""
        end = queue.max_offset
        for index in range(end - 1, max(queue.min_offset, end - _LOOKED_BACK) - 1, -1):
            place = place_of(self._queues.unit_alone(queue, index))
            if place is not None and self._leads(queue, index, place):
                return place
        return None

    def _leads(self, queue: ConsumeQueue, index: int, place: int) -> bool:
        """Whether the message of a unit lies there, or lay there before the log began, as those before it did."""
        least = self._log.min_offset
        if place < least:
            before = place_of(self._queues.unit_alone(queue, index - 1)) if index > queue.min_offset else None
            return before is None or before < least
        segment = self._log.segment_of(place)
        try:
            record = None if segment is None else record_at(segment, place - segment.start, check_crc=False)
        except OSError:  # the disk fails: nobody knows
            return False
        found = None if record is None else (record.topic, record.queue_id, record.queue_offset)
        return found == (queue.topic, queue.queue_id, index)

    def reaching_before(self, topic: str, physical_offset: int) -> int:
        """How many queues of a topic have messages from before a commit log offset."""
        queues = [queue for (name, _), queue in self._queues.queues.items() if name == topic]
        oldest = [self._queues.unit(queue, queue.min_offset) for queue in queues]
        places = [place_of(unit) for unit in oldest]
        return sum(place is not None and place < physical_offset for place in places)

    def drop_expired_queues(self, keys: Iterable[tuple[str, int]]) -> int:
        """Delete those of the queues whose newest message is older than the log; returns how many."""
        oldest = self._log.min_offset
        gone = []
        for key in keys:
            queue = self._queues.queues.get(key)
            place = place_of(self._queues.last_unit(queue)) if queue is not None else None
            if queue is not None and place is not None and place < oldest:
                gone.append(queue)
        self.drop(gone)
        return len(gone)

    def drop(self, queues: list[ConsumeQueue]) -> None:
        """Delete queues. The mark counts their units no more: a start that found fewer would build all queues again.

        Raises:
            OSError: the disk is full or fails.
        """
        position, units = self._covered
        written = synced = 0
        for queue in queues:
            written += self._queues.units_before(queue, self.mark.written)
            synced += self._queues.units_before(queue, self.mark.synced)
            units -= self._queues.units_before(queue, position)
            self._queues.drop(queue)
            self._dispatch.forget(queue)
        self._covered = (position, units)
        if queues:
            mark = self.mark
            self.mark = mark._replace(
                written_units=mark.written_units - written, synced_units=mark.synced_units - synced
            )
            write_mark(self._config.store_path_root_dir, self.mark, self.checkpoint, self._file_system)
