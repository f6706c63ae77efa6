"""Recovery of delayed delivery: what was delivered since the last mark, read from the log itself.

Owns how a delivered copy is recognized. The log decides, so no crash makes a message arrive twice or never. Must not
know when anything is due. Invariant: a unit counts as delivered only if the log holds a copy of the very record that
waits in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from eruca.broker.services.redelivery import Waiting, record_at, waiting_at
from eruca.broker.services.timers import origin_of
from eruca.broker.state.delay_mark import Deliveries
from eruca.broker.state.settled import Settled
from eruca.broker.store import Store
from eruca.protocol import properties_text
from eruca.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC
from eruca.protocol.record import Record

ANOTHER_WROTE = 256 << 20
"""A cleanly closed log with more bytes than these after the mark is not read: RocketMQ wrote it."""


Records = Callable[[int], Iterable[Record]]
"""All records of the log from an offset on that may be copies of what was delivered."""


class Delivered(NamedTuple):
    """The offset of each level, and the settled units of the timer queue."""

    levels: dict[int, int]
    settled: Settled


def delivered(
    store: Store, mark: Deliveries | None, in_file: Mapping[int, int], levels: int, records: Records
) -> Delivered:
    """What was delivered of ``levels`` levels by the mark, by ``delayOffset.json`` (``in_file``), and by the log after
    the mark, of which ``records`` gives the records.

    The file wins over the mark: if it is behind, an operator set it back; if it is ahead, RocketMQ has delivered since.
    Without a mark the file decides about the levels it names, and the log about all others and the timer queue.
    """
    if mark is None:
        return _delivered_without_mark(store, in_file, levels, records)
    settled = Settled(mark.base, mark.bits)
    settled.cut(store.max_offset(TIMER_TOPIC, 0))
    counted = {}
    for level in range(1, levels + 1):
        offset = mark.levels.get(level, 0)
        if in_file.get(level, offset) >= offset:
            counted[level] = max(offset, store.min_offset(SCHEDULE_TOPIC, level - 1))
    if mark.copied or not (store.recovery.clean and store.figures().max_offset - mark.position > ANOTHER_WROTE):
        _read(store, records(mark.position), counted, settled)
    known = [level for level in range(1, levels + 1) if level in in_file or store.max_offset(SCHEDULE_TOPIC, level - 1)]
    return Delivered({level: max(in_file.get(level, 0), counted.get(level, 0)) for level in known}, settled)


def _delivered_without_mark(store: Store, in_file: Mapping[int, int], levels: int, records: Records) -> Delivered:
    settled = Settled(store.min_offset(TIMER_TOPIC, 0))
    unknown = [level for level in range(1, levels + 1) if level not in in_file]
    counted = {level: store.min_offset(SCHEDULE_TOPIC, level - 1) for level in unknown}
    firsts = [store.unit(SCHEDULE_TOPIC, level - 1, offset) for level, offset in counted.items()]
    found = [unit[0] for unit in (store.unit(TIMER_TOPIC, 0, settled.first), *firsts) if unit is not None]
    if found:
        _read(store, records(min(found)), counted, settled)
    there = {level: offset for level, offset in counted.items() if store.max_offset(SCHEDULE_TOPIC, level - 1)}
    return Delivered({**in_file, **there}, settled)


def is_of_level(record: Record) -> bool:
    """Whether a record may be the copy of a message that waited in a level."""
    return b"DELAY\x01" in record.properties_text and record.topic not in (SCHEDULE_TOPIC, TIMER_TOPIC)


def is_of_timers(record: Record) -> bool:
    """Whether a record may be the copy of a message with a delay of its own."""
    return b"TIMER_ORIGIN\x01" in record.properties_text


def _read(store: Store, records: Iterable[Record], levels: dict[int, int], settled: Settled) -> None:
    for copy in records:
        if is_of_level(copy):
            level = properties_text.get(copy.properties_text, "DELAY")
            if level.isdigit() and len(level) < 10 and int(level) in levels:
                _count(store, int(level), copy.physical_offset, levels)
        if is_of_timers(copy):
            settle_by_origin(store, properties_text.get(copy.properties_text, "TIMER_ORIGIN"), settled)


def _count(store: Store, level: int, copy_offset: int, levels: dict[int, int]) -> None:
    """Advance a level if the record at ``copy_offset`` is the copy of its next message."""
    waiting: Waiting | None = None
    while waiting is None:
        unit = store.unit(SCHEDULE_TOPIC, level - 1, levels[level])
        if unit is None or unit[0] > copy_offset:
            return
        waiting = waiting_at(store, SCHEDULE_TOPIC, level - 1, levels[level], unit[0])
        if waiting is None:
            levels[level] += 1  # can never be delivered
    copy = record_at(store, copy_offset)
    record = waiting.record
    if copy is not None and copy == record._replace(
        size=copy.size,
        topic=waiting.topic,
        queue_id=waiting.queue_id,
        queue_offset=copy.queue_offset,
        physical_offset=copy.physical_offset,
        store_timestamp=copy.store_timestamp,
    ):
        levels[level] += 1


def settle_by_origin(store: Store, origin: bytes, settled: Settled) -> None:
    """Settle the unit that a copy names, if the copy was made of the record that waits there."""
    number = origin.partition(b"@")[0]
    if not (number.isdigit() and len(number) < 13) or int(number) in settled:
        return
    unit = store.unit(TIMER_TOPIC, 0, int(number))
    record = record_at(store, unit[0]) if unit is not None else None
    if record is not None and record.topic == TIMER_TOPIC and origin_of(record).encode() == origin:
        settled.add(int(number))
