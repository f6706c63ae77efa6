"""Reads the commit log record by record, across damage.

Owns what counts as a sound record and where reading goes on after an unsound one: at the next
record that stores its own offset. Decides only; repairs nothing. Reads files, never their mapping: a
disk that fails shows as OSError then, and not as SIGBUS. Invariant: every byte from the start to
``end`` belongs to a record yielded, to a blank record or to one of ``damages``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from eruca.broker.store.commit_log import CommitLog
from eruca.broker.store.results import Damage
from eruca.broker.store.segment import Segment
from eruca.protocol.errors import ProtocolError
from eruca.protocol.record import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, MIN_RECORD_SIZE, Record, decode_record

_MAGICS = tuple(magic.to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK))
SECTOR = 512
"""What a disk writes as a whole, or not at all."""
_STRIPE = 1 << 20
_LARGEST = 1 << 28
_ZEROS = bytes(_STRIPE + 3)


def sound_record(data: memoryview | bytes, at: int, offset: int, *, check_crc: bool = True) -> Record | None:
    """The record at ``at`` when it is whole, consistent, stored for ``offset`` and (by CRC) unchanged."""
    size = int.from_bytes(data[at : at + 4], "big")
    if not MIN_RECORD_SIZE <= size <= len(data) - at:
        return None
    if not isinstance(data, bytes):  # the log's memory, perhaps all of a file
        data, at = bytes(data[at : at + size]), 0
    try:
        record = decode_record(data, at, check=check_crc)
    except ProtocolError:
        return None
    return record if record.physical_offset == offset and record.topic and record.topic[-1] != "\0" else None


class Scan:
    """One pass over the log's files; ``reached`` is called with the offset of each part that is read, and may raise."""

    def __init__(
        self,
        log: CommitLog,
        *,
        check_crc: bool = True,
        torn_from: int | None = None,
        reached: Callable[[int], object] = bool,
    ) -> None:
        """``torn_from``: the power may have failed, and what was written from there on may lack sectors."""
        self.damages: list[Damage] = []
        self.end = 0
        """After the pass: where the next record belongs."""
        self.remains = False
        """Whether something other than zeros lies behind ``end``."""
        self._log = log
        self._check_crc = check_crc
        self._torn_from = torn_from
        self._reached = reached

    def records(self, start: int) -> Iterator[Record]:
        """The sound records from ``start`` (a record's beginning) to the end."""
        segments = self._log.segments
        self.end = start
        for segment in segments:
            if segment.end <= start:
                continue
            at = max(start, segment.start) - segment.start
            last = segment is segments[-1]
            yield from self._records_of(segment, at, last=last)

    def _records_of(self, segment: Segment, at: int, *, last: bool) -> Iterator[Record]:
        base = segment.start
        while True:
            for record in self._sound_run(segment, at):
                yield record
                at = record.physical_offset + record.size - base
            if self._is_blank(segment, at):
                self.end = self._end_before_blank(base, base + at) if last else segment.end
                return
            following = self._following(segment, at)
            if following is None:
                self._close(segment, at, last=last)
                return
            self.damages.append(Damage(base + at, base + following, self._reason(segment, at)))
            at = following

    def _sound_run(self, segment: Segment, at: int) -> Iterator[Record]:
        """The sound records that lie next to one another from ``at`` on, read a stripe at a time."""
        base = segment.start
        check = self._check_crc
        stripe = _STRIPE
        while True:
            self._reached(base + at)
            data = _bytes_of(segment, at, at + stripe)
            done = 0
            while (record := sound_record(data, done, base + at + done, check_crc=check)) is not None:
                if record.properties_text.endswith(b"\0") and not any(
                    _bytes_of(segment, at + done + record.size, at + done + record.size + 8)
                ):
                    return  # the log's last record, its end not written: no CRC covers the properties
                if self._is_torn(segment, at + done, record):
                    return
                yield record
                done += record.size
            at += done
            if done:
                stripe = _STRIPE
                continue
            wanted = int.from_bytes(data[:4], "big")
            if not stripe < wanted <= min(_LARGEST, segment.size - at):
                return
            stripe = wanted

    def _close(self, segment: Segment, at: int, *, last: bool) -> None:
        """No sound record follows in this file."""
        if last:
            self.end = segment.start + at
            self.remains = data_end(segment, at) > at
        else:
            self.end = segment.end
            self.damages.append(Damage(segment.start + at, segment.end, self._reason(segment, at)))

    def _end_before_blank(self, begin: int, blank: int) -> int:
        """Where a log ends whose last file, from ``begin`` on, has a blank record and nothing behind it: damage just
        before that has nothing behind it either."""
        end = blank
        while self.damages and self.damages[-1].end == end > begin:
            end = max(self.damages.pop().start, begin)
            self.remains = True
        return end

    @staticmethod
    def _is_blank(segment: Segment, at: int) -> bool:
        rest = segment.size - at
        if rest < 8:
            return True
        return _bytes_of(segment, at, at + 8) == rest.to_bytes(4, "big") + MAGIC_BLANK.to_bytes(4, "big")

    def _following(self, segment: Segment, at: int) -> int | None:
        """Where the next sound record or the blank one begins after an unsound one at ``at``."""
        damaged = record_at(segment, at, check_crc=False)
        if damaged is not None:  # its lengths agree, so they are right; its body may hold the bytes of a record
            jump = at + damaged.size
            if self._begins(segment, jump):
                return jump
        candidates = (candidate for candidate in magics(segment, at + 4) if candidate > at)
        return next((candidate for candidate in candidates if self._begins(segment, candidate)), None)

    def _begins(self, segment: Segment, at: int) -> bool:
        self._reached(segment.start + at)
        if segment.size - at >= 8 and self._is_blank(segment, at):
            return True
        record = record_at(segment, at, check_crc=self._check_crc)
        return record is not None and not self._is_torn(segment, at, record)

    def _is_torn(self, segment: Segment, at: int, record: Record) -> bool:
        """Whether a sector may never have come to the disk, or only as it was while the record was being written: then
        the properties, which no CRC covers, are empty up to its end. All else does not fit together then."""
        text = record.properties_text
        end = at + record.size
        if b"\0" not in text or self._torn_from is None or segment.start + end <= self._torn_from:
            return False
        begin = end - len(text)
        ends = range(begin - begin % SECTOR + SECTOR, end + 1, SECTOR)
        if any(not text[each - begin - 1] for each in ends):
            return True
        return not text[-1] and not any(_bytes_of(segment, end, end + -end % SECTOR))

    @staticmethod
    def _reason(segment: Segment, at: int) -> str:
        head = _bytes_of(segment, at, at + 36)
        magic = int.from_bytes(head[4:8], "big")
        if not any(head):
            return "zeros where a record belongs"
        if magic not in (MAGIC_V1, MAGIC_V2):
            return f"no record begins here (magic {magic:#010x})"
        if int.from_bytes(head[28:36], "big") != segment.start + at:
            return "the record does not store its own offset"
        return "the record's lengths or its body's CRC are wrong"


def _bytes_of(segment: Segment, start: int, stop: int) -> bytes:
    return segment.read(start, min(stop, segment.size) - start, wait=True)


def record_at(segment: Segment, at: int, *, check_crc: bool = True) -> Record | None:
    """The sound record that begins there in a file, as ``sound_record``."""
    size = int.from_bytes(_bytes_of(segment, at, at + 4), "big")
    if not MIN_RECORD_SIZE <= size <= min(_LARGEST, segment.size - at):
        return None
    data = _bytes_of(segment, at, at + size)
    return sound_record(data, 0, segment.start + at, check_crc=check_crc)


def magics(segment: Segment, at: int) -> Iterator[int]:
    """Where a record or a blank one would begin by the magics that lie at or after ``at``, in order."""
    for start, stop in segment.extents(at):
        for begin in range(max(start, at), stop, _STRIPE):
            end = min(begin + _STRIPE, stop)
            data = _bytes_of(segment, begin, end + 3)
            if data == _ZEROS[: len(data)]:
                continue
            hits = []
            for magic in _MAGICS:
                hit = data.find(magic)
                while hit >= 0:
                    if begin + hit < end:
                        hits.append(begin + hit - 4)
                    hit = data.find(magic, hit + 1)
            yield from sorted(hits)


def data_end(segment: Segment, at: int) -> int:
    """Where the last byte other than zero ends behind ``at``; ``at`` when there is none."""
    for start, stop in reversed(segment.extents(at)):
        position = stop
        while position > max(start, at):
            begin = max(position - _STRIPE, start, at)
            data = _bytes_of(segment, begin, position)
            if data != _ZEROS[: position - begin]:
                return begin + len(data.rstrip(b"\0"))
            position = begin
    return at


def records_back(log: CommitLog, end: int) -> Iterator[Record]:
    """The sound records that end at or before ``end``, the last one first, across damage."""
    for segment in reversed(log.segments):
        stop = min(end, segment.end) - segment.start
        for start, extent_end in reversed(segment.extents(0)) if stop > 0 else ():
            yield from _records_back(segment, start, min(extent_end, stop), stop)


def _records_back(segment: Segment, start: int, stop: int, end: int) -> Iterator[Record]:
    """Those that begin in a part of the file and end at or before ``end``."""
    while stop > start:
        begin = max(stop - _STRIPE, start)
        data = _bytes_of(segment, begin, stop + 8)
        for at in sorted(_hits(data, stop - begin), reverse=True):
            size = int.from_bytes(data[at : at + 4], "big")
            if MIN_RECORD_SIZE <= size <= end - begin - at:
                whole = _bytes_of(segment, begin + at, begin + at + size)
                record = sound_record(whole, 0, segment.start + begin + at)
                if record is not None:
                    yield record
                    end = begin + at
        stop = begin


def _hits(data: bytes, count: int) -> Iterator[int]:
    """Where among the first ``count`` bytes a record would begin by the magic behind its size."""
    for magic in _MAGICS[:2]:
        hit = data.find(magic, 4)
        while 0 <= hit < count + 4:
            yield hit - 4
            hit = data.find(magic, hit + 1)


def find_record(log: CommitLog, offset: int) -> int | None:
    """Where the first sound record at or after ``offset`` begins, looking within its file only."""
    segment = log.segment_of(offset)
    if segment is None:
        return None
    at = offset - segment.start
    for candidate in magics(segment, at):
        if candidate >= at and record_at(segment, candidate) is not None:
            return segment.start + candidate
    return None
