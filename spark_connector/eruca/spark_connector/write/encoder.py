"""Rows to messages: record batches of Spark become batch bodies and single messages.

Owns the columns' meaning and what must be refused in a row. Asks no cluster; ``choose`` says which queue a row is for.
Bytes are put together by Arrow, column by column; a batch body is a slice of what comes out (the form of
MessageDecoder.encodeMessages in 4.9.7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eruca.client import MessageQueue
from eruca.protocol import names
from eruca.protocol.message import PROPERTIES_MAX_LENGTH
from eruca.spark_connector.errors import SinkError
from eruca.spark_connector.sink_options import DELAYS, SinkOptions
from eruca.spark_connector.write.row_ids import Origin, RowIds, UniqueKeys

SPARK_ID: Final = "SPARK_ID"
"""The property that holds the id of a row."""
LEFT_OUT: Final = sorted(
    names.RESERVED_PROPERTIES
    | {names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS, names.TIMER_DELIVER_MS, names.TIMER_OUT_MS, names.TIMER_ROLL_TIMES}
    | {names.TIMER_ORIGIN, names.TRAN_PREPARED_QUEUE_OFFSET, names.TRANSACTION_CHECK_TIMES}
    | {names.CHECK_IMMUNITY_TIME_IN_SECONDS, SPARK_ID}
)
"""Names that the properties column does not set: RocketMQ's own, and the id of a row."""
_TO_GROUP: Final = [name for name in LEFT_OUT if name != names.RETRY_TOPIC]
"""The same for a topic of retries: there RETRY_TOPIC says of which topic the message is for the group."""
_DELAYS: Final = dict(zip(DELAYS, (names.DELAY, names.TIMER_DELAY_MS, names.TIMER_DELIVER_MS), strict=True))
_HEAD: Final = np.dtype([("size", ">i4"), ("magic", ">i4"), ("crc", ">i4"), ("flag", ">i4"), ("body", ">i4")])
_BINARY: Final = pa.binary()
_EMPTY: Final = pa.scalar(b"", _BINARY)

Choose = Callable[[str, Any, int | None, str | None], MessageQueue | None]
"""Given topic, sharding key, queue id and broker name of a row: its queue, None for any."""


@dataclass(frozen=True)
class MessageBatch:
    """``count`` messages of one topic as the body of a batch, for ``queue`` or for any."""

    topic: str
    queue: MessageQueue | None
    body: bytes
    count: int


@dataclass(frozen=True)
class SingleMessage:
    """A message that travels alone; the property text begins after its id."""

    topic: str
    queue: MessageQueue | None
    body: bytes
    properties: str
    flag: int


class Encoder:
    """Makes the messages of one partition."""

    def __init__(self, options: SinkOptions, origin: Origin, choose: Choose) -> None:
        self._options = options
        self._choose = choose
        self._ids = RowIds(origin)
        self._keys = UniqueKeys()
        self._to_group = names.is_retry_topic(options.topic or "")

    def encode(self, batch: pa.RecordBatch) -> Iterator[MessageBatch | SingleMessage]:
        """The messages of the rows, in their order for each queue. Raises SinkError."""
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        bodies = _bodies(columns["body"])
        flags = _numbers(columns.get("flag"), batch.num_rows)
        texts = self._properties(columns, batch.num_rows)
        targets, codes = self._targets(columns, batch.num_rows)
        ids = self._row_ids(targets, codes, flags, bodies, texts) if self._options.idempotent else None
        alone = self._alone(columns, batch.num_rows)
        if not alone.all():
            yield from self._batches(targets, codes, ~alone, _Rows(flags, bodies, texts, ids))
        rows = np.flatnonzero(alone)
        if not len(rows):
            return
        lone = _Rows(flags, bodies, texts, ids).take(rows)
        parts = zip(rows.tolist(), lone.bodies.to_pylist(), _joined(*lone.properties()).to_pylist(), strict=True)
        for row, body, text in parts:
            topic, queue = targets[codes[row]]
            yield SingleMessage(topic, queue, body, text.decode(), int(flags[row]))

    # ------------------------------------------------------------------ where to

    def _alone(self, columns: dict[str, pa.Array], count: int) -> np.ndarray[Any, Any]:
        if self._options.transactional or self._to_group:  # brokers take no batch for a topic of retries
            return np.ones(count, dtype=bool)
        delays = [_numbers(columns[name], count) > 0 for name in DELAYS if name in columns]
        return delays[0] if delays else np.zeros(count, dtype=bool)

    def _targets(
        self, columns: dict[str, pa.Array], count: int
    ) -> tuple[list[tuple[str, MessageQueue | None]], np.ndarray[Any, Any]]:
        """The topics and queues that occur, and for each row which of them."""
        by = [
            columns[name]
            for name in ("topic", "shardingKey", "queueId", "brokerName")
            if name in columns and not (name == "topic" and self._options.topic)
        ]
        if not by:
            return [(self._options.topic or "", self._choose(self._options.topic or "", None, None, None))], np.zeros(
                count, dtype=np.int64
            )
        codes = np.zeros(count, dtype=np.int64)
        for column in by:
            coded = column.dictionary_encode()
            places = coded.indices.fill_null(len(coded.dictionary)).to_numpy(zero_copy_only=False).astype(np.int64)
            _, codes = np.unique(codes * (len(coded.dictionary) + 1) + places, return_inverse=True)
        _, firsts = np.unique(codes, return_index=True)
        known: dict[tuple[str, MessageQueue | None], int] = {}
        numbers = np.empty(len(firsts), dtype=np.int64)
        for code, first in enumerate(firsts.tolist()):
            value = {name: column[first].as_py() for name, column in columns.items() if name in _TARGET}
            topic = self._options.topic or value.get("topic")
            if not topic:
                raise SinkError('A row has no topic: fill the column topic, or give the option topic="orders".')
            queue = self._choose(topic, value.get("shardingKey"), value.get("queueId"), value.get("brokerName"))
            numbers[code] = known.setdefault((topic, queue), len(known))
        return list(known), numbers[codes]

    # ------------------------------------------------------------------ what

    def _properties(self, columns: dict[str, pa.Array], count: int) -> pa.Array:
        """The texts of the properties, without those that are new in each message."""
        texts = pa.array([b"WAIT\x01true"] * count, _BINARY)
        if "tags" in columns:
            _check_tags(columns["tags"], columns.get("properties"))
        for column, name in (("tags", names.TAGS), ("keys", names.KEYS)):
            if column in columns:
                _check_text(columns[column], column)
                texts = _joined(texts, _named(name, columns[column]))
        for column, name in _DELAYS.items():
            if column in columns:
                wanted = pc.if_else(pc.greater(columns[column], 0), columns[column], None)
                texts = _joined(texts, _named(name, wanted.cast(pa.string())))
        if "properties" in columns:
            texts = _joined(texts, _maps(columns["properties"], _TO_GROUP if self._to_group else LEFT_OUT))
        longest = pc.max(pc.binary_length(texts)).as_py() or 0
        if longest + 250 > PROPERTIES_MAX_LENGTH:
            raise SinkError(
                f"The tags, keys and properties of a row take {longest} bytes: RocketMQ takes "
                f"{PROPERTIES_MAX_LENGTH} with its own; shorten them."
            )
        return texts

    def _row_ids(
        self,
        targets: list[tuple[str, MessageQueue | None]],
        codes: np.ndarray[Any, Any],
        flags: np.ndarray[Any, Any],
        bodies: pa.Array,
        texts: pa.Array,
    ) -> pa.Array:
        lengths = np.empty(len(bodies), dtype=[("body", ">i4"), ("flag", ">i4")])
        lengths["body"], lengths["flag"] = pc.binary_length(bodies).to_numpy(), flags
        topics = pa.array([topic.encode() for topic, _ in targets], _BINARY).take(pa.array(codes))
        whole = _joined(_fixed(lengths), topics, b"\x01", texts, bodies)
        return self._ids.make(whole)

    def _batches(
        self,
        targets: list[tuple[str, MessageQueue | None]],
        codes: np.ndarray[Any, Any],
        chosen: np.ndarray[Any, Any],
        rows: _Rows,
    ) -> Iterator[MessageBatch]:
        if len(targets) > 1 or not chosen.all():
            order = np.flatnonzero(chosen)
            order = order[np.argsort(codes[order], kind="stable")]
            codes, rows = codes[order], rows.take(order)
        entries = rows.entries(self._keys.make(len(codes)))
        data, ends = entries.buffers()[2], _offsets(entries)
        edges = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
        for start, stop in pairwise(edges):
            topic, queue = targets[codes[start]]
            while start < stop:
                fits = int(np.searchsorted(ends, ends[start] + self._options.send_batch_bytes, side="right")) - 1
                end = min(stop, max(fits, start + 1), start + self._options.send_batch_rows)
                first, last = int(ends[start]), int(ends[end])
                yield MessageBatch(topic, queue, data.slice(first, last - first).to_pybytes(), end - start)
                start = end


_TARGET: Final = frozenset({"topic", "shardingKey", "queueId", "brokerName"})


@dataclass(frozen=True)
class _Rows:
    """What rows send: properties without those that are new in each message, and the ids of rows that have them."""

    flags: np.ndarray[Any, Any]
    bodies: pa.Array
    texts: pa.Array
    ids: pa.Array | None

    def take(self, rows: np.ndarray[Any, Any]) -> _Rows:
        chosen = pa.array(rows)
        ids = None if self.ids is None else self.ids.take(chosen)
        return _Rows(self.flags[rows], self.bodies.take(chosen), self.texts.take(chosen), ids)

    def properties(self) -> list[pa.Array | bytes]:
        """The parts of the text in front of which a message's id may stand."""
        return [self.texts] if self.ids is None else [self.texts, b"\x02SPARK_ID\x01", self.ids]

    def entries(self, keys: pa.Array) -> pa.Array:
        """The rows as they stand in a batch, with these unique keys."""
        parts = [b"UNIQ_KEY\x01", keys, b"\x02", *self.properties()]
        sizes, lengths = pc.binary_length(self.bodies).to_numpy(), sum(map(_lengths, parts))
        head = np.zeros(len(self.bodies), dtype=_HEAD)
        head["flag"], head["body"], head["size"] = self.flags, sizes, sizes + lengths + _HEAD.itemsize + 2
        return _joined(_fixed(head), self.bodies, _fixed(lengths.astype(">u2")), *parts)


def _lengths(part: pa.Array | bytes) -> Any:
    return len(part) if isinstance(part, bytes) else pc.binary_length(part).to_numpy()


def _bodies(column: pa.Array) -> pa.Array:
    bodies = column.cast(_BINARY)
    if bodies.null_count or pc.any(pc.equal(pc.binary_length(bodies), 0)).as_py():
        raise SinkError("The body of a row is null or empty, which RocketMQ does not take: filter such rows out.")
    return bodies


def _maps(column: pa.Array, left_out: list[str]) -> pa.Array:
    """All pairs of each map as they travel, without those names."""
    column = pc.if_else(pc.is_valid(column), column, pa.scalar([], column.type)) if column.null_count else column
    offsets = column.offsets.to_numpy(zero_copy_only=False)
    found = column.keys.slice(offsets[0], offsets[-1] - offsets[0])
    values = column.items.slice(offsets[0], offsets[-1] - offsets[0])
    kept = pc.invert(pc.is_in(found, pa.array(left_out)))
    before = np.concatenate(([0], np.cumsum(kept.to_numpy(zero_copy_only=False)))).astype(np.int32)
    found, values = found.filter(kept), values.filter(kept)
    for part in (found, values):
        _check_text(part, "properties")
        if part.null_count or pc.any(pc.equal(pc.binary_length(pc.utf8_trim_whitespace(part)), 0)).as_py():
            raise SinkError("A name or value in properties is null or blank, which RocketMQ does not take: filter it.")
    pairs = _joined(b"\x02", found, b"\x01", values)
    places = before[offsets - offsets[0]]
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(places), pairs), _EMPTY)


def _check_text(column: pa.Array, name: str) -> None:
    for separator in ("\x01", "\x02"):
        if pc.any(pc.match_substring(column, separator)).as_py():
            raise SinkError(
                f"A text in {name} holds the character {ord(separator):#04x}, by which RocketMQ parts them."
            )


def _check_tags(tags: pa.Array, properties: pa.Array | None) -> None:
    """Raise SinkError for several tags in one text, which no subscription chooses.

    A message of another client may have such a text. A row that was read of it has it among its properties, too, and
    can be sent again.
    """
    for row in pc.indices_nonzero(pc.match_substring(tags, "||")).to_pylist():
        read = dict(properties[row].as_py() or ()) if properties is not None else {}
        if read.get(names.TAGS) != tags[row].as_py():
            raise SinkError(
                f'A row has the tags "{tags[row]}": a message has one tag, and || stands between those of a '
                "subscription; send a message for each tag."
            )


def _named(name: str, values: pa.Array) -> pa.Array:
    """The property in each row that has a value, nothing in the others."""
    there = pc.greater(pc.fill_null(pc.binary_length(values), 0), 0)
    return pc.if_else(there, _joined(f"\x02{name}\x01".encode(), pc.fill_null(values, "")), _EMPTY)


def _numbers(column: pa.Array | None, count: int) -> np.ndarray[Any, Any]:
    if column is None:
        return np.zeros(count, dtype=np.int64)
    return np.asarray(column.fill_null(0), dtype=np.int64)


def _joined(*parts: pa.Array | bytes) -> pa.Array:
    pieces = [pa.scalar(part, _BINARY) if isinstance(part, bytes) else part.cast(_BINARY) for part in parts]
    return pc.binary_join_element_wise(*pieces, _EMPTY)


def _fixed(values: np.ndarray[Any, Any]) -> pa.Array:
    """Each element's bytes as they are in memory."""
    kind = pa.binary(values.dtype.itemsize)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def _offsets(values: pa.Array) -> np.ndarray[Any, Any]:
    return np.frombuffer(values.buffers()[1], dtype=np.int32)[values.offset : values.offset + len(values) + 1]
