"""The functions of the native step in Python, for machines without a C compiler.

Each function has the name, the arguments and the results of its counterpart in ``_native.pyi``; ``native`` chooses.
Tests compare both, byte for byte.
"""

from __future__ import annotations

import mmap
import struct
from functools import lru_cache
from typing import Final

from eruca.broker.store.consume_queue import UNIT_FORM, ConsumeQueue, tag_code
from eruca.broker.store.layout import IndexEntry, Request, index_hash
from eruca.protocol.message import TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK, java_hash
from eruca.protocol.properties_text import get

_UNIT: Final = UNIT_FORM.size
_INDEX_HEADER: Final = 40
_TOGETHER: Final = 64
_MAX_SECONDS: Final = 0x7FFFFFFF


# ---- dispatch


def follow(work: list[Request], at: int, touched: set[ConsumeQueue], timed: tuple[str, ...], /) -> int:
    """Append the units of records from ``work[at]`` on; returns the number of the first request that needs more."""
    pack = UNIT_FORM.pack
    for number in range(at, len(work)):
        queue, position, size, properties, queue_offset, _, sys_flag = work[number]
        if sys_flag & TRANSACTION_PREPARED:  # half messages and rollbacks (bits 4 and 12) have no unit
            continue
        tail = queue.tail
        if queue.topic in timed or queue.tail_start + len(tail) // _UNIT != queue_offset:
            return number
        code = tag_code(get(properties, "TAGS"))
        tail += pack(position, size, code)
        queue.arrived.append(code)
        touched.add(queue)
    return len(work)


def keys(work: list[Request], /) -> list[IndexEntry]:
    """The index entries of records: of each its unique key, then its business keys."""
    entries: list[IndexEntry] = []
    for queue, position, _, properties, _, store_time, sys_flag in work:
        if sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
            continue
        for key in (get(properties, "UNIQ_KEY"), *get(properties, "KEYS").split(b" ")):
            if key:
                code = java_hash(key.decode("utf-8", "replace"), queue.index_prefix)
                entries.append((index_hash(code), position, store_time))
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
        if count <= 1:
            begin_time = store_time
        slot = _INDEX_HEADER + value % slots * 4
        previous = int.from_bytes(map[slot : slot + 4], "big")
        used += previous == 0
        flat += (value, position, min(seconds, _MAX_SECONDS), previous)
        map[slot : slot + 4] = count.to_bytes(4, "big")
        count += 1
    for first in range(0, len(entries), _TOGETHER):
        part = flat[4 * first : 4 * (first + _TOGETHER)]
        _index_entries(len(part) // 4).pack_into(map, at + _UNIT * first, *part)
    return used
