"""The reader: the messages of a queue from an offset on, by filter (DefaultMessageStore.getMessage in RocketMQ).

Owns the rules of getMessage. Knows units and the log's bytes; checks records of an earlier run before it returns them.
Invariant: a returned buffer holds whole records of the queue asked for, in order, each unit at most once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from eruca.broker.store import native, pure
from eruca.broker.store.commit_log import CommitLog
from eruca.broker.store.config import StoreConfig
from eruca.broker.store.consume_queue import UNIT_FORM, ConsumeQueue
from eruca.broker.store.file_system import NotInMemory
from eruca.broker.store.layout import Taken
from eruca.broker.store.queue_table import QueueTable
from eruca.broker.store.results import GetStatus, Got, Matcher
from eruca.broker.store.scan import sound_record

_CODE = struct.Struct(">q")
_FEW = 32
"""More tags than this are compared one by one in Python."""
_new = tuple.__new__


class _Plan(NamedTuple):
    """A read that lies within its queue."""

    queue: ConsumeQueue
    offset: int
    low: int
    high: int
    units: bytes
    """From ``offset`` on, as many as the read looks at."""
    codes: bytes | None
    """Hash codes of the wanted tags, 8 bytes each; None for all."""
    test: Callable[[memoryview | bytes], bool] | None
    """The test of whole records, None without one."""
    most: int
    """The most messages to return."""
    slow: bool
    """Whether the first record lies too far back to be in memory."""
    wait: bool


class _Near(NamedTuple):
    """A part of the log that was read from the disk; ``start`` and ``end`` are commit log offsets."""

    start: int
    end: int
    data: memoryview | bytes


_NOWHERE = _Near(0, 0, b"")


class ReadLimits:
    """The most bytes and messages of a reply, from memory and from the disk, and the size of the memory."""

    __slots__ = ("disk_bytes", "disk_count", "memory", "memory_bytes", "memory_count", "together")

    def __init__(self, config: StoreConfig, physical_memory: int) -> None:
        self.memory_bytes = config.max_transfer_bytes_on_message_in_memory
        self.memory_count = config.max_transfer_count_on_message_in_memory
        self.disk_bytes = config.max_transfer_bytes_on_message_in_disk
        self.disk_count = config.max_transfer_count_on_message_in_disk
        self.together = 512 << 10
        """Records on the disk within this many bytes are read at once, with what lies between them."""
        self.memory = physical_memory * config.access_message_in_memory_max_ratio // 100


class Reader:
    """Reads queues."""

    def __init__(self, log: CommitLog, queues: QueueTable, limits: ReadLimits) -> None:
        self.damaged = 0
        """Number of units whose record cannot be read or is another one."""
        self.on_damage: Callable[[str, int, int, int], None] | None = None
        """Called with topic, queue id, queue offset and commit log offset, once for each such unit."""
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

        There are four cases:

        1. The offset is outside the queue: the answer says where to continue.
        2. The file of its unit is missing: continue at the next file.
        3. No filter looks at records: those of one file that are all in memory, or all not, are read together.
        4. Otherwise each record is read by itself.

        Raises:
            NotInMemory: the data has to come from the disk, and ``wait`` is False.
        """
        queue = self._queues.queues.get((topic, queue_id))
        if queue is None:
            return Got(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0, [])
        low = queue.min_offset
        high = self._queues.end_of(queue) if wait else queue.tail_start + len(queue.tail) // 20
        if not low <= offset < high:  # 1.
            self.missed += 1
            return _outside(offset, low, high)
        plan = self._plan(queue, offset, low, high, max_messages, match, wait)
        if not plan.units:  # 2.
            self.missed += 1
            per_file = self._queues.file_size // 20
            return Got(GetStatus.OFFSET_FOUND_NULL, min(offset - offset % per_file + per_file, high), low, high, [])
        got = None
        if plan.test is None and not queue.lost and (plan.codes is None or len(plan.codes) <= 8 * _FEW):
            got = self._read_together(plan)  # 3.
        return self._read_each(plan) if got is None else got  # 4.

    def _plan(
        self,
        queue: ConsumeQueue,
        offset: int,
        low: int,
        high: int,
        max_messages: int,
        match: Matcher | None,
        wait: bool,
    ) -> _Plan:
        limits = self.limits
        count = max(min(max_messages, limits.memory_count), 1)
        codes = test = None
        looked_at = count
        if match is not None:
            test = match.record
            codes = None if match.codes is None else b"".join(map(_CODE.pack, match.codes))
            if codes is not None or test is not None:
                looked_at = max(count, match.reach)
        units = self._queues.units(queue, offset, looked_at, wait=wait)
        slow = self._log.position - int.from_bytes(units[:8], "big") > limits.memory
        if slow:
            count = min(count, limits.disk_count)
        return _new(_Plan, (queue, offset, low, high, units, codes, test, count, slow, wait))

    def _read_together(self, plan: _Plan) -> Got | None:
        """The records of one file that are all ``slow`` or all in memory; None where one needs a closer look.

        Raises:
            NotInMemory: as ``get``.
        """
        queue, offset, _, _, units, codes, _, most, slow, wait = plan
        log, limits = self._log, self.limits
        first = int.from_bytes(units[:8], "big")
        segment = log.segment_of(first)
        if segment is None:
            return None
        start, bound = segment.start, log.position - limits.memory
        low, high = (start, bound) if slow else (max(start, bound), log.position)
        high = min(segment.end, high)
        hot = log.hot_from
        if not slow and first >= hot and offset >= queue.checked_from:
            low = max(low, hot)
            found = native.take(units, codes, most, limits.memory_bytes, segment.view, start, low, high)
            return None if found is None else self._got(plan, found)
        try:
            found = native.fetch(
                units,
                codes,
                most,
                limits.disk_bytes if slow else limits.memory_bytes,
                segment.fd,
                start,
                low,
                high,
                wait,
                queue.topic.encode(),
                queue.queue_id,
                offset,
                queue.checked_from,
            )
        except BlockingIOError:
            raise NotInMemory from None
        except OSError:  # reading the records one by one shows which of them is damaged
            return None
        return None if found is None else self._got(plan, found)

    def _got(self, plan: _Plan, found: Taken) -> Got:
        """The answer of a read in which nothing was wrong."""
        buffers, messages, scanned, size = found
        _, offset, low, high, _, _, _, _, slow, _ = plan
        if not messages:
            self.missed += 1
            return Got(GetStatus.NO_MATCHED_MESSAGE, offset + scanned, low, high, [])
        if slow:  # as the last record is that was looked at: the one that was too much, if there was one
            looked = int.from_bytes(plan.units[scanned * 20 : scanned * 20 + 8], "big")
            slow = self._log.position - looked > self.limits.memory
        self.found += 1
        self.messages += messages
        return _new(Got, (GetStatus.FOUND, offset + scanned, low, high, buffers, messages, size, slow))

    def _near(self, start: int, end: int, wait: bool) -> _Near:
        """The log between two offsets, read at once, if that is on the disk and not too much; else nothing."""
        if start >= self._log.hot_from or not 0 < end - start <= self.limits.together:
            return _NOWHERE
        try:
            data = self._log.bytes_at(start, end - start, wait=wait)
        except OSError:  # perhaps only between the records
            return _NOWHERE
        return _NOWHERE if data is None else _Near(start, end, memoryview(data))

    def _read_each(self, plan: _Plan) -> Got:
        """The records that are there, belong to the queue and match, looked at one by one."""
        queue, offset, units, test = plan.queue, plan.offset, plan.units, plan.test
        limits = self.limits
        scanned = len(units) // 20
        chosen = range(scanned) if plan.codes is None else pure.wanted(units, plan.codes, scanned)
        near = _NOWHERE
        if chosen:
            last = UNIT_FORM.unpack_from(units, chosen[min(plan.most, len(chosen)) - 1] * 20)
            near = self._near(int.from_bytes(units[chosen[0] * 20 :][:8], "big"), last[0] + last[1], plan.wait)
        buffers: list[memoryview | bytes] = []
        size = 0
        removing = slow = False
        for number in chosen:
            physical, length, _ = UNIT_FORM.unpack_from(units, number * 20)
            slow = self._log.position - physical > limits.memory
            most = limits.disk_bytes if slow else limits.memory_bytes
            if buffers and (len(buffers) >= plan.most or size + length > most):
                scanned = number
                break
            index = offset + number
            if index in queue.lost:
                continue
            if near.start <= physical and 0 < length <= near.end - physical:
                data: memoryview | bytes | None = near.data[physical - near.start : physical - near.start + length]
            else:
                data = self._log.bytes_at(physical, length, wait=plan.wait)
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
        """Whether ``data`` is the unchanged record of this unit; a wrong one is counted and reported."""
        record = sound_record(data, 0, physical) if data is not None else None
        whole = record is not None and data is not None and record.size == len(data)
        if record is not None and whole and record.topic == queue.topic and record.queue_id == queue.queue_id:
            if record.queue_offset == index:
                return True
            own = self._queues.unit(queue, record.queue_offset)
            if own is not None and own[0] == physical:
                return False  # the unit repeats a neighbour: its own record was lost, and said to be
        if index < queue.min_offset:
            return False  # deleted while it was read
        unit = (queue.topic, queue.queue_id, index)
        if unit not in self._reported:
            self._reported.add(unit)
            self.damaged += 1
            if self.on_damage is not None:
                self.on_damage(*unit, physical)
        return False


def _outside(offset: int, low: int, high: int) -> Got:
    if high == 0:
        return Got(GetStatus.NO_MESSAGE_IN_QUEUE, 0, low, high, [])
    if offset < low:
        return Got(GetStatus.OFFSET_TOO_SMALL, low, low, high, [])
    if offset == high:
        return Got(GetStatus.OFFSET_OVERFLOW_ONE, offset, low, high, [])
    return Got(GetStatus.OFFSET_OVERFLOW_BADLY, high, low, high, [])
