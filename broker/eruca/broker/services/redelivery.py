"""Delivery of a waiting message: its record is appended again, in the queue where it is to be consumed.

Owns how a waiting record becomes a delivered one: body, flags, born time and hosts, and reconsume times stay; the store
time is new. Must not know when a message is due. Facts: ScheduleMessageService.messageTimeup in 4.9.7.
"""

from __future__ import annotations

from typing import NamedTuple

import structlog

from eruca.broker.state.statistics import Statistics
from eruca.broker.store import Store
from eruca.broker.store.results import PutStatus
from eruca.protocol import names, properties_text
from eruca.protocol.errors import ProtocolError
from eruca.protocol.record import Record, decode_record

log = structlog.get_logger("eruca.broker")


class Waiting(NamedTuple):
    """A waiting record and its destination."""

    record: Record
    topic: str
    queue_id: int


def record_at(store: Store, physical_offset: int) -> Record | None:
    """The record at an offset of the commit log; None if there is none, or it cannot be read."""
    data = store.record(physical_offset)
    try:
        return None if data is None else decode_record(data)
    except ProtocolError:
        return None


def record_of(store: Store, topic: str, queue_id: int, offset: int, physical_offset: int) -> Record | None:
    """The record at an offset of the log; None if it is damaged or lost, or is not the one at this place of a queue."""
    record = record_at(store, physical_offset)
    if record is None or (record.topic, record.queue_id, record.queue_offset) != (topic, queue_id, offset):
        return None
    return record


def waiting_at(store: Store, topic: str, queue_id: int, offset: int, physical_offset: int) -> Waiting | None:
    """The message in a unit of a waiting queue; None if it is lost or can never be delivered.

    A half message is discarded, as in 4.9.7: nothing would ever decide it.
    """
    record = record_of(store, topic, queue_id, offset, physical_offset)
    if record is None:
        fault = "its record is lost"
    else:
        real = (properties_text.get(record.properties_text, "REAL_TOPIC")).decode("utf-8", "replace")
        number = properties_text.get(record.properties_text, "REAL_QID")
        if names.topic_fault(real) is None and number.isdigit() and len(number) < 10:
            if real != names.TRANS_HALF_TOPIC:
                return Waiting(record, real, int(number))
            fault = "it is the half of a transaction"
        else:
            fault = "it does not name its topic and queue"
    log.error("delayed_message_discarded", topic=topic, queue_id=queue_id, offset=offset, reason=fault)
    return None


class Redelivery:
    """Appends waiting messages to their destination; ``statistics`` counts them as sends."""

    def __init__(self, store: Store, statistics: Statistics) -> None:
        self._store = store
        self._statistics = statistics

    def put(self, record: Record, topic: str, queue_id: int, properties: bytes) -> bool:
        """Append ``record`` again; False if the store refuses it for now and the caller must retry."""
        put = self._store.appender.put(
            topic,
            queue_id,
            record.body,
            properties,
            flag=record.flag,
            sys_flag=record.sys_flag,
            born_timestamp=record.born_timestamp,
            born_host=record.born_host,
            store_host=record.store_host,
            reconsume_times=record.reconsume_times,
            accepted=True,
        )
        if put.status is PutStatus.SERVICE_NOT_AVAILABLE:
            return False
        if put.status:
            log.error("delayed_message_discarded", topic=topic, queue_id=queue_id, reason=put.status.name)
        else:
            self._statistics.put(topic, queue_id, 1, put.size)
        return True
