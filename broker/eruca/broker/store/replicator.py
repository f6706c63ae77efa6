"""The replicator: a master reads raw bytes of the log for its slaves, and a slave appends them.

The store's side of RocketMQ's HAService (getCommitLogData and appendToCommitLog). Owns on a slave the offset up to
which the bytes were read as records. Knows no socket. Invariant: the bytes of a slave's log are those of the master's
at the same offsets; each whole record among them is dispatched once, in order; nothing of what is refused remains in
a slave's log, and nothing is written where it was until it is gone from the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import structlog

from eruca.broker.store.appender import Appender
from eruca.broker.store.commit_log import CommitLog
from eruca.broker.store.dispatch import Dispatch
from eruca.broker.store.flush import Flush
from eruca.broker.store.layout import request_of
from eruca.broker.store.queue_table import QueueTable
from eruca.broker.store.recover import is_filler
from eruca.broker.store.results import Damage
from eruca.broker.store.scan import find_record, records_back, sound_record
from eruca.broker.store.segment import Segment
from eruca.protocol.message import TRANSACTION_ROLLBACK
from eruca.protocol.record import (
    BLANK_SIZE,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_SIZE,
    PHYSICAL_OFFSET_AT,
    Record,
    peek,
)
from eruca.remoting.descriptors import reason

_LOOK_AGAIN = 1 << 20
"""Bytes that must come until a sound record is looked for again behind damage."""

_TAIL = 4096
"""Bytes of the end of a log that holds no sound record."""

log = structlog.get_logger("eruca.broker.store")


class CopyRefused(Exception):
    """Bytes that do not continue this log; the text says why and what to do."""


class Tail(NamedTuple):
    """The end of this log, as its master must have it."""

    start: int
    """Where its last record begins, or the last one before its first damage."""
    data: bytes
    """The bytes from there on, up to the first damage that was covered here."""
    end: int
    """Where the log ends."""


class Replicator:
    """Raw bytes out of the log and into it; ``sync`` counts only what is on the disk as here."""

    def __init__(
        self,
        log: CommitLog,
        queues: QueueTable,
        dispatch: Dispatch,
        appender: Appender,
        flush: Flush,
        *,
        sync: bool,
    ) -> None:
        self.damages: list[Damage] = []
        """What was taken in and holds no record."""
        self.on_record: Callable[[Record], None] | None = None
        """Called with each record that became whole."""
        self.refusal: str | None = None
        """Why what came last was not taken in; None when a record has become whole since."""
        self._log = log
        self._queues = queues
        self._dispatch = dispatch
        self._appender = appender
        self._flush = flush
        self._sync = sync
        self._scanned = 0
        self._look_at = 0

    def begin(self) -> None:
        """To be called when the log was recovered, or was written here: what comes is read as records from its end."""
        self._scanned = self._log.position
        self._look_at = 0
        self.refusal = None

    # ---- out of the log

    @property
    def begin_offset(self) -> int:
        """Offset of the log's oldest byte."""
        return self._log.min_offset

    @property
    def end_offset(self) -> int:
        """Where the log ends."""
        return self._log.position

    @property
    def whole_offset(self) -> int:
        """Up to where the records that were copied are whole."""
        return self._scanned

    @property
    def safe_offset(self) -> int:
        """Up to where the log can be relied on: its end, under SYNC_FLUSH what is on the disk."""
        return min(self._flush.flushed, self._log.position) if self._sync else self._log.position

    @property
    def last_file(self) -> int:
        """Where the file begins that the log's end lies in."""
        return self._log.position - self._log.position % self._log.segment_size

    def take(self, offset: int, most: int, *, wait: bool = False) -> memoryview | bytes | None:
        """Up to ``most`` bytes of one file from ``offset`` on; None when there are none (yet, or any more).

        Raises:
            NotInMemory: they have to come from the disk, and ``wait`` is False.
        """
        segment = self._log.segment_of(offset)
        if segment is None:
            return None
        return self._log.bytes_at(offset, min(segment.end, self.safe_offset, offset + most) - offset, wait=wait)

    def tail(self, end: int, sound_end: int | None = None) -> Tail:
        """The last record before ``end``, where this log ended, and what follows it. Reads files: call it in a thread.

        With ``sound_end`` what follows from there on is not compared: damage was covered there.

        Raises:
            OSError: the disk fails.
        """
        stop = end if sound_end is None else min(sound_end, end)
        for record in records_back(self._log, stop):
            start = record.physical_offset
            if not is_filler(record):
                break
            stop = start
        else:
            start = max(self._log.min_offset, stop - _TAIL)
        start = max(start, 1)  # a slave that reports 0 gets the newest file
        return Tail(start, self._read(start, stop), end)

    def _read(self, start: int, stop: int) -> bytes:
        parts = []
        for segment in self._log.segments:
            begin, end = max(start, segment.start), min(stop, segment.end)
            if begin < end:
                parts.append(segment.read(begin - segment.start, end - begin, wait=True))
        return b"".join(parts)

    # ---- into the log

    def append(self, offset: int, data: bytes | memoryview) -> None:
        """Take in the bytes of a master's log from ``offset`` on, and dispatch the records that became whole.

        Raises:
            CopyRefused: they do not continue this log, which ends with its last whole record then.
            OSError: the disk is full or fails.
        """
        begun = self._scanned
        try:
            if self._flush.fault is not None:
                raise self._flush.fault
            self._flush.tidy()
            if offset != self._log.position:
                self._start_at(offset)
            self._take_in(memoryview(data))
        except CopyRefused as fault:
            self.refuse(str(fault))
            raise
        except OSError as fault:
            self.refuse(
                f"the copy of the master's log cannot be written: {reason(fault)}; free disk space, or repair the disk "
                "and restart this broker"
            )
            raise
        if self._scanned > begun:
            self.accept()

    def refuse(self, reason: str) -> None:
        """What came from the master does not continue this log, or cannot be written."""
        self.refusal = reason

    def accept(self) -> None:
        """What came from the master continues this log, or the master has nothing that this log lacks."""
        if self.refusal is not None:
            self.refusal = None
            log.info("copy_goes_on", end=self._log.position)

    def cut_part(self) -> int:
        """Take back what came behind the last whole record; how many bytes that was."""
        cut = self._take_back()
        if cut:
            log.warning("part_of_a_record_cut_off", end=self._scanned, bytes=cut)
        return cut

    def _take_in(self, data: memoryview) -> None:
        """Append file by file, so that what is refused lies in the last file, behind the last whole record."""
        while data:
            room = self._log.segment_size - self._log.position % self._log.segment_size
            self._log.extend(data[:room])
            data = data[room:]
            try:
                while self._scanned < self._log.position and (step := self._step()):
                    self._scanned += step
            except CopyRefused:
                self._take_back()
                raise

    def _take_back(self) -> int:
        cut = self._log.position - self._scanned
        if cut:
            self._log.take_back(self._scanned)
            self._flush.forget_after(self._scanned)
            self._look_at = 0
        return cut

    def _start_at(self, offset: int) -> None:
        if self._log.position:
            raise CopyRefused(f"the log ends at {self._log.position}, but bytes for {offset} came")
        if offset % self._log.segment_size:
            raise CopyRefused(
                f"the master's log begins at {offset}, which is no multiple of mappedFileSizeCommitLog "
                f"({self._log.segment_size}): set the same size as the master has"
            )
        self._log.restart_at(offset)
        self._dispatch.log_begins_later = True
        self._scanned = self._dispatch.position = offset

    def _step(self) -> int:
        """Read on by one record; returns how many bytes are done, 0 when more must come first."""
        segment = self._log.segment_of(self._scanned)
        assert segment is not None
        at = self._scanned - segment.start
        room = segment.size - at
        come = min(segment.end, self._log.position) - self._scanned
        if come < min(BLANK_SIZE, room):
            return 0
        if room < BLANK_SIZE:  # a log leaves room for the blank record that ends a file
            raise self._other_size(segment)
        size, magic = peek(segment.view, at)
        if magic == MAGIC_BLANK:
            if size != room:
                raise self._other_size(segment)
            return room if come == room else 0
        if magic in (MAGIC_V1, MAGIC_V2) and come < size:
            if size <= room:
                return 0
            own = bytes(segment.view[at + PHYSICAL_OFFSET_AT : at + PHYSICAL_OFFSET_AT + 8])
            if self._scanned.to_bytes(8, "big").startswith(own) and come >= min(room, MIN_RECORD_SIZE):
                raise self._other_size(segment)
        record = sound_record(segment.view[at : at + come], 0, self._scanned)
        if record is not None:
            self._add(record)
            return record.size
        return self._pass_damage(come, room)

    def _other_size(self, segment: Segment) -> CopyRefused:
        """The refusal when a record, or the end of a file, is where none can be."""
        return CopyRefused(
            f"the master's files end elsewhere than those here (at {self._scanned}): set the same "
            f"mappedFileSizeCommitLog ({segment.size} here) as the master has, and empty this store"
        )

    def _pass_damage(self, come: int, room: int) -> int:
        """Go on behind bytes that hold no record: at the next sound one, else at the end of the file."""
        if come < room and self._log.position < self._look_at:
            return 0
        following = find_record(self._log, self._scanned + 4)
        if following is None and come < room:
            self._look_at = self._log.position + _LOOK_AGAIN
            return 0
        end = self._scanned + room if following is None else following
        self.damages.append(Damage(self._scanned, end, "no record in what the master sent"))
        log.error("copied_damage", start=self._scanned, end=end)
        self._look_at = 0
        return end - self._scanned

    def _add(self, record: Record) -> None:
        appender = self._appender
        appender.last_time = max(appender.last_time, record.store_timestamp)
        appender.puts += 1
        appender.put_bytes += record.size
        if self.on_record is not None:
            self.on_record(record)
        if record.sys_flag & TRANSACTION_ROLLBACK == TRANSACTION_ROLLBACK:
            return
        try:
            queue = self._queues.queue(record.topic, record.queue_id)
        except ValueError as fault:
            log.error("copied_record_left_out", offset=record.physical_offset, reason=str(fault))
            return
        if not appender.woken:
            appender.begin_round()
        self._dispatch.pending.append(request_of(queue, record))
