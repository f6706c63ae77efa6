"""The functions of the native step in Python, for machines without a C compiler.

Each function has the name, the arguments and the results of its counterpart in ``_native.pyi``; ``native`` chooses.
Tests compare both, byte for byte.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Sequence
from errno import EAGAIN
from functools import lru_cache
from itertools import accumulate
from operator import add
from typing import Final, NamedTuple

from eruca.broker.store.consume_queue import UNIT_FORM, ConsumeQueue, tag_code
from eruca.broker.store.file_system import NotInMemory, read_at
from eruca.broker.store.layout import CommitForm, HalfPlace, IndexEntry, Request, Taken, Tip, index_hash
from eruca.broker.store.results import FILTER_REACH
from eruca.broker.store.scan import sound_record
from eruca.protocol.errors import ProtocolError
from eruca.protocol.message import (
    BORN_HOST_V6,
    STORE_HOST_V6,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    java_hash,
    units_hash,
)
from eruca.protocol.properties_text import get
from eruca.protocol.record import HEADS, MAGIC_V1, PROPERTIES_MAX, Record, decode_batch, decode_record, pack_into

_UNIT: Final = UNIT_FORM.size
_INDEX_HEADER: Final = 40
_TOGETHER: Final = 64
_GAP: Final = 4096
_TOGETHER_BYTES: Final = 1 << 20
"""Records with at most ``_GAP`` bytes between them are read together, up to about this size."""
_MAX_SECONDS: Final = 0x7FFFFFFF
_SLOT: Final = struct.Struct(">I")
_new_choice = tuple.__new__


# ---- batches


def batch(
    queue: ConsumeQueue,
    entries: bytes,
    extra_properties: bytes,
    memory: mmap.mmap | bytearray,
    at: int,
    position: int,
    room: int,
    max_record: int,
    sys_flag: int,
    born_timestamp: int,
    born_host: bytes,
    store_host: bytes,
    reconsume_times: int,
    now: int,
    /,
) -> tuple[tuple[int, ...], list[Request]] | None:
    """Write the messages of a batch body into the log's memory; None, with nothing written, for one with a fault."""
    try:
        messages = decode_batch(entries)
    except ProtocolError:
        return None
    if at < 0 or not 0 <= room <= len(memory) - at:
        return None
    if len(born_host) != (20 if sys_flag & BORN_HOST_V6 else 8):
        return None
    if len(store_host) != (20 if sys_flag & STORE_HOST_V6 else 8):
        return None
    tail = queue.topic_tail
    added = len(extra_properties) + 1 if extra_properties else 0
    around = HEADS[(sys_flag >> 4) & 3].size + len(tail) + 2 + added
    for _, body, properties in messages:
        size = around + len(body) + len(properties)
        room -= size
        if room < 0 or size > max_record or len(properties) + added > PROPERTIES_MAX:
            return None
    offsets: list[int] = []
    requests: list[Request] = []
    queue_id, queue_offset = queue.queue_id, queue.next_offset
    for flag, body, properties in messages:
        if added:
            apart = b"\x02" if properties and properties[-1] != 2 else b""
            properties = properties + apart + extra_properties
        size = pack_into(
            memory,
            at,
            queue_id,
            flag,
            queue_offset,
            position,
            sys_flag,
            born_timestamp,
            born_host,
            now,
            store_host,
            reconsume_times,
            0,
            body,
            tail,
            properties,
        )
        offsets.append(position)
        requests.append((queue, position, size, properties, queue_offset, now, sys_flag))
        queue_offset += 1
        position += size
        at += size
    return (tuple(offsets), requests) if offsets else None


# ---- commits of transactions


def commits(halves: list[HalfPlace], low: int, tip: Tip, form: CommitForm, /) -> tuple[int, int]:
    """Store the real messages of half messages, and the op messages that close them; how many, and the log's end."""
    position = tip.position
    for number, place in enumerate(halves):
        half = _half_at(place, low, tip, form.half_queue)
        queue = None if half is None else _real_queue(half.properties_text, tip.queues)
        end = None if half is None or queue is None else _commit(half, queue, position, tip, form)
        if end is None:
            return number, position
        position = end
    return len(halves), position


def _half_at(place: HalfPlace, low: int, tip: Tip, queue: ConsumeQueue) -> Record | None:
    """The half message at a place of the log that is in memory."""
    queue_offset, position, size = place
    base = tip.position - tip.at
    if position < max(low, base) or position + size > tip.position:
        return None
    try:
        half = decode_record(bytes(tip.memory[position - base : position - base + size]), check=True)
    except ProtocolError:
        return None
    own = half.size == size and half.physical_offset == position and half.queue_offset == queue_offset
    return (
        half
        if own and half.magic == MAGIC_V1 and half.topic == queue.topic and half.queue_id == queue.queue_id
        else None
    )


_REAL_TOPIC: Final = b"\x02REAL_TOPIC\x01"
_real_place = re.compile(_REAL_TOPIC + rb"([^\x01\x02]+)\x02REAL_QID\x01([0-9]{1,9})").fullmatch


def _real_queue(text: bytes, queues: dict[tuple[str, int], ConsumeQueue]) -> ConsumeQueue | None:
    """The queue that a half message names at the end of its properties, where this broker writes it."""
    if b"TIMER_D" in text or len(text) > PROPERTIES_MAX:
        return None
    key = _key_of(text[max(text.rfind(_REAL_TOPIC), 0) :])
    return None if key is None else queues.get(key)


@lru_cache(maxsize=4096)
def _key_of(end: bytes) -> tuple[str, int] | None:
    found = _real_place(end)
    try:
        return (found[1].decode(), int(found[2])) if found is not None else None
    except UnicodeDecodeError:
        return None


def _commit(half: Record, queue: ConsumeQueue, position: int, tip: Tip, form: CommitForm) -> int | None:
    """Write the two records of a commit; the new end of the log, or None, with nothing written, without room."""
    now, ops, op_flags = tip.now, form.op_queue, form.sys_flag
    flags = half.sys_flag & ~(STORE_HOST_V6 | TRANSACTION_MASK) | TRANSACTION_COMMIT | op_flags & STORE_HOST_V6
    body, properties, op_body = half.body, half.properties_text, b"%d" % half.queue_offset
    size = HEADS[(flags >> 4) & 3].size + len(body) + len(queue.topic_tail) + 2 + len(properties)
    op_size = HEADS[(op_flags >> 4) & 3].size + len(op_body) + len(ops.topic_tail) + 2 + len(form.op_properties)
    if len(body) > tip.max_body or size > tip.max_record or size + op_size > tip.limit - position:
        return None
    at = tip.at + position - tip.position
    queue_offset, op_position = queue.next_offset, position + size
    pack_into(
        tip.memory,
        at,
        queue.queue_id,
        half.flag,
        queue_offset,
        position,
        flags,
        half.born_timestamp,
        half.born_host,
        now,
        form.store_host,
        half.reconsume_times,
        half.physical_offset,
        body,
        queue.topic_tail,
        properties,
    )
    queue.next_offset += 1
    op_offset = ops.next_offset
    pack_into(
        tip.memory,
        at + size,
        ops.queue_id,
        0,
        op_offset,
        op_position,
        op_flags,
        form.born_timestamp,
        form.born_host,
        now,
        form.store_host,
        0,
        0,
        op_body,
        ops.topic_tail,
        form.op_properties,
    )
    ops.next_offset += 1
    tip.pending.append((queue, position, size, properties, queue_offset, now, flags))
    tip.pending.append((ops, op_position, op_size, form.op_properties, op_offset, now, op_flags))
    return op_position + op_size


# ---- reads


@lru_cache(maxsize=FILTER_REACH + 1)
def _places_of(count: int) -> struct.Struct:
    return struct.Struct(">" + "qi8x" * count)


@lru_cache(maxsize=FILTER_REACH + 1)
def _codes_of(count: int) -> struct.Struct:
    return struct.Struct(">" + "12xq" * count)


def wanted(units: bytes, codes: bytes, most: int) -> list[int]:
    """Numbers of the units whose tag code is one of ``codes``: the first ``most``, perhaps more."""
    if len(codes) > 8:
        among = set(struct.unpack(f">{len(codes) // 8}q", codes))
        return [number for number, code in enumerate(_codes_of(len(units) // _UNIT).unpack(units)) if code in among]
    found: list[int] = []
    at = units.find(codes) if codes else -1
    while at >= 0 and len(found) < most:
        if at % _UNIT == 12:
            found.append(at // _UNIT)
            at = units.find(codes, at + _UNIT)
        else:
            at = units.find(codes, at + 1)
    return found


class Choice(NamedTuple):
    """The wanted units: their numbers, and the places and sizes of their records."""

    numbers: Sequence[int]
    positions: tuple[int, ...]
    sizes: tuple[int, ...]
    scanned: int
    """How many units were looked at."""
    size: int
    """Bytes of all these records."""
    adjacent: bool
    """Whether the records are known to lie next to one another, in this order."""


def choose(units: bytes, codes: bytes | None, most: int, room: int, low: int, high: int) -> Choice | None:
    """What ``take`` and ``fetch`` read; None where a record does not lie between ``low`` and ``high``."""
    if len(units) % _UNIT or (codes is not None and len(codes) % 8):
        return None
    scanned, most = len(units) // _UNIT, max(most, 1)
    if codes is None and 0 < scanned <= most:
        numbers: Sequence[int] = range(scanned)
    else:
        numbers = range(scanned) if codes is None else wanted(units, codes, most + 1)
        if not numbers:
            return Choice(numbers, (), (), scanned, 0, adjacent=False)
        if len(numbers) > most:
            scanned, numbers = numbers[most], numbers[:most]
        units = b"".join([units[number * _UNIT : number * _UNIT + _UNIT] for number in numbers])
    flat = _places_of(len(numbers)).unpack(units)
    positions, sizes = flat[::2], flat[1::2]
    size = sum(sizes)
    if size > room or min(sizes) <= 0:
        return _choose_each(numbers, positions, sizes, scanned, room, low, high)
    first, end = positions[0], positions[-1] + sizes[-1]
    adjacent = end - first == size and tuple(accumulate(sizes, initial=first))[:-1] == positions
    if not adjacent:  # in a topic with more than one queue
        first, end = min(positions), max(map(add, positions, sizes))
    if first < low or end > high:
        return None
    return _new_choice(Choice, (numbers, positions, sizes, scanned, size, adjacent))


def _choose_each(
    numbers: Sequence[int],
    positions: tuple[int, ...],
    sizes: tuple[int, ...],
    scanned: int,
    room: int,
    low: int,
    high: int,
) -> Choice | None:
    """As ``choose``, of units that do not all fit into ``room``."""
    total = 0
    for count, (number, position, size) in enumerate(zip(numbers, positions, sizes, strict=True)):
        if count and size > room - total:
            return Choice(numbers[:count], positions[:count], sizes[:count], number, total, adjacent=False)
        if size <= 0 or position < low or size > high - position:
            return None
        total += size
    return Choice(numbers, positions, sizes, scanned, total, adjacent=False)


def take(
    units: bytes, codes: bytes | None, most: int, room: int, memory: memoryview, start: int, low: int, high: int, /
) -> Taken | None:
    """The records of a queue's units: their bytes, how many they are, how many units were looked at, and their size."""
    if start < 0 or low < start or high > start + len(memory):
        return None
    choice = choose(units, codes, most, room, low, high)
    if choice is None:
        return None
    _, positions, sizes, scanned, size, adjacent = choice
    if adjacent:
        at = positions[0] - start
        return [memory[at : at + size]], len(positions), scanned, size
    places = zip(positions, sizes, strict=True)
    views: list[memoryview | bytes] = [memory[at - start : at - start + length] for at, length in places]
    return views, len(views), scanned, size


def fetch(
    units: bytes,
    codes: bytes | None,
    most: int,
    room: int,
    fd: int,
    start: int,
    low: int,
    high: int,
    wait: bool,
    topic: bytes,
    queue_id: int,
    offset: int,
    checked_from: int,
    /,
) -> Taken | None:
    """As ``take``, out of a file; records below ``checked_from`` must be sound and belong to the queue's offset."""
    if start < 0 or low < start:
        return None
    choice = choose(units, codes, most, room, low, high)
    if choice is None:
        return None
    numbers, positions, sizes, scanned, size, _ = choice
    parts: list[bytes] = []
    while len(parts) < len(positions):
        begin = len(parts)
        end = _end_of_run(positions, sizes, begin)
        first, span = positions[begin], positions[end - 1] + sizes[end - 1] - positions[begin]
        try:
            data = read_at(fd, first - start, span, wait=wait)
        except NotInMemory:
            raise BlockingIOError(EAGAIN, "not in the page cache") from None
        if len(data) < span:
            return None
        run = zip(positions[begin:end], sizes[begin:end], strict=True)
        parts += [data[position - first : position - first + length] for position, length in run]
    for number, position, record in zip(numbers, positions, parts, strict=True):
        if offset + number >= checked_from:
            break
        if not _is_own(record, position, topic, queue_id, offset + number):
            return None
    return [b"".join(parts)], len(parts), scanned, size


def _end_of_run(positions: tuple[int, ...], sizes: tuple[int, ...], first: int) -> int:
    """The number behind the records that are read at once from ``first`` on: those with little between them."""
    for number in range(first + 1, len(positions)):
        end = positions[number - 1] + sizes[number - 1]
        if not 0 <= positions[number] - end <= _GAP or end - positions[first] > _TOGETHER_BYTES:
            return number
    return len(positions)


def _is_own(data: bytes, position: int, topic: bytes, queue_id: int, queue_offset: int) -> bool:
    """Whether these bytes are the whole and unchanged record of a place of the log and of a queue."""
    record = sound_record(data, 0, position)
    return record is not None and (record.size, record.topic.encode(), record.queue_id, record.queue_offset) == (
        len(data),
        topic,
        queue_id,
        queue_offset,
    )


# ---- dispatch


def follow(work: list[Request], at: int, touched: set[ConsumeQueue], timed: tuple[str, ...], /) -> int:
    """Append the units of records from ``work[at]`` on; returns the number of the first request that needs more."""
    nexts: dict[ConsumeQueue, int] = {}
    units: dict[ConsumeQueue, list[int]] = {}
    number = at
    for queue, position, size, properties, queue_offset, _, sys_flag in work[at:] if at else work:
        if not sys_flag & TRANSACTION_PREPARED:  # half messages and rollbacks (bits 4 and 12) have no unit
            if queue not in nexts:
                nexts[queue] = -1 if queue.topic in timed else queue.max_offset
                units[queue] = []
            if nexts[queue] != queue_offset:
                break
            nexts[queue] = queue_offset + 1
            units[queue] += (position, size, tag_code(get(properties, "TAGS")))
        number += 1
    for queue, flat in units.items():
        if flat:
            for first in range(0, len(flat), 3 * _TOGETHER):
                part = flat[first : first + 3 * _TOGETHER]
                queue.tail += _units(len(part) // 3).pack(*part)
            queue.arrived += flat[2::3]
            touched.add(queue)
    return number


@lru_cache(maxsize=_TOGETHER + 1)
def _units(count: int) -> struct.Struct:
    return struct.Struct(">" + "qiq" * count)


_KEY_BEGINNING: Final = 24
_beginning_hash = lru_cache(maxsize=4096)(units_hash)
"""``units_hash`` of the first characters of unique keys, which a producer's have in common for a minute."""


def keys(work: list[Request], /) -> list[IndexEntry]:
    """The index entries of records: of each its unique key, then its business keys."""
    entries: list[IndexEntry] = []
    for queue, position, _, properties, _, store_time, sys_flag in work:
        if sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
            continue
        prefix = queue.index_prefix
        unique = get(properties, "UNIQ_KEY")
        if len(unique) == 32 and unique.isascii():
            code = units_hash(unique[_KEY_BEGINNING:], _beginning_hash(unique[:_KEY_BEGINNING], prefix))
            entries.append((index_hash(code), position, store_time))
        elif unique:
            entries.append((index_hash(java_hash(unique.decode("utf-8", "replace"), prefix)), position, store_time))
        business = get(properties, "KEYS")
        if business:
            for key in business.decode("utf-8", "replace").split(" "):
                if key:
                    entries.append((index_hash(java_hash(key, prefix)), position, store_time))
    return entries


@lru_cache(maxsize=_TOGETHER + 1)
def _index_entries(count: int) -> struct.Struct:
    return struct.Struct(">" + "IqiI" * count)


def put_entries(
    map: mmap.mmap, slots: int, entries_at: int, count: int, begin_time: int, entries: list[IndexEntry], /
) -> int:
    """Write entries into an index file; returns how many slots were used for the first time."""
    room = len(map) - entries_at
    if (
        slots < 1
        or count < 0
        or not _INDEX_HEADER + 4 * slots <= entries_at <= len(map)
        or (len(entries) > room // _UNIT - count)
    ):
        raise ValueError("the entries do not fit into the index file")
    used = 0
    at = entries_at + count * _UNIT
    flat: list[int] = []
    for value, position, store_time in entries:
        seconds = (store_time - begin_time) // 1000 if 0 < begin_time < store_time else 0
        if seconds > _MAX_SECONDS:
            seconds = _MAX_SECONDS
        if count <= 1:
            begin_time = store_time
        slot = _INDEX_HEADER + value % slots * 4
        (previous,) = _SLOT.unpack_from(map, slot)
        if not previous:
            used += 1
        flat += (value, position, seconds, previous)
        _SLOT.pack_into(map, slot, count)
        count += 1
    for first in range(0, len(entries), _TOGETHER):
        part = flat[4 * first : 4 * (first + _TOGETHER)]
        _index_entries(len(part) // 4).pack_into(map, at + _UNIT * first, *part)
    return used
