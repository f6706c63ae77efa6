"""Dispatch: what follows the log outside the request, consume queue units and index entries.

Owns the requests that appends leave behind and the rules for tag codes and keys. Knows the queue
table and the index, no sockets. Invariant: requests are worked off in the order of the log; after
``drain`` everything before ``position`` is in its queue (in memory at least) and in the index, or
waits for that while the disk has no room, which is logged once.
"""

from __future__ import annotations

from binascii import Error as BinasciiError
from binascii import unhexlify
from collections.abc import Callable
from typing import Final

import structlog

from eruca.broker.store import native
from eruca.broker.store.consume_queue import UNIT_FORM, ConsumeQueue
from eruca.broker.store.index import Index
from eruca.broker.store.index_file import IndexEntry, index_hash
from eruca.broker.store.queue_table import QueueTable
from eruca.protocol.message import TRANSACTION_MASK, TRANSACTION_ROLLBACK, ascii_hash, java_hash
from eruca.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC

Arrival = Callable[[str, int, int, list[int]], None]
"""Called once per queue and round with topic, queue id, new max offset and the tag codes that came."""

log = structlog.get_logger("eruca.broker")

_KEPT: Final = 4096
_TIMED: Final = (SCHEDULE_TOPIC, TIMER_TOPIC)
"""Topics whose tag codes are times."""


def _pairs(power: int) -> list[int]:
    """By byte value: what its two upper-case hexadecimal digits add to a hash, times 31**power."""
    return [((31 * text[0] + text[1]) * 31**power) & 0xFFFFFFFF for text in (b"%02X" % n for n in range(256))]


_PAIRS_6, _PAIRS_4, _PAIRS_2, _PAIRS_0 = (_pairs(power) for power in (6, 4, 2, 0))


Request = tuple[ConsumeQueue, int, int, bytes, int, int, int]
"""One record to dispatch: queue, commit log offset, size, properties text, queue offset, store time, sysFlag."""


def find_property(properties: bytes, wanted: bytes) -> bytes:
    """The value of ``wanted`` (a name with its 0x01) in a properties text, empty without one."""
    at = properties.rfind(wanted)
    while at > 0 and properties[at - 1] != 2:
        at = properties.rfind(wanted, 0, at)
    if at < 0:
        return b""
    at += len(wanted)
    end = properties.find(b"\x02", at)
    return properties[at:] if end < 0 else properties[at:end]


def _unhex(text: bytes) -> bytes | None:
    try:
        return unhexlify(text)
    except BinasciiError:
        return None


class KeyHashes:
    """Hash codes of keys, the fixed head of a producer's unique ids computed once."""

    def __init__(self) -> None:
        self._heads: dict[bytes, int] = {}
        self._steps = [pow(31, length, 1 << 32) for length in range(128)]

    def head(self, key: bytes) -> int:
        """What the first 24 of 32 characters add to a key's hash."""
        if len(self._heads) >= _KEPT:
            self._heads.clear()
        head = key[:24]
        known = self._heads[head] = ascii_hash(head) * self._steps[8]
        return known

    def of(self, queue: ConsumeQueue, properties: bytes) -> list[int]:
        """The index hashes of a record's keys: the unique one, then the business keys."""
        found: list[int] = []
        at = properties.find(b"UNIQ_KEY\x01")
        if at == 0 or (at > 0 and properties[at - 1] == 2):
            end = properties.find(b"\x02", at)
            key = properties[at + 9 :] if end < 0 else properties[at + 9 : end]
            fixed = len(key) == 32 and key.isascii() and key.upper() == key
            if fixed and (last := _unhex(key[24:])) is not None:
                known = self._heads.get(key[:24]) or self.head(key)
                a, b, c, d = last
                value = queue.index_shifted + known + _PAIRS_6[a] + _PAIRS_4[b] + _PAIRS_2[c] + _PAIRS_0[d]
                value &= 0xFFFFFFFF
                found.append(value if value < 0x80000000 else index_hash(value))
            elif key:
                found.append(self.plain(queue.index_prefix, key))
        if properties.rfind(b"KEYS\x01") >= 0:
            for key in find_property(properties, b"KEYS\x01").split(b" "):
                if key:
                    found.append(self.plain(queue.index_prefix, key))
        return found

    def plain(self, prefix: int, key: bytes) -> int:
        """Index hash of ``topic#key``; ``prefix`` is the hash of ``topic#``."""
        length = len(key)
        if key.isascii():
            step = self._steps[length] if length < 128 else pow(31, length, 1 << 32)
            return index_hash((prefix * step + ascii_hash(key)) & 0xFFFFFFFF)
        text = key.decode("utf-8", "replace")
        units = len(text.encode("utf-16-be", "surrogatepass")) // 2
        return index_hash((prefix * pow(31, units, 1 << 32) + java_hash(text)) & 0xFFFFFFFF)


class Dispatch:
    """The follower of the log."""

    def __init__(self, queues: QueueTable, index: Index | None, delay_levels: tuple[int, ...]) -> None:
        self.pending: list[Request] = []
        self.position = 0
        """End of the last dispatched record."""
        self.on_arrival: Arrival | None = None
        self.lost_slots: list[tuple[str, int, int]] = []
        """Slots that were filled because the record is missing: topic, queue, queue offset."""
        self.log_begins_later = False
        """Whether the oldest part of the log has been deleted."""
        self._queues = queues
        self._index = index
        self._delay_levels = delay_levels
        self._tags: dict[bytes, int] = {b"": 0}
        self.hashes = KeyHashes()
        self._unindexed: list[Request] = []
        """What waits for the index, which cannot be written at present (a full disk)."""

    def tags_code(self, topic: str, properties: bytes, store_timestamp: int) -> int:
        """What the consume queue keeps for a record: the tag's hash; for a delayed one its due time."""
        if topic == SCHEDULE_TOPIC:
            level = find_property(properties, b"DELAY\x01")
            if level.isdigit() and int(level) > 0:
                number = min(int(level), len(self._delay_levels))
                return store_timestamp + (self._delay_levels[number - 1] if number else 1000)
        elif topic == TIMER_TOPIC:
            due = find_property(properties, b"TIMER_OUT_MS\x01")
            if due.isdigit() and len(due) < 16:
                return int(due)
        tags = find_property(properties, b"TAGS\x01")
        code = self._tags.get(tags)
        if code is None:
            if len(self._tags) >= _KEPT:
                self._tags = {b"": 0}
            code = self._tags[tags] = java_hash(tags.decode("utf-8", "replace"))
        return code

    def drain(self, limit: int | None = None) -> int:
        """Dispatch what waits, with a ``limit`` only records that end at or before it.

        Returns the number of records.
        """
        pending = self.pending
        if not pending:
            return 0
        if limit is not None and pending[-1][1] + pending[-1][2] > limit:
            count = next(number for number, one in enumerate(pending) if one[1] + one[2] > limit)
            if count == 0:
                return 0
            work, self.pending[:] = pending[:count], pending[count:]
        else:
            work = pending[:]
            pending.clear()
        self._queue_up(work)
        if self._index is not None:
            self._index_all(work, self._index)
        self.position = work[-1][1] + work[-1][2]
        return len(work)

    def _queue_up(self, work: list[Request]) -> None:
        pack = UNIT_FORM.pack
        tags = self._tags
        dirty = self._queues.dirty
        touched: set[ConsumeQueue] = set()
        done = native.follow(work, touched, _TIMED) if native.on else 0
        for queue, offset, size, properties, queue_offset, store_timestamp, sys_flag in work[done:]:
            if sys_flag & 4:  # prepared and rollback (bits 4 and 12) have no unit
                continue
            if queue.topic in _TIMED:
                code = self.tags_code(queue.topic, properties, store_timestamp)
            else:
                at = properties.rfind(b"TAGS\x01")
                if at < 0:
                    code = 0
                else:
                    end = properties.find(b"\x02", at)
                    found = tags.get(properties[at + 5 :] if end < 0 else properties[at + 5 : end])
                    if found is None or (at and properties[at - 1] != 2):
                        code = self.tags_code(queue.topic, properties, store_timestamp)
                        tags = self._tags
                    else:
                        code = found
            tail = queue.tail
            if queue.tail_start + len(tail) // 20 != queue_offset and not self._close_gap(
                queue, queue_offset, pack(offset, size, code)
            ):
                continue
            tail += pack(offset, size, code)
            queue.arrived.append(code)
            touched.add(queue)
        dirty |= touched
        arrival = self.on_arrival
        for queue in touched:
            if arrival is not None:
                arrival(queue.topic, queue.queue_id, queue.tail_start + len(queue.tail) // 20, queue.arrived)
            queue.arrived = []
            self._queues.force_tail(queue)

    def _close_gap(self, queue: ConsumeQueue, queue_offset: int, unit: bytes) -> bool:
        """Fill the slots between a queue's end and a later message; False for one that is there already.

        A queue whose older messages were deleted begins at the message; else each lost slot
        repeats the unit of the next message that is left.
        """
        end = queue.max_offset
        if queue_offset < end:
            known = self._queues.unit(queue, queue_offset)
            if known is None or known[0] >= UNIT_FORM.unpack(unit)[0]:
                return False
            self._queues.write_out(queue)  # the topic was deleted and made again: the later message holds
            self._queues.cut(queue, queue_offset)
            return True
        if end == 0 and self.log_begins_later:
            self._queues.fill_head(queue, queue_offset)
        else:
            queue.tail += unit * (queue_offset - end)
            queue.lost.update(range(end, queue_offset))
            self.lost_slots += [(queue.topic, queue.queue_id, slot) for slot in range(end, queue_offset)]
        return True

    def _index_all(self, work: list[Request], index: Index) -> None:
        waited = bool(self._unindexed)
        if waited:
            work = self._unindexed + work
            self._unindexed = []
        entries = native.keys(work) if native.on else None
        if entries is None:
            entries = self._entries(work)
        try:
            index.put(entries)
        except OSError as fault:
            self._unindexed = work
            if not waited:
                log.error("no_room_in_index", fault=fault.strerror, consequence="new messages are not found by key")
        else:
            if waited:
                log.info("room_in_index", messages=len(work))

    def _entries(self, work: list[Request]) -> list[IndexEntry]:
        entries: list[IndexEntry] = []
        hashes = self.hashes.of
        for queue, offset, _, properties, _, store_timestamp, sys_flag in work:
            if sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
                continue
            for value in hashes(queue, properties):
                entries.append((value, offset, store_timestamp))
        return entries

    @property
    def settled(self) -> bool:
        """Whether nothing waits, neither for its queue nor for the index."""
        return not self.pending and not self._unindexed
