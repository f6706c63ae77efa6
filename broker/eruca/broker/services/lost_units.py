"""All records of a queue, also those whose units in the queue are lost: the log has them.

Owns how they are found. For the queues that say what is decided: one record that is left out, and a transaction is
decided twice, or never. Writes nothing. Must not know what the records mean.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import groupby

import structlog

from eruca.broker.services.redelivery import queued, records
from eruca.broker.store import Store
from eruca.broker.store.consume_queue import BLANK_SIZE_MARK
from eruca.protocol.record import Record

log = structlog.get_logger("eruca.broker")


def whole_queue(
    store: Store, topic: str, queue_id: int = 0, begin: int = 0, without: Container[int] = ()
) -> Iterator[Record | None]:
    """What a queue has from ``begin`` on until now, in order; None for each other record that was read to find it.

    What the log itself has lost is left out, and so are the offsets in ``without``. To read the log takes long; it is
    done where units are lost only, or their records, and from the one before to the one behind.
    """
    begin, last = max(begin, store.min_offset(topic, queue_id)), store.max_offset(topic, queue_id)
    for offset, record in records(store, topic, queue_id, begin, without):
        yield from _lacking(store, topic, queue_id, range(begin, offset), without)
        yield record
        begin = offset + 1
    yield from _lacking(store, topic, queue_id, range(begin, last), without)


def _lacking(
    store: Store, topic: str, queue_id: int, offsets: range, without: Container[int]
) -> Iterator[Record | None]:
    """The records at these offsets of a queue, to which no unit leads."""
    for is_wanted, run in groupby(offsets, lambda offset: offset not in without):
        if is_wanted:
            lacking = list(run)
            yield from _between(store, topic, queue_id, range(lacking[0], lacking[-1] + 1))


def _between(store: Store, topic: str, queue_id: int, offsets: range) -> Iterator[Record | None]:
    """The same of offsets that follow one another, from the part of the log between the records around them."""
    least_offset = store.min_offset(topic, queue_id)
    offsets = range(max(offsets.start, least_offset), offsets.stop)
    before = (_place(store, topic, queue_id, each) for each in range(offsets.start - 1, least_offset - 1, -1))
    behind = (_place(store, topic, queue_id, each) for each in range(offsets.stop, store.max_offset(topic, queue_id)))
    figures = store.figures()
    place = next((each for each in before if each is not None), -1)
    end = next((each for each in behind if each is not None), figures.max_offset)
    least = figures.min_offset if place < 0 else 0
    if not any(_may_be_lost(store.unit(topic, queue_id, offset), least, end) for offset in offsets):
        return
    found = False
    for record in store.records_since(max(place, 0)):
        if record.physical_offset >= end:
            return
        ours = (record.topic, record.queue_id) == (topic, queue_id) and record.queue_offset in offsets
        if not ours or not record.intact:
            yield None
            continue
        if not found:
            found = True
            log.error("queue_units_lost", topic=topic, queue_id=queue_id, first=offsets[0], last=offsets[-1])
        yield record


def _place(store: Store, topic: str, queue_id: int, offset: int) -> int | None:
    """Where the record of a unit lies; None for one that does not lead to it."""
    record = queued(store, topic, queue_id, offset)
    return None if record is None else record.physical_offset


def _may_be_lost(unit: tuple[int, int, int] | None, least: int, end: int) -> bool:
    """Whether a unit that leads to no record of its own may have had one that the log has still.

    A blank has none, nor has what fills a gap and leads to ``end``, where the next one lies. A place below ``least``
    had one that is deleted by its age.
    """
    if unit is None or not unit[1]:
        return True
    return unit[1] != BLANK_SIZE_MARK and unit[0] != end and unit[0] >= least
