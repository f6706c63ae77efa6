"""All records of a queue, also those whose units in the queue are lost: the log has them.

Owns how they are found, and says what the log has lost, too. For the queues that say what is decided: one record that
is left out, and a transaction is decided twice, or never. Writes nothing. Must not know what the records mean.
"""

from __future__ import annotations

from collections.abc import Container, Generator, Iterable, Iterator

import structlog

from eruca.broker.services.redelivery import record_of
from eruca.broker.store import Store
from eruca.broker.store.consume_queue import BLANK_SIZE_MARK, place_of
from eruca.protocol.record import Record

log = structlog.get_logger("eruca.broker")


def whole_queue(
    store: Store, topic: str, queue_id: int = 0, begin: int = 0, without: Container[int] = ()
) -> Iterator[Record | None]:
    """What a queue has from ``begin`` on until now, in order; None for each other unit or record that was read to find
    it.

    What the log itself has lost is left out, and so are the offsets in ``without``. To read the log takes long; it is
    done where units are lost only, or their records, and from the one before to the one behind.
    """
    lacking: list[int] = []
    for offset in range(max(begin, store.min_offset(topic, queue_id)), store.max_offset(topic, queue_id)):
        if offset in without:
            continue
        record = _queued(store, topic, queue_id, offset)
        if record is None:
            lacking.append(offset)
        elif lacking:
            yield from _lacking(store, topic, queue_id, lacking)
            lacking = []
        yield record
    if lacking:
        yield from _lacking(store, topic, queue_id, lacking)


def _queued(store: Store, topic: str, queue_id: int, offset: int) -> Record | None:
    """The record to which the unit of a queue leads; None where it leads to no record of its own."""
    place = place_of(store.unit(topic, queue_id, offset))
    return None if place is None else record_of(store, topic, queue_id, offset, place)


def _lacking(store: Store, topic: str, queue_id: int, lacking: list[int]) -> Iterator[Record | None]:
    """The records at these offsets of a queue, to which no unit leads: from the log between the records around them."""
    before = range(lacking[0] - 1, store.min_offset(topic, queue_id) - 1, -1)
    place = yield from _nearest(store, topic, queue_id, before, -1)
    behind = range(lacking[-1] + 1, store.max_offset(topic, queue_id))
    end = yield from _nearest(store, topic, queue_id, behind, store.figures().max_offset)
    if not _lost(store, topic, queue_id, lacking, place, end):
        return
    wanted, found = set(lacking), set[int]()
    for record in store.records_since(max(place, 0)):
        if record.physical_offset >= end:
            break
        ours = (record.topic, record.queue_id) == (topic, queue_id) and record.queue_offset in wanted
        if ours and record.intact:
            found.add(record.queue_offset)
            yield record
        else:
            yield None
    if found:
        log.error("queue_units_lost", topic=topic, queue_id=queue_id, **_span(sorted(found)))
    missing = [offset for offset in _lost(store, topic, queue_id, lacking, place, end) if offset not in found]
    if missing:
        log.error("queue_records_lost", topic=topic, queue_id=queue_id, **_span(missing))


def _span(offsets: list[int]) -> dict[str, int]:
    return {"first": offsets[0], "last": offsets[-1], "count": len(offsets)}


def _nearest(
    store: Store, topic: str, queue_id: int, offsets: Iterable[int], otherwise: int
) -> Generator[None, None, int]:
    """Where the record of the first of these units lies that leads to one."""
    for offset in offsets:
        record = _queued(store, topic, queue_id, offset)
        if record is not None:
            return record.physical_offset
        yield
    return otherwise


def _lost(store: Store, topic: str, queue_id: int, lacking: list[int], place: int, end: int) -> list[int]:
    """Those of the offsets whose record the log may have still, between ``place`` and ``end``.

    A unit that can lead to a record, but to none of its own, had one that is deleted by its age if it leads to before
    the log, and no record of the queue lies before it. What fills a gap leads to ``end``, where the next one lies, and
    has none, nor has a blank.
    """
    begin, least = store.min_offset(topic, queue_id), store.figures().min_offset
    if place >= least:
        least = 0
    found = []
    for offset in (each for each in lacking if each >= begin):
        unit = store.unit(topic, queue_id, offset)
        led = place_of(unit)
        if (unit is None or unit[1] != BLANK_SIZE_MARK) and (led is None or (led != end and led >= least)):
            found.append(offset)
    return found
