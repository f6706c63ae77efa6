"""What brokers of a group that elects its master say to each other on the HA port: bytes to values, and back.

Owns the form. The replica begins with ``MAGIC``; then each message, in both directions, is its size (4 bytes), its kind
(1) and its body; numbers are big-endian. The magic is no end of a log, so that a master outside the mode turns the
replica away. Pure: bytes to values, in any chunking. Invariant: a part of the log belongs to one epoch, which stands in
front of it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from eruca.broker.failover.epochs import Epoch
from eruca.broker.failover.events import Welcomed
from eruca.broker.services.failover.ports import Frame, TableFrame
from eruca.broker.services.failover.tails import Tail
from eruca.protocol.errors import ProtocolError

MAGIC: Final = b"ERUCAHA\x01"
"""With the number of the protocol's version."""
LARGEST: Final = 64 << 20
"""Bytes of a message, at most."""
TOGETHER: Final = 256 << 10
"""Bytes of the log that are read as one part; a last one may go beyond."""
_HEAD: Final = struct.Struct(">IB")
_HEAD_SIZE: Final = _HEAD.size
_REPORT: Final = struct.Struct(">iqq")
_WHOLE_REPORT: Final = struct.Struct(">IBiqq")
_PART: Final = struct.Struct(">iiqqq")
_PART_SIZE: Final = _PART.size
_PART_HEAD: Final = struct.Struct(">IBiiqqq")
_TABLES: Final = struct.Struct(">iq")
_BEAT: Final = struct.Struct(">iqq")
_STAMP: Final = struct.Struct(">q")


class Kind(IntEnum):
    """What a message is."""

    HELLO = 1
    WELCOME = 2
    REFUSED = 3
    PART = 4
    BEAT = 5
    REPORT = 6
    HEARD = 7
    TABLES = 8


PART: Final = Kind.PART
REPORT: Final = Kind.REPORT
"""Each message asks for these; a member of an enumeration is looked up slowly by its class."""
_KINDS: Final = {int(each): each for each in Kind}
_epoch = lru_cache(64)(Epoch)
"""One object for the parts of one epoch, which are many."""


class Hello(msgspec.Struct, rename="camel", frozen=True):
    """A replica shakes hands, and expects a master of this epoch."""

    group: str
    broker_id: int
    store: str
    epoch: int
    tail: Tail | None = None
    """The end of a log that has no epochs."""


class Beat(NamedTuple):
    """A heartbeat of the master; ``stamp`` comes back in the answer."""

    master_epoch: int
    confirmed: int
    stamp: int


class _Welcome(msgspec.Struct, rename="camel"):
    master_epoch: int
    epochs: list[tuple[int, int]]
    end: int
    confirmed: int
    same: int = 0


def message(kind: Kind, body: bytes) -> bytes:
    """A whole message."""
    return _HEAD.pack(len(body), kind) + body


def hello(said: Hello) -> bytes:
    """The first message of a replica, with the magic."""
    return MAGIC + message(Kind.HELLO, msgspec.json.encode(said))


def welcome(answer: Welcomed) -> bytes:
    """The master's answer to it."""
    body = _Welcome(
        answer.master_epoch,
        [(each.epoch, each.start) for each in answer.epochs],
        answer.end,
        answer.confirmed,
        answer.same,
    )
    return message(Kind.WELCOME, msgspec.json.encode(body))


def refused(reason: str) -> bytes:
    """The master's answer when it does not welcome a replica; it closes the connection."""
    return message(Kind.REFUSED, reason.encode())


def part_head(master_epoch: int, part: Epoch, offset: int, size: int, confirmed: int) -> bytes:
    """What stands in front of a part of the log with ``size`` bytes."""
    return _PART_HEAD.pack(_PART.size + size, PART, master_epoch, part.epoch, part.start, offset, confirmed)


def beat(said: Beat) -> bytes:
    """A heartbeat."""
    return message(Kind.BEAT, _BEAT.pack(*said))


def heard(stamp: int) -> bytes:
    """The answer to a heartbeat."""
    return message(Kind.HEARD, _STAMP.pack(stamp))


def report(epoch: int, end: int, number: int) -> bytes:
    """Where a replica's log ends, in the epoch in which it follows, and the number of the tables that it has."""
    return _WHOLE_REPORT.pack(_REPORT.size, REPORT, epoch, end, number)


def tables(master_epoch: int, number: int, body: bytes) -> bytes:
    """Changes of tables up to a number."""
    return message(Kind.TABLES, _TABLES.pack(master_epoch, number) + body)


class MessageReader:
    """Reassembles messages."""

    def __init__(self) -> None:
        self._rest = bytearray()
        """What came of a message that is not whole."""

    def feed(self, data: bytes) -> list[tuple[Kind, bytes]]:
        """The messages that ``data`` completes. Raises ProtocolError for what is none of a group."""
        come: bytes | bytearray = data
        if self._rest:
            self._rest += data
            come = self._rest
        found, at, length = [], 0, len(come)
        while length - at >= _HEAD_SIZE:
            size, number = _HEAD.unpack_from(come, at)
            kind = _KINDS.get(number)
            if kind is None or size > LARGEST:
                raise ProtocolError(f"no message of a group has {size} bytes and kind {number}")
            start = at + _HEAD_SIZE
            end = start + size
            if end > length:
                break
            found.append((kind, bytes(come[start:end])))
            at = end
        if self._rest:
            del self._rest[:at]
        elif at < length:
            self._rest += data[at:]
        return found


def read_hello(body: bytes) -> Hello:
    """Raises ProtocolError."""
    try:
        return msgspec.json.decode(body, type=Hello)
    except msgspec.MsgspecError as fault:
        raise ProtocolError(f"no greeting of a replica: {fault}") from None


def read_welcome(body: bytes) -> Welcomed:
    """Raises ProtocolError."""
    try:
        found = msgspec.json.decode(body, type=_Welcome)
    except msgspec.MsgspecError as fault:
        raise ProtocolError(f"no answer of a master: {fault}") from None
    epochs = tuple(Epoch(*entry) for entry in found.epochs)
    return Welcomed(found.master_epoch, epochs, found.end, found.confirmed, found.same)


def read_part(body: bytes) -> Frame:
    """Raises ProtocolError."""
    try:
        epoch, part_epoch, start, offset, confirmed = _PART.unpack_from(body)
    except struct.error as fault:
        raise _cut_short(fault) from None
    return Frame(epoch, _epoch(part_epoch, start), offset, memoryview(body)[_PART_SIZE:], confirmed)


def read_parts(came: Sequence[tuple[Kind, bytes]], at: int) -> tuple[Frame, int]:
    """The part of the log that is the message at ``at``, with those that go on where it ends, as one; and where the
    next message is. Raises ProtocolError."""
    first = last = read_part(came[at][1])
    at += 1
    if at == len(came):
        return first, at
    data, size = [first.data], 0
    while at < len(came) and came[at][0] is PART and size < TOGETHER:
        part = read_part(came[at][1])
        if not _follows(last, part):
            break
        last = part
        data.append(part.data)
        size += len(part.data)
        at += 1
    return (first if last is first else replace(last, offset=first.offset, data=b"".join(data))), at


def _follows(one: Frame, other: Frame) -> bool:
    """Whether a part of the log goes on where another one ends, in the same epochs."""
    return (
        one.offset + len(one.data) == other.offset and one.part == other.part and one.master_epoch == other.master_epoch
    )


def read_beat(body: bytes) -> Beat:
    """Raises ProtocolError."""
    return Beat(*_unpacked(_BEAT, body))


def read_report(body: bytes) -> tuple[int, int, int]:
    """Epoch, end and number of the tables. Raises ProtocolError."""
    try:
        return _REPORT.unpack(body)
    except struct.error as fault:
        raise _cut_short(fault) from None


def read_tables(body: bytes) -> TableFrame:
    """Raises ProtocolError."""
    epoch, number = _unpacked(_TABLES, body[: _TABLES.size])
    return TableFrame(epoch, number, body[_TABLES.size :])


def read_heard(body: bytes) -> int:
    """The stamp. Raises ProtocolError."""
    return _unpacked(_STAMP, body)[0]


def _unpacked(form: struct.Struct, body: bytes) -> tuple[int, ...]:
    try:
        return form.unpack(body)
    except struct.error as fault:
        raise _cut_short(fault) from None


def _cut_short(fault: struct.error) -> ProtocolError:
    return ProtocolError(f"a message of a group is cut short: {fault}")
