"""Tuples that the native step reads by position, with the names of their fields.

``LAYOUTS`` says which field stands where; ``native`` compares it with what the C was compiled for (``c/parts.h``).
"""

from __future__ import annotations

import mmap
from typing import Final, NamedTuple

from eruca.broker.store.consume_queue import ConsumeQueue
from eruca.protocol.record import Record
from eruca.protocol.templates import BinaryTemplate, JsonTemplate, Template

Request = tuple[ConsumeQueue, int, int, bytes, int, int, int]
"""One record to dispatch (DispatchRequest in RocketMQ): queue, commit log offset, size, properties text, queue offset,
store time in ms, sysFlag."""

IndexEntry = tuple[int, int, int]
"""Index hash of a key, commit log offset and store time in ms of the message."""


def request_of(queue: ConsumeQueue, record: Record) -> Request:
    """What there is to dispatch for a record that was read from the log."""
    size, properties, queue_offset = record.size, record.properties_text, record.queue_offset
    return queue, record.physical_offset, size, properties, queue_offset, record.store_timestamp, record.sys_flag


class Tip(NamedTuple):
    """Where records can be written at this moment, for a writer of many records (``native.sends``)."""

    queues: dict[tuple[str, int], ConsumeQueue]
    pending: list[Request]
    memory: mmap.mmap | bytearray
    at: int
    """The place in ``memory`` where the next record begins."""
    position: int
    """Its commit log offset."""
    limit: int
    """Up to where there is room."""
    now: int
    """The store time in ms of what is written."""
    max_body: int
    max_record: int


class SendForm(NamedTuple):
    """What the headers of one producer's sends to one queue have in common, and what is done with such a send."""

    request: Template
    """The template of the requests: born timestamp, properties."""
    queue: tuple[str, int]
    """Topic and queue id."""
    flag: int
    """The user's flag."""
    sys_flag: int
    """Without the bits of the hosts."""
    reconsume_times: int
    oneway: bool
    """Whether no reply is wanted."""
    reply: Template
    """The template of the replies: message id behind the broker's address in hex, queue offset."""
    batch_properties: bytes
    """The properties of such a batch; empty for single messages."""
    batch_extra: bytes
    """The text that a batch adds to the properties of each message; empty for single messages."""
    half_queue: tuple[str, int] | None
    """Topic and queue id of half messages; None where the plain handler has to look at them."""
    half_extra: bytes
    """The text that is added to the properties of half messages: cluster, real topic and queue."""


class SendHosts(NamedTuple):
    """Addresses that the records of a connection's sends have, and the cluster's name in their properties."""

    born: bytes
    """Address and port of the client."""
    bits: int
    """The bits of sysFlag that say which of the addresses are IPv6."""
    store: bytes
    """Address and port of this broker."""
    cluster: bytes
    """The property CLUSTER, which is added to every message."""


HalfSent = tuple[int, int, int, int, int, int, str | None, str | None, str | None]
"""A half message that ``native.sends`` has stored: queue offset, commit log offset, store time, size, born timestamp,
CRC of the body, and its properties UNIQ_KEY, PGROUP and CHECK_IMMUNITY_TIME_IN_SECONDS."""

HalfPlace = tuple[int, int, int]
"""A half message: queue offset, commit log offset, size."""


class CommitForm(NamedTuple):
    """What the records that commits store have in common."""

    half_queue: ConsumeQueue
    """The queue of the half messages."""
    op_queue: ConsumeQueue
    """The queue of the op messages."""
    op_properties: bytes
    """The properties text of op messages."""
    sys_flag: int
    """Of op messages."""
    born_timestamp: int
    """Of op messages, in ms."""
    born_host: bytes
    """Of op messages."""
    store_host: bytes
    """Address and port of this broker; whether they are IPv6, the ``sys_flag`` of op messages says."""


Taken = tuple[list[memoryview | bytes], int, int, int]
"""The records that units point at: their bytes in order, copied into one piece or as views; how many records; how many
units were looked at; and the size of the records together."""

LAYOUTS: Final[dict[str, tuple[str, ...]]] = {
    "Request": ("queue", "position", "size", "properties", "queue_offset", "store_time", "sys_flag"),
    "IndexEntry": ("hash", "position", "store_time"),
    "HalfPlace": ("queue_offset", "position", "size"),
    **{kind.__name__: kind._fields for kind in (JsonTemplate, BinaryTemplate, SendForm, Tip, SendHosts, CommitForm)},
}


def index_hash(code: int) -> int:
    """The hash that an index stores for a key's ``String.hashCode``: its absolute value, 0 for the one number that
    has none (IndexFile.indexKeyHashMethod in 4.9.7)."""
    return abs(code) & 0x7FFFFFFF
