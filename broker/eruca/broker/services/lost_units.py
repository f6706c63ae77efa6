"""All records of a queue, also those whose units in the queue are lost: the log has them.

Owns how they are found. For the queues that say what is decided: one record that is left out, and a transaction is
decided twice, or never. Writes nothing. Must not know what the records mean.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

import structlog

from eruca.broker.services.redelivery import records
from eruca.broker.store import Store
from eruca.broker.store.consume_queue import BLANK_SIZE_MARK
from eruca.protocol.record import Record

log = structlog.get_logger("eruca.broker")


def whole_queue(
    store: Store, topic: str, queue_id: int = 0, begin: int = 0, without: Container[int] = ()
) -> Iterator[Record | None]:
    """What a queue has from ``begin`` on until now, in order; None for each other record that was read to find it.

    What the log itself has lost is left out, and so are the offsets in ``without``. To read the log takes long; it is
    done where units are lost only, or their records.
    """
    begin = max(begin, store.min_offset(topic, queue_id))
    before = next(records(store, topic, queue_id, begin - 1), None)
    place = before[1].physical_offset if before is not None and before[0] < begin else -1
    for offset, record in records(store, topic, queue_id, begin, without):
        left = [each for each in range(begin, offset) if each not in without]
        yield from _between(store, topic, queue_id, left, place, record.physical_offset)
        yield record
        begin, place = offset + 1, record.physical_offset
    left = [each for each in range(begin, store.max_offset(topic, queue_id)) if each not in without]
    yield from _between(store, topic, queue_id, left, place, store.figures().max_offset)


def _between(
    store: Store, topic: str, queue_id: int, offsets: Sequence[int], place: int, end: int
) -> Iterator[Record | None]:
    """The records at these offsets of a queue, whose units do not lead to them, from this part of the log."""
    least = store.figures().min_offset if offsets and place < 0 else 0
    if not any(_may_be_lost(store.unit(topic, queue_id, offset), least, end) for offset in offsets):
        return
    wanted, found = frozenset(offsets), False
    for record in store.records_since(max(place, 0)):
        if record.physical_offset >= end:
            return
        ours = (record.topic, record.queue_id) == (topic, queue_id) and record.queue_offset in wanted
        if ours and not found:
            found = True
            log.error("queue_units_lost", topic=topic, queue_id=queue_id, first=offsets[0], last=offsets[-1])
        yield record if ours else None


def _may_be_lost(unit: tuple[int, int, int] | None, least: int, end: int) -> bool:
    """Whether a unit that leads to no record of its own may have had one that the log has still.

    A blank has none, nor has what fills a gap and leads to ``end``, where the next one lies. A place below ``least``
    had one that is deleted by its age.
    """
    if unit is None or not unit[1]:
        return True
    return unit[1] != BLANK_SIZE_MARK and unit[0] != end and unit[0] >= least
