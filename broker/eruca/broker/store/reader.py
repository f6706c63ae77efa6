"""The reader: the messages of a queue from an offset on, by filter (DefaultMessageStore.getMessage in RocketMQ).

Owns the rules of getMessage. Knows units and the log's bytes; checks records of an earlier run before it returns them.
Invariant: a returned buffer holds whole records of the queue asked for, in order, each slot at most once.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from eruca.broker.store import native
from eruca.broker.store.commit_log import CommitLog
from eruca.broker.store.config import StoreConfig
from eruca.broker.store.consume_queue import UNIT_FORM, ConsumeQueue
from eruca.broker.store.queue_table import QueueTable
from eruca.broker.store.results import FILTER_REACH, GetStatus, Got, Matcher
from eruca.broker.store.scan import sound_record
from eruca.broker.store.segment import NotInMemory

_CODE = struct.Struct(">q")
_FEW = 32
"""So many tags are looked for one by one in each unit."""
_TOGETHER = 512 << 10
"""Records on the disk that lie within so many bytes are read in one go, with what lies between them."""
_AT_LEAST = 64
"""So many records are read together where others lie too far away; fewer are better read one by one."""
_new_got = tuple.__new__


@lru_cache(maxsize=1024)
def _unpacker(count: int) -> Callable[[bytes], tuple[int, ...]]:
    return struct.Struct(">" + "qi8x" * count).unpack


@lru_cache(maxsize=FILTER_REACH + 1)
def _codes(count: int) -> Callable[[bytes], tuple[int, ...]]:
    return struct.Struct(">" + "12xq" * count).unpack


class _Near(NamedTuple):
    """A part of the log that is at hand; ``end`` is a commit log offset, as ``start`` is."""

    start: int
    end: int
    data: memoryview | bytes


_NOWHERE = _Near(0, 0, b"")


class ReadLimits:
    """When a reply is full: bytes and messages in memory and on the disk, and where memory ends."""

    __slots__ = ("disk_bytes", "disk_count", "memory", "memory_bytes", "memory_count")

    def __init__(self, config: StoreConfig, physical_memory: int) -> None:
        self.memory_bytes = config.max_transfer_bytes_on_message_in_memory
        self.memory_count = config.max_transfer_count_on_message_in_memory
        self.disk_bytes = config.max_transfer_bytes_on_message_in_disk
        self.disk_count = config.max_transfer_count_on_message_in_disk
        self.memory = physical_memory * config.access_message_in_memory_max_ratio // 100


class Reader:
    """Reads queues."""

    def __init__(self, log: CommitLog, queues: QueueTable, limits: ReadLimits) -> None:
        self.damaged = 0
        """Slots met whose record cannot be read or is not the one that belongs there."""
        self.on_damage: Callable[[str, int, int, int], None] | None = None
        """Called with topic, queue id, queue offset and commit log offset, once for each such slot."""
        self.found = 0
        self.missed = 0
        self.messages = 0
        self._log = log
        self._queues = queues
        self.limits = limits
        """May be replaced while the store is open."""
        self._reported: set[tuple[str, int, int]] = set()

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        match: Matcher | None = None,
        *,
        wait: bool = False,
    ) -> Got:
        """Messages from ``offset`` on.

        Raises:
            NotInMemory: the data has to come from the disk, and ``wait`` is False.
        """
        queue = self._queues.queues.get((topic, queue_id))
        if queue is None:
            return Got(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0, [])
        low = queue.min_offset
        high = self._queues.end_of(queue) if wait else queue.tail_start + len(queue.tail) // 20
        if not low <= offset < high:
            self.missed += 1
            return _outside(offset, low, high)
        reach = match.reach if match is not None and (match.codes is not None or match.record is not None) else 0
        limits = self.limits
        count = max(min(max_messages, limits.memory_count), 1)
        units = self._queues.units(queue, offset, max(count, reach), wait=wait)
        total = len(units) // 20
        if not total:
            self.missed += 1
            per_file = self._queues.file_size // 20
            return Got(GetStatus.OFFSET_FOUND_NULL, min(offset - offset % per_file + per_file, high), low, high, [])
        first = int.from_bytes(units[:8], "big")
        log = self._log
        slow = log.position - first > limits.memory
        if slow:
            count = min(count, limits.disk_count)
        codes = match.codes if match is not None else None
        if native.on and not queue.lost and (match is None or match.record is None):
            quick = self._natively(queue, offset, units, codes, count, slow=slow, wait=wait)
            if quick is not None:
                if slow:  # of the last one that was looked at: of the one that was too much, where one was
                    looked = int.from_bytes(units[quick[2] * 20 : quick[2] * 20 + 8], "big")
                    slow = log.position - looked > limits.memory
                return self._got(offset, low, high, *quick, slow=slow)
        plain = not slow and offset >= queue.checked_from and not queue.lost
        if not reach and first < log.hot_from and not native.on:
            units = _close(units, first)
            total = len(units) // 20
        if plain and not reach:
            flat = _unpacker(total)(units)
            span = flat[-2] + flat[-1] - first
            fits = span <= limits.memory_bytes and span == sum(flat[1::2])
            whole = log.bytes_at(first, span, wait=wait) if fits else None
            if whole is not None:
                buffers, size = [whole], span
            else:
                buffers, size = self._gather(flat, wait)
            if buffers:
                taken = total if whole is not None and size == span else len(buffers)
                self.found += 1
                self.messages += taken
                return _new_got(Got, (GetStatus.FOUND, offset + taken, low, high, buffers, taken, size, False))
        chosen = range(total) if codes is None else _chosen(units, total, codes)
        return self._collect(queue, offset, units, chosen, count, match, wait)

    def _natively(
        self,
        queue: ConsumeQueue,
        offset: int,
        units: bytes,
        codes: frozenset[int] | None,
        count: int,
        *,
        slow: bool,
        wait: bool,
    ) -> tuple[bytes, int, int] | None:
        """What ``native.take`` finds in memory, or ``native.fetch`` in the file: records of one file, all of them
        ``slow`` or none; None where there is something special about one."""
        log, limits = self._log, self.limits
        first = int.from_bytes(units[:8], "big")
        segment = log.segment_of(first)
        if segment is None or (codes is not None and len(codes) > _FEW):
            return None
        packed = None if codes is None else b"".join(map(_CODE.pack, codes))
        start, bound = segment.start, log.position - limits.memory
        low, high = (start, bound) if slow else (max(start, bound), log.position)
        high = min(segment.end, high)
        room = limits.disk_bytes if slow else limits.memory_bytes
        hot = log.hot_from
        if not slow and first >= hot and offset >= queue.checked_from:
            return native.take(units, packed, count, room, segment.view, start, max(low, hot), high)
        own = queue.topic.encode(), queue.queue_id, offset, queue.checked_from
        try:
            return native.fetch(units, packed, count, room, segment.fd, start, low, high, wait, *own)
        except BlockingIOError:
            raise NotInMemory from None
        except OSError:  # of which of the records, is found out one by one
            return None

    def _got(self, offset: int, low: int, high: int, found: bytes, messages: int, scanned: int, *, slow: bool) -> Got:
        """The answer of a read in which nothing was wrong."""
        if not messages:
            self.missed += 1
            return Got(GetStatus.NO_MATCHED_MESSAGE, offset + scanned, low, high, [])
        self.found += 1
        self.messages += messages
        return _new_got(Got, (GetStatus.FOUND, offset + scanned, low, high, [found], messages, len(found), slow))

    def _near(self, start: int, end: int, wait: bool) -> _Near:
        """The log between two places if that is on the disk and little enough; else nowhere."""
        if start >= self._log.hot_from or not 0 < end - start <= _TOGETHER:
            return _NOWHERE
        try:
            data = self._log.bytes_at(start, end - start, wait=wait)
        except OSError:  # perhaps not where a record lies
            return _NOWHERE
        return _NOWHERE if data is None else _Near(start, end, memoryview(data))

    def _gather(self, flat: tuple[int, ...], wait: bool) -> tuple[list[memoryview | bytes], int]:
        """The records of units that need no test, up to the first that is not there or too much."""
        log = self._log
        most = self.limits.memory_bytes
        hot = log.hot_from
        buffers: list[memoryview | bytes] = []
        add = buffers.append
        size = 0
        start, end, view = self._near(flat[0], flat[-2] + flat[-1], wait)
        numbers = iter(flat)
        for physical, length in zip(numbers, numbers, strict=True):
            size += length
            if size > most and buffers:
                return buffers, size - length
            if physical < hot and not (start <= physical and physical + length <= end):
                data = log.bytes_at(physical, length, wait=wait)
                if data is None:
                    return buffers, size - length
                add(data)
                continue
            if not start <= physical < end:
                segment = log.segment_of(physical)
                if segment is None:
                    return buffers, size - length
                start, end, view = segment.start, segment.end, segment.view
            at = physical - start
            add(view[at : at + length])
        return buffers, size

    def _collect(
        self,
        queue: ConsumeQueue,
        offset: int,
        units: bytes,
        chosen: range | list[int],
        count: int,
        match: Matcher | None,
        wait: bool,
    ) -> Got:
        """The records of the chosen units that are there, belong and match."""
        limits = self.limits
        test = match.record if match is not None else None
        near = _NOWHERE
        if chosen:
            last = UNIT_FORM.unpack_from(units, chosen[min(count, len(chosen)) - 1] * 20)
            near = self._near(int.from_bytes(units[chosen[0] * 20 :][:8], "big"), last[0] + last[1], wait)
        buffers: list[memoryview | bytes] = []
        size = 0
        scanned = len(units) // 20
        removing = slow = False
        for number in chosen:
            physical, length, _ = UNIT_FORM.unpack_from(units, number * 20)
            slow = self._log.position - physical > limits.memory
            most = limits.disk_bytes if slow else limits.memory_bytes
            if buffers and (len(buffers) >= count or size + length > most):
                scanned = number
                break
            index = offset + number
            if index in queue.lost:
                continue
            if near.start <= physical and 0 < length <= near.end - physical:
                data: memoryview | bytes | None = near.data[physical - near.start : physical - near.start + length]
            else:
                data = self._log.bytes_at(physical, length, wait=wait)
            if index < queue.checked_from and not self._belongs(queue, index, physical, data):
                removing = True
                continue
            if data is None:
                removing = True
                continue
            if test is None or test(data):
                buffers.append(data)
                size += length
        low = queue.min_offset
        high = queue.max_offset
        if buffers:
            self.found += 1
            self.messages += len(buffers)
            return Got(GetStatus.FOUND, offset + scanned, low, high, buffers, len(buffers), size, slow)
        self.missed += 1
        status = GetStatus.MESSAGE_WAS_REMOVING if removing else GetStatus.NO_MATCHED_MESSAGE
        return Got(status, offset + scanned, low, high, [])

    def _belongs(self, queue: ConsumeQueue, index: int, physical: int, data: memoryview | bytes | None) -> bool:
        """Whether ``data`` is the unchanged record of this slot; a wrong one is counted and reported."""
        record = sound_record(data, 0, physical) if data is not None else None
        whole = record is not None and data is not None and record.size == len(data)
        if record is not None and whole and record.topic == queue.topic and record.queue_id == queue.queue_id:
            if record.queue_offset == index:
                return True
            own = self._queues.unit(queue, record.queue_offset)
            if own is not None and own[0] == physical:
                return False  # the slot repeats a neighbour: its own record was lost, and said to be
        if index < queue.min_offset:
            return False  # deleted while it was read
        slot = (queue.topic, queue.queue_id, index)
        if slot not in self._reported:
            self._reported.add(slot)
            self.damaged += 1
            if self.on_damage is not None:
                self.on_damage(*slot, physical)
        return False


def _close(units: bytes, first: int) -> bytes:
    """As many units as have records within ``_TOGETHER`` bytes from ``first`` on; all where those are too few."""

    def end_of(number: int) -> int:
        position, size, _ = UNIT_FORM.unpack_from(units, number * 20)
        return int(position + size)

    total = len(units) // 20
    if end_of(total - 1) - first <= _TOGETHER:
        return units
    close = bisect_right(range(total), first + _TOGETHER, key=end_of)
    return units[: close * 20] if close >= _AT_LEAST else units


def _outside(offset: int, low: int, high: int) -> Got:
    if high == 0:
        return Got(GetStatus.NO_MESSAGE_IN_QUEUE, 0, low, high, [])
    if offset < low:
        return Got(GetStatus.OFFSET_TOO_SMALL, low, low, high, [])
    if offset == high:
        return Got(GetStatus.OFFSET_OVERFLOW_ONE, offset, low, high, [])
    return Got(GetStatus.OFFSET_OVERFLOW_BADLY, high, low, high, [])


def _chosen(units: bytes, total: int, codes: frozenset[int]) -> list[int]:
    """Positions of the units whose tag code is wanted."""
    if len(codes) == 1:
        wanted = _CODE.pack(next(iter(codes)))
        found = []
        at = units.find(wanted)
        while at >= 0:
            if at % 20 == 12:
                found.append(at // 20)
                at = units.find(wanted, at + 20)
            else:
                at = units.find(wanted, at + 1)
        return found
    return [number for number, code in enumerate(_codes(total)(units)) if code in codes]
