"""What half messages and op messages contain.

Owns which properties and bytes of a record a half message has in memory, and which offsets an op message closes. Pure;
facts of TransactionalMessageUtil and TransactionalMessageServiceImpl in 4.9.7, and of 5.x's op messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from sys import intern
from typing import NamedTuple

from eruca.broker.state.undecided import Half, Identity
from eruca.broker.store.layout import HalfSent
from eruca.broker.store.results import Put
from eruca.protocol import names
from eruca.protocol.memo import Memo
from eruca.protocol.message import encode_properties
from eruca.protocol.record import Record, body_crc

_PLACES = 4096
_BROKERS = frozenset(
    (
        *(names.CLUSTER, names.DELAY, names.REAL_TOPIC, names.REAL_QUEUE_ID),
        *(names.TRANSACTION_CHECK_TIMES, names.TRAN_PREPARED_QUEUE_OFFSET),
    )
)
"""Properties that the broker reads or writes itself."""


def sent_of(put: Put, values: Mapping[str, str], born: int, body: bytes) -> HalfSent:
    """A half message that was just stored; ``born`` is its producer's time in ms, ``values`` are its properties."""
    return (
        put.queue_offset,
        put.physical_offset,
        put.store_timestamp,
        put.size,
        born,
        body_crc(body),
        values.get(names.UNIQ_KEY),
        values.get(names.PRODUCER_GROUP),
        values.get(names.CHECK_IMMUNITY_TIME_IN_SECONDS),
    )


def half_sent(sent: HalfSent, now: int) -> Half:
    """A half message that a producer has just sent; ``now`` is in ms of the monotonic clock."""
    _, physical_offset, _, size, born, crc, key, group, immunity = sent
    identity = None if key is None else (key, born, crc)
    return Half(physical_offset, now, now, immunity_of(immunity), intern(group or ""), identity, False, size)


def half_of(record: Record, wall: int, now: int) -> Half:
    """A stored half message, as it is in memory; the sender's clock counts only for one that was put back.

    ``wall`` and ``now`` are the time by the wall clock and the monotonic clock, in ms. From here on a jump of the wall
    clock makes the message neither older nor younger.
    """
    stored, properties = record.store_timestamp, record.properties
    copied = names.TRANSACTION_CHECK_TIMES in properties
    begun = min(record.born_timestamp, stored) if copied else stored
    return Half(
        record.physical_offset,
        now - max(wall - begun, 0),
        now - max(wall - stored, 0),
        immunity_of(properties.get(names.CHECK_IMMUNITY_TIME_IN_SECONDS)),
        intern(properties.get(names.PRODUCER_GROUP, "")),
        identity_of(record),
        copied,
        record.size,
    )


class Prepared(NamedTuple):
    """The properties of a half message."""

    text: bytes
    """As they are stored."""
    values: dict[str, str]
    """Those that the producer gave."""
    wait: bool
    """Whether the answer waits until the message is on disk."""


class HalfPlaces(Memo[tuple[str, int], str]):
    """The text that follows the producer's properties in half messages, by their real topic and queue."""

    def __init__(self, cluster: str) -> None:
        super().__init__(_PLACES)
        self._cluster = cluster

    def __missing__(self, place: tuple[str, int]) -> str:
        values = {names.CLUSTER: self._cluster, names.REAL_TOPIC: place[0], names.REAL_QUEUE_ID: str(place[1])}
        return self.remember(place, "\x02" + encode_properties(values).decode())


def prepared(text: str, place: str) -> Prepared | None:
    """The properties of a half message where nothing of them but ``place`` (``HalfPlaces``) is the broker's.

    None for any other message.
    """
    pairs = text.split("\x02")
    if not pairs[-1]:
        pairs.pop()
    try:
        values = dict([pair.split("\x01") for pair in pairs])
        stored = ("\x02".join(pairs) + place).encode()
    except ValueError:  # more or less than a name and a value, or no text
        return None
    if len(values) < len(pairs) or not _BROKERS.isdisjoint(values) or "" in values or "" in values.values():
        return None
    if values.get(names.TRANSACTION_PREPARED, "").lower() != "true" or "TIMER_D" in text:
        return None
    return Prepared(stored, values, values.get(names.WAIT, "true").lower() == "true")


def checks_of(record: Record) -> int:
    """How often the producer was asked about a half message."""
    text = record.properties.get(names.TRANSACTION_CHECK_TIMES, "0")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


def identity_of(record: Record) -> Identity | None:
    """What all copies of a half message have in common; None where its producer gave it no unique key."""
    key = record.unique_key
    return None if key is None else (key, record.born_timestamp, record.body_crc)


def given_up_as(record: Record) -> Identity:
    """What a half message that was given up has in common with its copies; the key is empty where there is none."""
    return identity_of(record) or ("", record.born_timestamp, record.body_crc)


def immunity_of(text: str | None) -> int | None:
    """CHECK_IMMUNITY_TIME_IN_SECONDS in ms; None where there is none or -1, or it is no number."""
    if text is None or not text.isascii() or not text.removeprefix("-").isdecimal() or len(text) > 15 or text == "-1":
        return None
    return int(text) * 1000


def prepared_of(record: Record) -> int | None:
    """The offset of the first copy, in copies that RocketMQ put back in their time of immunity."""
    text = record.properties.get(names.TRAN_PREPARED_QUEUE_OFFSET, "")
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 19 else None


def closed_by(op: Record) -> list[int]:
    """The half queue offsets that an op message closes: one in 4.x, several with commas in 5.x."""
    if op.tags != "d":
        return []
    parts = op.body.split(b",")
    return [int(part) for part in parts if part.isdigit() and len(part) < 20]
