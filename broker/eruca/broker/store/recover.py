"""Recovery: from the files of a store that was stopped somehow to one that can go on.

Owns where reading begins again, what is cut, filled and dispatched again. Invariants: no sound
record is ever cut off; afterwards the log is sound from the first byte read again to its end
(damage is covered by a record that no queue shows), and queues and index agree with it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from eruca.broker.store.commit_log import CommitLog
from eruca.broker.store.config import CONSUME_QUEUE_UNIT as UNIT
from eruca.broker.store.config import StoreConfig
from eruca.broker.store.consume_queue import BLANK_SIZE_MARK, BLANK_UNIT, UNIT_FORM, ConsumeQueue
from eruca.broker.store.dispatch import Dispatch
from eruca.broker.store.index import Index
from eruca.broker.store.layout import request_of
from eruca.broker.store.marks import Checkpoint, Mark
from eruca.broker.store.progress import Progress
from eruca.broker.store.queue_table import QueueTable
from eruca.broker.store.results import Damage, RecoveryReport
from eruca.broker.store.scan import SECTOR, Scan, data_end, find_record, sound_record
from eruca.protocol.message import TRANSACTION_ROLLBACK
from eruca.protocol.record import BLANK_SIZE, MIN_RECORD_SIZE, Record, encode_blank, encode_record, host_bytes

FILLER_TOPIC = "LOST"
"""Topic of the record that covers damage: of rollback type, so that no queue and no index shows it."""
_ROUND = 4096
_UNITS_AT_ONCE = 25_600
_LARGEST_FILLER = 4 << 20
_NOBODY = host_bytes("127.0.0.1", 0)
_ZEROS = 1 << 20


class Recovery:
    """One recovery of an opened log, queue table and index."""

    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        queues: QueueTable,
        index: Index | None,
        dispatch: Dispatch,
        clock: Callable[[], int],
        progress: Progress,
        note: Callable[[Mark], None],
        lost: Callable[[str | None, list[Damage]], None],
        *,
        check_crc: bool,
        power_failed: bool | None,
        remember: Callable[[int], int] | None = None,
        cut_at: int | None = None,
    ) -> None:
        """``note`` writes a mark, on the disk when it returns; ``lost`` is called, before anything is mended, with the
        damage that is about to be covered, and with a reason where the log lacks what was stored. What nothing says to
        have been flushed was stored, too, unless there is ``remember``: after a power failure under SYNC_FLUSH, where
        nobody was answered before the flush. That is called with up to where the log was flushed, by what this recovery
        takes away, and returns what was remembered. ``power_failed``: while the store was open; None where nobody
        knows. ``cut_at``: where the log was cut on purpose: it lacks nothing behind that."""
        self._config = config
        self._log = log
        self._queues = queues
        self._index = index
        self._dispatch = dispatch
        self._clock = clock
        self._progress = progress
        self._note = note
        self._lost = lost
        self._check_crc = check_crc
        self._remember = remember
        self._cut_at = cut_at
        self._power_failed = power_failed
        self._flushed = 0
        """Up to where the log was flushed, by checkpoint, mark and units, also those that an earlier recovery has taken
        away."""
        self._checkpoint = Checkpoint()
        self._marked: Mark | None = None
        self._has_mark = False
        self._report = RecoveryReport()
        self._synced = 0
        """Up to where the index came to the disk in order, as the mark says."""
        self._known = 0
        """Up to where the log was, as mark and checkpoint say."""
        self._by_time = False
        """Whether neither says what was flushed, as another program wrote the checkpoint: then the times in it do."""
        self._time_before_damage = 0
        """Store time of the newest record before the first damage, of those that were read."""

    def run(self, *, clean: bool, mark: Mark | None, checkpoint: Checkpoint) -> RecoveryReport:
        """Recover.

        Raises:
            RecoveryStopped: the progress was stopped; what is there can be recovered as before.
            OSError: the disk is full or fails.
        """
        report = self._report
        report.clean = clean
        self._marked = mark
        self._has_mark = mark is not None
        self._checkpoint = checkpoint
        flushed = checkpoint.flushed or 0
        self._known = self._uncut(max(mark.written if mark is not None else 0, flushed))
        if mark is not None:
            flushed = max(flushed, mark.synced if self._remember is None else mark.written)
        self._flushed = self._uncut(flushed)
        self._by_time = checkpoint.flushed is None and (mark is None or (not mark.synced and checkpoint.physic > 0))
        if self._known > (self._log.segments[-1].end if self._log.segments else 0):
            self._lost(f"the log had {self._known}, and its files end before", [])
        if not self._log.segments:
            self._without_log()
            return report
        start = self._start(clean, mark, checkpoint)
        self._synced = mark.synced if mark is not None else 0
        if self._log.short_files:
            names = ", ".join(f"{short:020d}" for short in self._log.short_files)
            report.notes.append(f"commit log files were missing or short and were filled up with zeros: {names}")
            start = min(start, *self._log.short_files)
        else:
            start = self._check_end(start)
        self._dispatch.log_begins_later = self._log.min_offset > 0
        unsound = (
            self._index.unsound_from(mark.indexed if mark is not None else -1) if self._index is not None else None
        )
        if unsound is not None:
            report.notes.append("the key index was damaged; a part of it is built again")
            start = min(start, self._record_after(unsound))
        start = max(start, self._log.min_offset)
        self._again_from(start)
        self._rebuild_if_queues_lacked(start)
        if report.lost_units:
            shown = ", ".join(f"{topic}/{queue}/{offset}" for topic, queue, offset in report.lost_units[:20])
            report.notes.append(f"{len(report.lost_units)} messages were lost to damage, among them {shown}")
        return report

    def _rebuild_if_queues_lacked(self, start: int) -> None:
        """Build all queues again when they lack messages that no damage explains."""
        report = self._report
        if report.lost_units and not report.damages and start > self._log.min_offset:
            report.notes.append("the consume queues lacked messages; they are built again")
            self._dispatch.lost_units = []
            report.records = report.redispatched = 0
            self._again_from(self._log.min_offset)

    def _uncut(self, offset: int) -> int:
        """Of what the log was: up to where it still has to be that."""
        return offset if self._cut_at is None else min(offset, self._cut_at)

    # ---- where to begin

    def _start(self, clean: bool, mark: Mark | None, checkpoint: Checkpoint) -> int:
        log = self._log
        if mark is not None:
            ends = [(mark.written, mark.written_units), (mark.synced, mark.synced_units)]
            unflushed = self._power_failed and self._remember is None
            if not clean and (unflushed or not self._kept(mark)):
                del ends[0]
            for offset, units in ends:
                if log.min_offset <= offset <= log.segments[-1].end and self._units_below(offset) == units:
                    return offset
            self._report.notes.append("the consume queues do not agree with the mark; they are built again")
            return log.min_offset
        if clean:
            return max(self._last_dispatched(), log.min_offset)
        for segment in reversed(log.segments):
            first = sound_record(segment.view, 0, segment.start)
            if first is not None and self._is_complete_before(first, checkpoint):
                return segment.start
        return log.min_offset

    @staticmethod
    def _is_complete_before(record: Record, checkpoint: Checkpoint) -> bool:
        """Whether the queues had all units before a record when the checkpoint was written."""
        if checkpoint.flushed is not None:
            return record.physical_offset <= checkpoint.flushed
        return 0 < record.store_timestamp <= checkpoint.min_timestamp

    def _kept(self, mark: Mark) -> bool:
        """Whether the queues' units that were written after the mark's last flush seem to be all there.

        When the power fails, a sector that never reached the disk is empty, also between others that did.
        """
        return all(self._has_no_holes(queue, mark.synced) for queue in self._queues.queues.values())

    def _has_no_holes(self, queue: ConsumeQueue, synced: int) -> bool:
        """Read a queue's units from its end on back to those of records below ``synced``."""
        per_file = self._queues.file_size // UNIT
        end = queue.max_offset
        while end > queue.min_offset:
            self._progress.check()
            start = max(end - _UNITS_AT_ONCE, (end - 1) // per_file * per_file, queue.min_offset)
            data = self._queues.units(queue, start, end - start)
            queue.cache = (0, b"")
            first = len(data) // UNIT
            for offset, size, _ in reversed(list(UNIT_FORM.iter_unpack(data))):
                if not size:
                    return False
                if offset < synced:
                    break
                first -= 1
            if not data or _has_empty_sector(data[first * UNIT :], (start + first) * UNIT % self._queues.file_size):
                return False
            if first:
                return True
            end = start
        return True

    def _units_below(self, offset: int) -> int:
        count = 0
        for queue in self._queues.queues.values():
            self._progress.check()
            count += self._queues.units_before(queue, offset)
        return count

    def _last_dispatched(self) -> int:
        """End of the newest record that has a unit, when that record is sound; else 0."""
        best = 0
        for queue in self._queues.queues.values():
            self._progress.check()
            unit = self._queues.last_unit(queue)
            if unit is not None and unit[0] + unit[1] > best and self._log.record_size_at(unit[0]) == unit[1]:
                best = unit[0] + unit[1]
        return best

    def _check_end(self, start: int) -> int:
        """Read the last part before ``start`` again; where to begin when it is not sound up to there."""
        begin = max(start - self._config.recover_check_bytes, self._log.min_offset)
        segment = self._log.segment_of(begin)
        if segment is not None and begin > segment.start:
            begin = find_record(self._log, begin) or segment.start
        scan = self._scan()
        end = begin
        for record in scan.records(begin):
            end = record.physical_offset + record.size
            if end >= start:
                break
        else:
            end = scan.end
        damaged = bool(scan.damages) and scan.damages[0].start < start
        return min(begin, start) if damaged or end != start or begin > start else start

    def _record_after(self, offset: int) -> int:
        """Where a record begins at or before ``offset``, as near as can be found."""
        segment = self._log.segment_of(offset)
        return segment.start if segment is not None else self._log.min_offset

    # ---- the work

    def _without_log(self) -> None:
        for queue in list(self._queues.queues.values()):
            self._queues.drop(queue)
        if self._index is not None:
            self._index.cut(0)

    def _scan(self) -> Scan:
        return Scan(
            self._log,
            check_crc=self._check_crc,
            torn_from=None if self._power_failed is False else self._flushed,
            reached=self._progress.reach,
        )

    def _mark_beginning(self, start: int) -> None:
        """Write down where units are cut off, if no mark says it: should this recovery end early, by a kill even, the
        next one must not take its beginnings for the whole."""
        mark = self._marked
        if mark is not None and start in (mark.written, mark.synced):
            return
        units = self._units_below(start)
        self._marked = Mark(start, units, 0, 0, -1)
        try:
            self._note(self._marked)
        except OSError as fault:  # a full disk must not keep anybody from reading
            self._report.notes.append(f"the mark could not be written: {fault}")

    def _doubt_unflushed(self, synced: int) -> None:
        """What a process that was killed has written and not flushed looks as if it were on the disk."""
        for queue in list(self._queues.queues.values()):
            self._progress.check()
            self._queues.doubt(queue, synced)
        if self._index is not None:
            self._index.doubt(synced)

    def _remember_flushed(self, start: int) -> None:
        """Under SYNC_FLUSH a mark and a unit come after the flush of what they count. These here are about to go."""
        if self._remember is None:
            return
        ends = [self._known]
        for queue in list(self._queues.queues.values()):
            self._progress.check()
            unit = self._queues.last_unit(queue)
            if unit is not None and unit[1] != BLANK_SIZE_MARK:
                ends.append(unit[0] + unit[1])
        flushed = self._uncut(max(ends))
        self._flushed = self._uncut(max(self._remember(flushed if flushed > start else 0), flushed))

    def _again_from(self, start: int) -> None:
        self._remember_flushed(start)
        self._mark_beginning(start)
        self._progress.aim(start, self._log.segments[-1].end, self._log.segment_size)
        before: dict[ConsumeQueue, bytes] = {}
        for each in list(self._queues.queues.values()):
            self._progress.check()
            before[each] = self._cut_queue(each, start)
        if self._index is not None:
            self._index.cut(start, synced=self._synced, trusted=self._report.clean, check=self._progress.check)
        if not self._report.clean and self._has_mark and self._synced < start:
            self._doubt_unflushed(self._synced)
        scan = self._scan()
        pending = self._dispatch.pending
        time = 0
        for record in scan.records(start):
            self._report.records += 1
            time = max(time, record.store_timestamp)
            if not scan.damages:
                self._time_before_damage = time
            if record.sys_flag & TRANSACTION_ROLLBACK == TRANSACTION_ROLLBACK:
                continue
            queue = self._queue_of(record.topic, record.queue_id)
            if queue is None:
                continue
            pending.append(request_of(queue, record))
            if len(pending) >= _ROUND:
                self._report.redispatched += self._dispatch.drain()
        self._report.redispatched += self._dispatch.drain()
        self._report.last_store_timestamp = time
        self._finish(scan, before, time)

    def _queue_of(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        try:
            return self._queues.queue(topic, queue_id)
        except ValueError:
            self._report.notes.append(
                f"a sound record names the impossible queue {topic!r}, {queue_id}; it is left out"
            )
            return None

    def _cut_queue(self, queue: ConsumeQueue, start: int) -> bytes:
        """Cut a queue's units at or after ``start``; returns them."""
        end = queue.max_offset
        last = self._queues.last_unit(queue)
        if last is None or (last[0] < start and last[1] != BLANK_SIZE_MARK):
            return b""
        index = self._queues.first_from(queue, start)
        taken = b""
        while index + len(taken) // 20 < end:
            part = self._queues.units(queue, index + len(taken) // 20, end - index - len(taken) // 20)
            if not part:
                break
            taken += part
        self._queues.cut(queue, index)
        queue.checked_from = index
        if index and all(unit == BLANK_UNIT for unit in _split(self._queues, queue, index)):
            self._queues.cut(queue, 0)
            queue.begin_at(0)
            taken = BLANK_UNIT * index + taken
        return taken

    def _finish(self, scan: Scan, before: dict[ConsumeQueue, bytes], time: int) -> None:
        log = self._log
        report = self._report
        loss = self._loss(scan)
        if loss is not None or scan.damages:
            self._lost(loss, scan.damages)
        for queue, units in before.items():
            self._keep_end(queue, units, scan.damages)
        self._cover(scan.damages, time or self._clock())
        report.damages += scan.damages
        if scan.remains:
            report.damages.append(self._clear_after(scan.end))
        log.drop_after(scan.end)
        log.open_end(scan.end)
        self._dispatch.position = report.end_offset = scan.end
        report.lost_units = self._dispatch.lost_units
        self._queues.count_on()

    def _loss(self, scan: Scan) -> str | None:
        """Why the log lacks what was stored; None if it does not. What a kill has left of a record was never stored."""
        if scan.damages and (self._remember is None or self._was_flushed(scan.damages[0].start)):
            return f"the log is damaged at {scan.damages[0].start}"
        if scan.end < (had := max(self._known, self._flushed)):
            return f"the log had {had}, and ends at {scan.end}"
        if self._remember is not None and self._by_time and self._time_before_damage < self._checkpoint.physic:
            return f"the log had messages up to the time {self._checkpoint.physic}, and ends before"
        if scan.remains and self._report.clean:
            return f"the log is damaged at {scan.end}, its end, and was closed in order"
        return None

    def _was_flushed(self, offset: int) -> bool:
        """Whether anything says that the log was flushed behind ``offset``: mark or unit; or the checkpoint, which was
        written when all up to its time was flushed."""
        return self._flushed > offset or (self._by_time and self._time_before_damage <= self._checkpoint.physic)

    def _keep_end(self, queue: ConsumeQueue, units: bytes, damages: list[Damage]) -> None:
        """Keep the units at a queue's end whose records lie in damage with the log going on behind it.

        They repeat the queue's last message that is left; without one they are blank.
        """
        missing = len(units) // 20 - (queue.max_offset - queue.checked_from)
        if missing <= 0:
            return
        end = queue.max_offset
        last = self._queues.units(queue, end - 1, 1) if end else b""
        known = UNIT_FORM.unpack(last)[0] if last else -1  # a unit lost earlier repeats it
        lost = 0
        for offset, size, _ in UNIT_FORM.iter_unpack(units[len(units) - 20 * missing :]):
            if size == BLANK_SIZE_MARK:
                covered = end == 0
            else:
                covered = offset == known or any(damage.start <= offset < damage.end for damage in damages)
            if not covered:
                break
            lost += 1
        if not lost:
            return
        if last:
            for offset in range(end, end + lost):
                self._queues.append(queue, last)
                queue.lost.add(offset)
        else:
            self._queues.fill_head(queue, lost)
        self._dispatch.lost_units += [(queue.topic, queue.queue_id, offset) for offset in range(end, end + lost)]

    def _cover(self, damages: list[Damage], time: int) -> None:
        """Write records nobody sees over damage, so that every reader of the log can pass it."""
        log = self._log
        for damage in damages:
            segment = log.segment_of(damage.start)
            assert segment is not None
            segment = log.unshared(segment)
            at = damage.start - segment.start
            stop = damage.end - segment.start
            after = segment.view[stop : stop + 8]
            if stop == segment.size or after == encode_blank(segment.size - stop):
                segment.allocate(at, BLANK_SIZE, 0)
                segment.view[at : at + BLANK_SIZE] = encode_blank(segment.size - at)
                continue
            begin = at
            segment.allocate(at, stop - at, 0)
            while stop - at >= MIN_RECORD_SIZE + 1:
                size = min(stop - at, _LARGEST_FILLER)
                if 0 < stop - at - size < MIN_RECORD_SIZE + 1:
                    size -= MIN_RECORD_SIZE + 1
                segment.view[at : at + size] = self._filler(segment.view, at, segment.start + at, size, time)
                at += size
            segment.flush_from(begin)

    @staticmethod
    def _filler(view: memoryview, at: int, offset: int, size: int, time: int) -> bytes:
        topic = FILLER_TOPIC[: size - MIN_RECORD_SIZE]
        length = size - MIN_RECORD_SIZE - len(topic)
        return encode_record(
            topic=topic,
            queue_id=0,
            queue_offset=0,
            physical_offset=offset,
            body=bytes(view[at + 88 : at + 88 + length]),
            properties=b"",
            flag=0,
            sys_flag=TRANSACTION_ROLLBACK,
            born_timestamp=time,
            born_host=_NOBODY,
            store_timestamp=time,
            store_host=_NOBODY,
        )

    def _clear_after(self, end: int) -> Damage:
        """Put zeros where remains of a record lie behind the log's end."""
        segment = self._log.unshared(self._log.segments[-1])
        at = end - segment.start
        stop = data_end(segment, at)
        for start in range(at, stop, _ZEROS):
            size = min(_ZEROS, stop - start)
            segment.view[start : start + size] = bytes(size)
        return Damage(end, segment.start + stop, "an incomplete record at the end of the log")


def is_filler(record: Record) -> bool:
    """Whether a record covers damage: its bytes are no master's."""
    return FILLER_TOPIC.startswith(record.topic) and record.sys_flag & TRANSACTION_ROLLBACK == TRANSACTION_ROLLBACK


def _split(queues: QueueTable, queue: ConsumeQueue, index: int) -> list[bytes]:
    """The units from the beginning of a queue's files to ``index`` (only looked at when few)."""
    first = (queues.file_starts(queue) or [0])[0] // 20
    if index - first > 300_000:
        return [b""]
    data = b""
    while first + len(data) // 20 < index:
        part = queues.units(queue, first + len(data) // 20, index - first - len(data) // 20)
        if not part:
            return [b""]
        data += part
    return [data[at : at + 20] for at in range(0, len(data), 20)]


def _has_empty_sector(data: bytes, at: int) -> bool:
    """Whether a whole sector, or the part of one at either end, is empty; ``data`` begins at ``at`` in its file."""
    edges = [0, *range(SECTOR - at % SECTOR, len(data), SECTOR), len(data)]
    return any(start < stop and not data[start:stop].strip(b"\0") for start, stop in pairwise(edges))
