"""The commit log record and the batch entry: bytes to values and back.

Owns the layout of a stored message (V1 of 4.x, V2 of 5.x for reading), of the blank record that
ends a commit log file, and of the entries of a batch body (code 320). Pure. Invariant: a record
that ``decode_record`` accepts is exactly ``size`` bytes long and consistent in all its lengths.
Facts: CommitLog.MessageExtEncoder, MessageDecoder in 4.9.7 and 5.3.3.

``_decode`` is the one reader of whole records. Three views read less, since they run for every message: ``outline``
(a client's pull: lengths only, the rest when it is asked for), ``stored_body`` after it, and ``properties_of`` (the
broker's SQL filter: no copy of the body). Two readers are elsewhere: ``is_own`` in the native step (C), and the Spark
source's decoder (arrays of thousands of records).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import cached_property
from ipaddress import IPv6Address, ip_address
from mmap import mmap
from typing import Final, NamedTuple
from zlib import crc32

from eruca.protocol.errors import ProtocolError
from eruca.protocol.message import decode_properties, offset_message_id
from eruca.protocol.names import KEYS, TAGS, UNIQ_KEY

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
MAGIC_BLANK: Final = 0xCBD43194
BLANK_SIZE: Final = 8
"""Bytes that a blank record really writes; its first field spans the rest of the file."""
MIN_RECORD_SIZE: Final = 91
ENTRY_SIZE: Final = 22
"""Bytes of a batch's entry beside its body and properties."""
PROPERTIES_MAX: Final = 32767
TOPIC_MAX: Final = 127
PHYSICAL_OFFSET_AT: Final = 28

HEADS: Final = tuple(
    struct.Struct(f">IIIiiqqiq{born}sq{store}siqi") for born, store in ((8, 8), (20, 8), (8, 20), (20, 20))
)
"""The head up to and with the body's length, by bits 4 (born) and 5 (store host) of sysFlag."""
_HEAD = HEADS[0]
_OUTLINE = struct.Struct(">II12xq8xi44xi")
"""What an ``Outline`` holds, of a head with IPv4 hosts."""
_BLANK: Final = struct.Struct(">II")
_ENTRY: Final = struct.Struct(">IIIii")
_SHORT: Final = struct.Struct(">H")


class _Fields(NamedTuple):
    size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body_length: int
    body: bytes
    topic: str
    properties_text: bytes


class Record(_Fields):
    """One stored message, its fields in the order of the file; properties are parsed when asked.

    Times are milliseconds, hosts raw (address and 4-byte port: 8 or 20 bytes, see
    ``host_text``), ``body`` as stored (perhaps compressed), ``body_crc`` 31 bits.
    """

    @cached_property
    def properties(self) -> dict[str, str]:
        """The properties as a dict, parsed once."""
        return decode_properties(self.properties_text)

    @property
    def tags(self) -> str | None:
        """The tag, None without one."""
        return self.properties.get(TAGS)

    @property
    def keys(self) -> list[str]:
        """The business keys."""
        return self.properties.get(KEYS, "").split()

    @property
    def unique_key(self) -> str | None:
        """The id that the producer gave, None where it gave none."""
        return self.properties.get(UNIQ_KEY)

    @property
    def offset_message_id(self) -> str:
        """The id that the broker gave: where the message is stored."""
        return offset_message_id(self.store_host, self.physical_offset)

    @property
    def intact(self) -> bool:
        """Whether the body has the stored CRC-32."""
        return crc32(self.body) & 0x7FFFFFFF == self.body_crc


def body_crc(body: bytes) -> int:
    """The 31-bit CRC-32 that a record keeps of its stored body."""
    return crc32(body) & 0x7FFFFFFF


def encode_record(
    *,
    topic: str,
    queue_id: int,
    queue_offset: int,
    physical_offset: int,
    body: bytes,
    properties: bytes,
    flag: int,
    sys_flag: int,
    born_timestamp: int,
    born_host: bytes,
    store_timestamp: int,
    store_host: bytes,
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
) -> bytes:
    """One V1 record.

    Raises:
        ProtocolError: a host whose length differs from its sysFlag bit, a topic over 127 bytes,
            properties over 32767 bytes, or a number out of its range.
    """
    name = topic.encode()
    head = HEADS[(sys_flag >> 4) & 3]
    if len(name) > TOPIC_MAX or len(properties) > PROPERTIES_MAX:
        raise ProtocolError("a record takes a topic of 127 and properties of 32767 bytes at most")
    if len(born_host) != (20 if sys_flag & 0x10 else 8) or len(store_host) != (20 if sys_flag & 0x20 else 8):
        raise ProtocolError("a host of a record does not have the length that sysFlag says")
    tail = bytes((len(name),)) + name
    record = bytearray(head.size + len(body) + len(tail) + 2 + len(properties))
    try:
        pack_into(
            record,
            0,
            queue_id,
            flag,
            queue_offset,
            physical_offset,
            sys_flag,
            born_timestamp,
            born_host,
            store_timestamp,
            store_host,
            reconsume_times,
            prepared_transaction_offset,
            body,
            tail,
            properties,
        )
    except struct.error as error:
        raise ProtocolError(f"a field of the record is out of range: {error}") from None
    return bytes(record)


def pack_into(
    memory: mmap | bytearray | memoryview,
    at: int,
    queue_id: int,
    flag: int,
    queue_offset: int,
    physical_offset: int,
    sys_flag: int,
    born_timestamp: int,
    born_host: bytes,
    store_timestamp: int,
    store_host: bytes,
    reconsume_times: int,
    prepared_transaction_offset: int,
    body: bytes,
    topic_tail: bytes,
    properties: bytes,
    /,
) -> int:
    """Write one V1 record at ``memory[at:]``, where there is room for it; returns its size.

    The only writer of records in Python; all checks are the caller's. ``topic_tail`` is the length of the topic's name
    in one byte and the name in UTF-8. Nothing is written when it raises.

    Raises:
        struct.error: a number out of the range of its field, or properties over 65535 bytes.
    """
    head = HEADS[(sys_flag >> 4) & 3]
    length = len(body)
    size = head.size + length + len(topic_tail) + 2 + len(properties)
    memory[at : at + size] = b"".join(
        (
            head.pack(
                size,
                MAGIC_V1,
                crc32(body) & 0x7FFFFFFF,
                queue_id,
                flag,
                queue_offset,
                physical_offset,
                sys_flag,
                born_timestamp,
                born_host,
                store_timestamp,
                store_host,
                reconsume_times,
                prepared_transaction_offset,
                length,
            ),
            body,
            topic_tail,
            _SHORT.pack(len(properties)),
            properties,
        )
    )
    return size


def decode_record(data: bytes | memoryview, position: int = 0, *, check: bool = False) -> Record:
    """The record at ``position``; with ``check`` its body must have the stored CRC.

    Raises:
        ProtocolError: no record, a record cut short or with lengths that do not agree.
    """
    raw = data if isinstance(data, bytes) else bytes(data)
    record = _decode(raw, position)
    if check and not record.intact:
        raise ProtocolError(f"the body of the record at {position} does not have its CRC")
    return record


def decode_records(data: bytes | memoryview, *, check: bool = False) -> list[Record]:
    """All records of a buffer, which they must fill exactly (the body of a pull's reply).

    Raises:
        ProtocolError: as ``decode_record``.
    """
    raw = data if isinstance(data, bytes) else bytes(data)
    position, end = 0, len(raw)
    records = []
    while position < end:
        record = _decode(raw, position)
        if check and not record.intact:
            raise ProtocolError(f"the body of the record at {position} does not have its CRC")
        records.append(record)
        position += record[0]
    return records


Outline = tuple[int, int, int, int, int]
"""Size, magic, queue offset, sysFlag and the body's length of a record."""


def outline(data: bytes) -> tuple[list[int], list[Outline]]:
    """Where each record of a buffer begins, and what is to be known before it is read.

    The records must fill the buffer exactly. What ``decode_record`` could refuse later is refused here, but for a topic
    that is not UTF-8.

    Raises:
        ProtocolError: as ``decode_record``.
    """
    unpack = _OUTLINE.unpack_from
    places: list[int] = []
    found: list[Outline] = []
    position, end = 0, len(data)
    try:
        while position < end:
            size, magic, _, sys_flag, length = head = unpack(data, position)
            if magic == MAGIC_V1 and not sys_flag & 0x30 and length >= 0:
                topic_at = position + 88 + length
                start = topic_at + 3 + data[topic_at]
                following = start + (data[start - 2] << 8 | data[start - 1])
                if following != position + size or following > end:
                    raise ProtocolError(f"the lengths in the record at {position} do not agree")
            else:
                record = _decode(data, position)
                head = (size, magic, record.queue_offset, record.sys_flag, record.body_length)
                following = position + size
            places.append(position)
            found.append(head)
            position = following
    except (struct.error, IndexError):
        raise ProtocolError(f"no whole record at {position}") from None
    return places, found


def stored_body(data: bytes, position: int, head: Outline) -> bytes:
    """The body, as it is stored, of the record at ``position`` that ``outline`` has found."""
    start = position + (88 if not head[3] & 0x30 else HEADS[(head[3] >> 4) & 3].size)
    return data[start : start + head[4]]


def properties_of(record: bytes | memoryview) -> bytes:
    """The properties text of a whole record, without reading the rest of it; empty for bytes that are no record."""
    try:
        at = HEADS[(record[39] >> 4) & 3].size
        at += int.from_bytes(record[at - 4 : at], "big")
        long = record[7] == MAGIC_V2 & 0xFF
        at += 2 + int.from_bytes(record[at : at + 2], "big") if long else 1 + record[at]
        start = at + 2
        return bytes(record[start : start + int.from_bytes(record[at:start], "big")])
    except IndexError:
        return b""


def _decode(raw: bytes, position: int) -> Record:
    try:
        hosts = (raw[position + 39] >> 4) & 3
        head = HEADS[hosts] if hosts else _HEAD
        fields = head.unpack_from(raw, position)
        size = fields[0]
        body_at = position + head.size
        topic_at = body_at + fields[14] + 1
        if fields[1] == MAGIC_V1:
            name_end = topic_at + raw[topic_at - 1]
        elif fields[1] == MAGIC_V2:
            name_end = topic_at + 1 + (raw[topic_at - 1] << 8 | raw[topic_at])
            topic_at += 1
        else:
            raise ProtocolError(f"no record begins at {position}: magic {fields[1]:#x}")
        start = name_end + 2
        end = start + (raw[start - 2] << 8 | raw[start - 1])
        if fields[14] < 0 or end - position != size or end > len(raw):
            raise ProtocolError(f"the lengths in the record at {position} do not agree")
        return tuple.__new__(
            Record,
            (
                *fields,
                raw[body_at : topic_at - 1 - (fields[1] == MAGIC_V2)],
                str(raw[topic_at:name_end], "utf-8"),
                raw[start:end],
            ),
        )
    except (struct.error, IndexError, UnicodeDecodeError):
        raise ProtocolError(f"no whole record at {position}") from None


def encode_blank(size: int) -> bytes:
    """The 8 bytes that begin the unused ``size`` bytes at the end of a commit log file."""
    return _BLANK.pack(size, MAGIC_BLANK)


def peek(data: bytes | memoryview, position: int = 0) -> tuple[int, int]:
    """Size and magic of what is stored at ``position`` (which must leave 8 bytes)."""
    size, magic = _BLANK.unpack_from(data, position)
    return size, magic


class BatchEntry(NamedTuple):
    """One message of a batch body."""

    flag: int
    body: bytes
    properties: bytes


def encode_batch(entries: Iterable[tuple[int, bytes, bytes]]) -> bytes:
    """The body of a batch send (code 320): per entry sizes, flag, body and properties.

    Raises:
        ProtocolError: properties over 32767 bytes.
    """
    parts: list[bytes] = []
    for flag, body, properties in entries:
        head, length = entry_frame(flag, len(body), len(properties))
        parts += (head, body, length, properties)
    return b"".join(parts)


def entry_frame(flag: int, body_length: int, properties_length: int) -> tuple[bytes, bytes]:
    """What stands before the body of a batch's entry, and between its body and its properties.

    Raises:
        ProtocolError: properties over 32767 bytes.
    """
    if properties_length > PROPERTIES_MAX:
        raise ProtocolError("properties of a batch entry take more than 32767 bytes")
    size = ENTRY_SIZE + body_length + properties_length
    return _ENTRY.pack(size, 0, 0, flag, body_length), _SHORT.pack(properties_length)


def decode_batch(data: bytes) -> list[BatchEntry]:
    """The messages of a batch body.

    Raises:
        ProtocolError: lengths that do not agree with one another or with the body.
    """
    entries = []
    position, end = 0, len(data)
    while position < end:
        try:
            size, _, _, flag, length = _ENTRY.unpack_from(data, position)
            body_at = position + 20
            start = body_at + length + 2
            stop = start + (data[start - 2] << 8 | data[start - 1])
        except (struct.error, IndexError):
            raise ProtocolError("a batch body is cut short") from None
        if length < 0 or stop > end or stop - position != size:
            raise ProtocolError("the lengths in a batch body do not agree")
        entries.append(BatchEntry(flag, data[body_at : start - 2], data[start:stop]))
        position = stop
    return entries


def host_bytes(address: str, port: int) -> bytes:
    """A record's form of an IPv4 or IPv6 address and a port: 8 or 20 bytes.

    Raises:
        ProtocolError: not an address, or a port outside 0..65535.
    """
    try:
        raw = ip_address(address.strip("[]")).packed
    except ValueError:
        raise ProtocolError(f"{address!r} is not an IP address") from None
    if not 0 <= port <= 65535:
        raise ProtocolError(f"{port} is not a port")
    return raw + port.to_bytes(4, "big")


def host_text(host: bytes) -> str:
    """``address:port`` of a record's host; the brackets of IPv6 are left out, as Java does."""
    if len(host) == 8:
        return f"{host[0]}.{host[1]}.{host[2]}.{host[3]}:{int.from_bytes(host[4:], 'big')}"
    if len(host) == 20:
        return f"{IPv6Address(host[:16])}:{int.from_bytes(host[16:], 'big')}"
    raise ProtocolError(f"a host takes 8 or 20 bytes, not {len(host)}")
