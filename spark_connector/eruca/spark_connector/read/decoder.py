"""Stored records to record batches, thousands at a time.

Owns how columns are cut out of the bytes of a pull's answer with array operations; the layout is that of
``eruca.protocol.record``, whose one-by-one decoding the tests hold this to. Pure. Knows nothing of Spark but the
schema it asks for.
Invariant: a batch has exactly the records of its chunks that lie within their range and pass the tag filter, in order.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eruca.client import compression
from eruca.client.errors import BadAnswer
from eruca.protocol import message, names
from eruca.protocol.compression import MAX_BODY
from eruca.protocol.record import MAGIC_V1, MAGIC_V2, MIN_RECORD_SIZE
from eruca.spark_connector.errors import SourceError
from eruca.spark_connector.read.property_columns import Ints, PropertyTexts, slices
from eruca.spark_connector.read.spans import Chunk

_BEFORE_BORN_HOST: Final = 48
_FIXED: Final = np.dtype(
    [
        ("size", ">u4"),
        ("magic", ">u4"),
        ("body_crc", ">u4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("physical_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born", ">i8"),
    ]
)
_STORED: Final = np.dtype([("time", ">i8")])
_LAST: Final = np.dtype([("reconsume_times", ">i4"), ("prepared", ">i8"), ("body_length", ">i4")])
_SIZE: Final = struct.Struct(">I")
_MAGIC: Final = (MAGIC_V1 & 0xFFFFFFFF).to_bytes(4, "big")[:3]
"""What the magic codes of both versions begin with."""

Column = Callable[["_Records", pa.DataType], pa.Array]


class Decoder:
    """Makes record batches of one schema.

    ``tags`` is the set of tags that pass, or None for all: brokers compare only hashes of tags. A compressed body is
    unpacked up to ``max_body`` bytes.
    """

    def __init__(self, schema: pa.Schema, tags: frozenset[str] | None = None, max_body: int = MAX_BODY) -> None:
        self._schema = schema
        self._columns = [_BY_LOWER[field.name.lower()] for field in schema]
        self._kinds = [field.type for field in schema]
        self._tags = tags
        self._max_body = max_body

    def decode(self, chunks: Sequence[Chunk], data: bytes | memoryview | None = None) -> pa.RecordBatch:
        """The batch of these chunks; it may be empty. Raises SourceError for damaged records.

        ``data`` are the bodies of the chunks joined, where they are joined already; the batch keeps nothing of them.
        """
        records = _Records(chunks, b"".join([chunk.body for chunk in chunks]) if data is None else data, self._max_body)
        records.cut()
        if self._tags is not None:
            records.keep_tags(self._tags)
        if not len(records.starts):
            return pa.RecordBatch.from_pylist([], schema=self._schema)
        arrays = [column(records, kind) for column, kind in zip(self._columns, self._kinds, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _Records:
    """The records of some chunks as arrays, one element a record; what a column needs is made when it is asked for."""

    def __init__(self, chunks: Sequence[Chunk], data: bytes | memoryview, max_body: int) -> None:
        self.chunks = chunks
        self.data = data
        self.max_body = max_body
        self.bytes = np.frombuffer(self.data, dtype=np.uint8)
        self.of_one_queue = len({id(chunk.queue) for chunk in chunks}) == 1
        self.starts, counts = find_records(chunks, self.data)
        self.chunk = np.repeat(np.arange(len(chunks)), counts)
        self._texts: PropertyTexts | None = None
        self.fixed = self.fields(self.starts, _FIXED)
        self._measure()

    def fields(self, starts: Ints, layout: np.dtype[Any]) -> npt.NDArray[Any]:
        """A structure of every record, by where it begins."""
        if not len(starts):
            return np.zeros(0, dtype=layout)
        windows = np.lib.stride_tricks.sliding_window_view(self.bytes, layout.itemsize)
        rows: npt.NDArray[Any] = windows[starts].view(layout)[:, 0]
        return rows

    def _measure(self) -> None:
        """Where the parts of every record lie; each must end where its record does."""
        sizes = self.fixed["size"].astype(np.int64)
        self.sys_flag = self.fixed["sys_flag"].astype(np.int64)
        self.host_length = np.where(self.sys_flag & message.STORE_HOST_V6, 20, 8)
        born_length = np.where(self.sys_flag & message.BORN_HOST_V6, 20, 8)
        self._check(sizes >= MIN_RECORD_SIZE - 16 + born_length + self.host_length)
        wide = self.fixed["magic"] == MAGIC_V2
        self.stored_at = self.starts + _BEFORE_BORN_HOST + born_length
        last_at = self.stored_at + 8 + self.host_length
        self.last = self.fields(last_at, _LAST)
        self.body_at = last_at + _LAST.itemsize
        self.body_end = self.body_at + self.last["body_length"].astype(np.int64)
        stops = self.starts + sizes
        magic_known = wide | (self.fixed["magic"] == MAGIC_V1)
        self._check(magic_known & (self.body_end >= self.body_at) & (self.body_end + 3 <= stops))
        first = self.bytes[self.body_end].astype(np.int64)
        second = self.bytes[self.body_end + 1].astype(np.int64)
        topic_end = self.body_end + np.where(wide, 2 + (first << 8 | second), 1 + first)
        self._check(topic_end + 2 <= stops)
        length = self.bytes[topic_end].astype(np.int64) << 8 | self.bytes[topic_end + 1]
        self.text_at, self.text_end = topic_end + 2, topic_end + 2 + length
        self._check(self.text_end == stops)

    def _check(self, right: npt.NDArray[np.bool_]) -> None:
        if not right.all():
            place = int(np.argmin(right))
            queue = self.chunks[self.chunk[place]].queue
            raise SourceError(
                f"The record of {queue} at physical offset {self.fixed['physical_offset'][place]} is damaged: its "
                "lengths do not agree. Check the broker's store, and read around this offset with startingOffsets."
            )

    def cut(self) -> None:
        """Leave out what lies behind the end of a chunk's range."""
        ends = np.array([chunk.end for chunk in self.chunks], dtype=np.int64)
        within = self.fixed["queue_offset"] < ends[self.chunk]
        if not within.all():
            self._keep(within)

    def keep_tags(self, tags: frozenset[str]) -> None:
        """Leave out what has none of these tags."""
        found = self.texts.column(names.TAGS.encode())
        wanted = pa.array(sorted(tags), type=pa.string())
        passed = pc.is_in(found, value_set=wanted).to_numpy(zero_copy_only=False)
        if not passed.all():
            self._keep(passed)

    def _keep(self, kept: npt.NDArray[np.bool_]) -> None:
        for name in (
            *("starts", "chunk", "fixed", "sys_flag", "stored_at", "host_length", "last"),
            *("body_at", "body_end", "text_at", "text_end"),
        ):
            setattr(self, name, getattr(self, name)[kept])
        self._texts = None

    @property
    def texts(self) -> PropertyTexts:
        """The properties, searched once."""
        if self._texts is None:
            self._texts = PropertyTexts(slices(self.data, self.text_at, self.text_end, pa.binary()))
        return self._texts


def find_records(chunks: Sequence[Chunk], data: bytes | memoryview) -> tuple[Ints, Ints]:
    """Where the records begin in ``data``, the bodies of the chunks joined, and how many each chunk has.

    Raises SourceError when the records of a chunk do not fill it.
    """
    lengths = np.array([len(chunk.body) for chunk in chunks], dtype=np.int64)
    return _all_of_one_size(lengths, data) or _by_magic(lengths, data) or _one_by_one(chunks, data)


def _all_of_one_size(lengths: Ints, data: bytes | memoryview) -> tuple[Ints, Ints] | None:
    """Where all records have the size of the first one, no search is needed. None where they have not."""
    size = _SIZE.unpack_from(data)[0] if len(data) >= 4 else 0
    if size < MIN_RECORD_SIZE or (lengths % size).any():
        return None
    heads = np.frombuffer(data, dtype=np.uint8).reshape(-1, size)[:, :4]
    if not (heads == heads[0]).all():
        return None
    return np.arange(0, len(data), size, dtype=np.int64), lengths // size


def _by_magic(lengths: Ints, data: bytes | memoryview) -> tuple[Ints, Ints] | None:
    """The places of the magic code, if each record ends where the next one begins. None where it is in a body, too."""
    if len(data) < MIN_RECORD_SIZE:
        return None
    every = np.frombuffer(data, dtype=np.uint8)
    found = np.flatnonzero(every[4:-4] == _MAGIC[0])
    for place in range(1, len(_MAGIC)):
        found = found[every[4 + place : place - 4][found] == _MAGIC[place]]
    sizes = np.lib.stride_tricks.sliding_window_view(every, 4)[found].view(">u4")[:, 0].astype(np.int64)
    stops = found + sizes
    edges = np.cumsum(lengths)
    counts = np.diff(np.searchsorted(found, edges), prepend=0)
    ends = np.searchsorted(stops, edges)
    if (
        not len(found)
        or found[0]
        or (stops[:-1] != found[1:]).any()
        or (sizes < MIN_RECORD_SIZE).any()
        or ends[-1] >= len(stops)
        or (stops[ends] != edges).any()
    ):
        return None
    return found, counts


def _one_by_one(chunks: Sequence[Chunk], data: bytes | memoryview) -> tuple[Ints, Ints]:
    """From size to size. Raises SourceError."""
    places: list[int] = []
    counts: list[int] = []
    at, end, append, unpack = 0, 0, places.append, _SIZE.unpack_from
    for chunk in chunks:
        before, end = len(places), end + len(chunk.body)
        while at + MIN_RECORD_SIZE <= end:
            append(at)
            (size,) = unpack(data, at)
            if size < MIN_RECORD_SIZE:
                break
            at += size
        if at != end:
            raise SourceError(
                f"An answer to a pull of {chunk.queue} ends within a record: check the broker's version and its store."
            )
        counts.append(len(places) - before)
    return np.array(places, dtype=np.int64), np.array(counts, dtype=np.int64)


# ---------------------------------------------------------------------- columns


def _by_chunk(values: Callable[[Chunk], Any]) -> Column:
    def column(records: _Records, kind: pa.DataType) -> pa.Array:
        if records.of_one_queue:
            return pa.repeat(pa.scalar(values(records.chunks[0]), type=kind), len(records.starts))
        return pa.array(map(values, records.chunks), type=kind).take(pa.array(records.chunk))

    return column


def _number(values: Callable[[_Records], npt.NDArray[Any]]) -> Column:
    return lambda records, kind: pa.array(values(records).astype(kind.to_pandas_dtype()))


def _time(values: Callable[[_Records], npt.NDArray[Any]]) -> Column:
    """Milliseconds as Spark's timestamps, which count microseconds."""
    return lambda records, kind: pa.array(values(records).astype(np.int64) * 1000).view(kind)


def _body(records: _Records, kind: pa.DataType) -> pa.Array:
    bodies = slices(records.data, records.body_at, records.body_end, kind)
    packed = np.flatnonzero(records.sys_flag & message.COMPRESSED)
    if not len(packed):
        return bodies
    plain = bodies.to_pylist()
    for place in packed:
        try:
            plain[place] = compression.decompress(plain[place], int(records.sys_flag[place]), records.max_body)
        except BadAnswer as error:
            raise SourceError(
                f"The body at offset {records.fixed['queue_offset'][place]} of "
                f"{records.chunks[records.chunk[place]].queue} cannot be read: {error}"
            ) from None
    return pa.array(plain, type=kind)


def _property(name: str) -> Column:
    return lambda records, kind: records.texts.column(name.encode())


def _message_id(records: _Records, kind: pa.DataType) -> pa.Array:
    unique = records.texts.column(names.UNIQ_KEY.encode())
    if not unique.null_count:
        return unique
    ids = unique.to_pylist()
    for place in np.flatnonzero(unique.is_null().to_numpy(zero_copy_only=False)):
        start = int(records.stored_at[place]) + _STORED.itemsize
        host = bytes(records.data[start : start + int(records.host_length[place])])
        ids[place] = message.offset_message_id(host, int(records.fixed["physical_offset"][place]))
    return pa.array(ids, type=kind)


def _properties(records: _Records, kind: pa.DataType) -> pa.Array:
    return records.texts.maps(kind)


_COLUMNS: Final[dict[str, Column]] = {
    "topic": _by_chunk(lambda chunk: chunk.queue.topic),
    "brokerName": _by_chunk(lambda chunk: chunk.queue.broker_name),
    "queueId": _by_chunk(lambda chunk: chunk.queue.queue_id),
    "queueOffset": _number(lambda records: records.fixed["queue_offset"]),
    "body": _body,
    "tags": _property(names.TAGS),
    "keys": _property(names.KEYS),
    "messageId": _message_id,
    "bornTimestamp": _time(lambda records: records.fixed["born"]),
    "storeTimestamp": _time(lambda records: records.fields(records.stored_at, _STORED)["time"]),
    "reconsumeTimes": _number(lambda records: records.last["reconsume_times"]),
    "flag": _number(lambda records: records.fixed["flag"]),
    "properties": _properties,
}
_BY_LOWER: Final = {name.lower(): column for name, column in _COLUMNS.items()}
