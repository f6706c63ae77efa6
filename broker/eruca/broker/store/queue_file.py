"""One file of a consume queue: its name, and how many units it holds.

Owns nothing; looks at files that no one has open. Knows nothing of queues in memory.
"""

from __future__ import annotations

import contextlib
import os
import re

from eruca.broker.store.config import CONSUME_QUEUE_UNIT as UNIT
from eruca.broker.store.consume_queue import UNIT_FORM, ConsumeQueue
from eruca.remoting.operating_system import open_file, read_at

NEWEST = 32
"""How many of a queue's newest units are cached when it is opened."""
_FEW = 200
_NAME = re.compile(r"\d{20}\Z")


def file_of(queue: ConsumeQueue, start: int) -> str:
    """The path of the queue's file that begins at a byte offset."""
    return f"{queue.folder}/{start:020d}"


def starts_in(folder: str) -> list[int]:
    """Byte offsets at which the files in a queue's folder begin, in order."""
    try:
        return sorted(int(name) for name in os.listdir(folder) if _NAME.match(name))
    except FileNotFoundError:
        return []


def count_units(path: str, file_size: int) -> tuple[int, bytes]:
    """How many units a file holds, those before the first that has no size; and the newest few of them."""
    fd = open_file(path, os.O_RDONLY)
    try:
        low, high = 0, min(os.fstat(fd).st_size, file_size) // UNIT
        with contextlib.suppress(OSError, AttributeError):  # no holes here; behind the first one nothing counts
            high = min(high, os.lseek(fd, 0, os.SEEK_HOLE) // UNIT + 1)
        while high - low > _FEW:
            middle = (low + high) // 2
            if _is_unit(read_at(fd, UNIT, middle * UNIT), 0):
                low = middle + 1
            else:
                high = middle
        first = max(low - NEWEST, 0)
        data = read_at(fd, (high - first) * UNIT, first * UNIT)
        while low < high:
            middle = (low + high) // 2
            if _is_unit(data, (middle - first) * UNIT):
                low = middle + 1
            else:
                high = middle
        return low, data[max(low - first - NEWEST, 0) * UNIT : (low - first) * UNIT]
    finally:
        os.close(fd)


def _is_unit(data: bytes, at: int) -> bool:
    offset, size = UNIT_FORM.unpack_from(data, at)[:2]
    return bool(size > 0 and offset >= 0)
