"""Ids for rows, made for many at once: the unique key of each message, and the id by which a repeat is recognized.

Owns both forms. A unique key is a producer's UNIQ_KEY (MessageClientIDSetter in 4.9.7), new each time. The id of a row
is ``write/epoch/partition/digest``: the digest is of the message itself, not of its place, since Spark may compute the
rows of a partition in another order when it computes them again. Rows that are equal get ``/1``, ``/2`` and so on
behind it. Invariant: two different rows of a write never have the same id, and a row that is computed again in the same
partition has its old one. Ids of a partition stay in memory while it is written: some 130 bytes a row.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from ipaddress import ip_address
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pandas.util import hash_array  # type: ignore[import-untyped]

from eruca.protocol.message import unique_key
from eruca.remoting.addresses import local_address

_DIGITS: Final = np.frombuffer("".join(f"{value:02X}" for value in range(256)).encode(), dtype=np.uint16)
"""The two digits of each byte."""
_DIGEST_KEYS: Final = ("eruca.spark.id.0", "eruca.spark.id.1")
"""Keys of two 64-bit SipHash digests, 16 characters each. They must never change: ids of before and after would not
meet."""


@dataclass(frozen=True)
class Origin:
    """Which part of which write the rows are."""

    write: str
    epoch: int
    partition: int


class UniqueKeys:
    """The unique keys of one task."""

    def __init__(self) -> None:
        address = ip_address(local_address()).packed
        self._prefix = unique_key(address, os.getpid(), time.monotonic_ns() >> 8, 0, 0)[:-12].encode()
        now = time.localtime()
        self._month = time.mktime((now.tm_year, now.tm_mon, 1, 0, 0, 0, 0, 0, -1))
        self._next = 0

    def make(self, count: int) -> pa.Array:
        """``count`` keys in rising order: milliseconds of the month and a counter behind the prefix."""
        first = max(self._next, int((time.time() - self._month) * 1000) << 16)
        self._next = first + count
        numbers = np.arange(first, self._next, dtype=np.uint64).astype(">u8").view(np.uint8).reshape(count, 8)
        return _texts(self._prefix, numbers[:, 2:])


class RowIds:
    """The ids of the rows of one partition."""

    def __init__(self, origin: Origin) -> None:
        self._prefix = f"{origin.write}/{origin.epoch}/{origin.partition}/".encode()
        self._seen: dict[bytes, None] = {}
        self._repeats: dict[bytes, int] = {}

    def make(self, contents: pa.Array) -> pa.Array:
        """The ids of rows with these contents, binary."""
        values = contents.to_numpy(zero_copy_only=False)
        halves = [hash_array(values, hash_key=key, categorize=False).astype(">u8") for key in _DIGEST_KEYS]
        digests = np.stack(halves, axis=1).view(np.uint8).reshape(len(values), 16)
        plain = _texts(self._prefix, digests)
        keys = digests.view("V16").ravel().tolist()
        before = len(self._seen)
        self._seen.update(dict.fromkeys(keys))
        added = len(self._seen) - before
        if added == len(keys):
            return plain
        first = set(islice(reversed(self._seen), added))  # of each of these this is the first row
        ids = plain.to_pylist()
        for row, key in enumerate(keys):
            if key in first:
                first.remove(key)
                continue
            number = self._repeats[key] = self._repeats.get(key, 0) + 1
            ids[row] = b"%b/%d" % (ids[row], number)
        return pa.array(ids, pa.binary())


def _texts(prefix: bytes, rows: np.ndarray[Any, Any]) -> pa.Array:
    """The prefix and each row's bytes in hexadecimal digits."""
    width = len(prefix) + 2 * rows.shape[1]
    texts = np.empty((len(rows), width), dtype=np.uint8)
    texts[:, : len(prefix)] = np.frombuffer(prefix, dtype=np.uint8)
    texts[:, len(prefix) :] = np.take(_DIGITS, rows).view(np.uint8).reshape(len(rows), -1)
    offsets = np.arange(len(rows) + 1, dtype=np.int32) * width
    return pa.Array.from_buffers(pa.binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(texts)])
