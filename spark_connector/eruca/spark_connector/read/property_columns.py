"""The properties of many messages at once: where each name and value lies, found with array operations.

Owns the reading of the stored text ``name 01 value 02 name 01 value …`` for a whole batch. The meaning is that of
``eruca.protocol.message.decode_properties``, which the tests hold it to.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
_SEPARATOR = 1
_END = 2


def slices(data: pa.Buffer | bytes | memoryview, starts: Ints, ends: Ints, kind: pa.DataType) -> pa.Array:
    """An array of the pieces of ``data`` between ``starts`` and ``ends``, which rise and do not overlap.

    ``data`` must be smaller than 2 GiB.
    """
    # An Arrow array's elements lie side by side: so the pieces and the gaps between them are made its elements,
    # without a copy, and every other one is taken.
    count = len(starts)
    edges = np.empty(2 * count, dtype=np.int32)
    edges[0::2] = starts
    edges[1::2] = ends
    if not count:
        return pa.array([], type=kind)
    whole = pa.Array.from_buffers(kind, 2 * count - 1, [None, pa.py_buffer(edges), pa.py_buffer(data)])
    return whole.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int64)))


class PropertyTexts:
    """The properties of the messages of a batch, one after the other.

    ``texts`` is a binary array of the stored texts.
    """

    def __init__(self, texts: pa.Array) -> None:
        self._texts = _valid(texts)
        self.count = len(self._texts)
        offsets = np.frombuffer(self._texts.buffers()[1], dtype=np.int32, count=self.count + 1)
        self._data = self._texts.buffers()[2] or pa.py_buffer(b"")
        self._bytes = np.frombuffer(self._data, dtype=np.uint8, count=int(offsets[-1]) if self.count else 0)
        self._find_pairs(offsets.astype(np.int64))

    def _find_pairs(self, offsets: Ints) -> None:
        # A text ends at its edge or at a 02; a pair's name ends at its first 01.
        edges = np.flatnonzero(self._bytes == _END)
        starts = np.concatenate((offsets[:-1], edges + 1))
        ends = np.concatenate((offsets[1:], edges))
        starts.sort(kind="stable")  # quick, as each is two rising rows
        ends.sort(kind="stable")
        rows = np.repeat(np.arange(self.count), np.diff(np.searchsorted(edges, offsets)) + 1)
        full = ends > starts
        if not full.all():
            starts, ends, rows = starts[full], ends[full], rows[full]
        middles = self._find_middles(starts, ends)
        kept = (middles > starts) & (middles + 1 < ends)
        if not kept.all():
            starts, middles, ends, rows = starts[kept], middles[kept], ends[kept], rows[kept]
        self._starts, self._middles, self._ends, self._rows = starts, middles, ends, rows
        self._lengths = middles - starts

    def _find_middles(self, starts: Ints, ends: Ints) -> Ints:
        separators = np.flatnonzero(self._bytes == _SEPARATOR)
        if len(separators) == len(starts) and ((separators >= starts) & (separators < ends)).all():
            return separators  # one in each piece, as nearly always
        return np.append(separators, len(self._bytes))[np.searchsorted(separators, starts)]

    def column(self, name: bytes) -> pa.Array:
        """The values of one property as strings, null where a message does not have it."""
        places = np.flatnonzero(self._lengths == len(name))
        for index, letter in enumerate(name):
            places = places[self._bytes[self._starts[places] + index] == letter]
        if not len(places):
            return pa.nulls(self.count, pa.string())
        values = slices(self._data, self._middles[places] + 1, self._ends[places], pa.string())
        if len(places) == self.count and (self._rows[places] == np.arange(self.count)).all():
            return values  # each message has it once
        positions = np.full(self.count, -1, dtype=np.int64)
        positions[self._rows[places]] = np.arange(len(places))  # the last one holds
        return values.take(pa.array(positions, mask=positions < 0))

    def maps(self, kind: pa.MapType) -> pa.Array:
        """All properties as a map column of this type."""
        names = slices(self._data, self._starts, self._middles, pa.string())
        values = slices(self._data, self._middles + 1, self._ends, pa.string())
        rows = self._rows
        once = _last_of_each(rows, names)
        if once is not None:
            names, values, rows = names.take(once), values.take(once), rows[once]
        edges = np.searchsorted(rows, np.arange(self.count + 1)).astype(np.int32)
        return pa.MapArray.from_arrays(pa.array(edges), names, values, type=kind)


def _last_of_each(rows: Ints, names: pa.Array) -> Any:
    """Which pairs stay where a message has a name twice; None where that is all of them."""
    codes = names.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    both = rows * (int(codes.max(initial=0)) + 1) + codes
    _, first_from_behind = np.unique(both[::-1], return_index=True)
    return None if len(first_from_behind) == len(both) else np.sort(len(both) - 1 - first_from_behind)


def _valid(texts: pa.Array) -> pa.Array:
    """``texts`` as they are where they are UTF-8; else with U+FFFD in place of what is not."""
    try:
        texts.cast(pa.string())
    except pa.ArrowInvalid:
        mended = [text.decode(errors="replace").encode() for text in texts.to_pylist()]
        return pa.array(mended, type=pa.binary())
    return texts
