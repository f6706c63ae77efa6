"""Consumer offsets: stored, reported, and reset.

Owns the text formats of every table of offsets.  Must not know how offsets are stored or
changed.
"""

from typing import Any, Self

import msgspec

from eruca.protocol import fastjson
from eruca.protocol.bodies.body import Body
from eruca.protocol.errors import ProtocolError
from eruca.protocol.queues import Int32, Int64, MessageQueue


class ConsumerOffsets(Body):
    """Committed offsets by ``topic@group`` and queue id: the answer to 43 and
    ``consumerOffset.json``."""

    offset_table: dict[str, dict[Int32, Int64]] = msgspec.field(default_factory=dict)


class DelayOffsetSerializeWrapper(Body):
    """Delivered offset of each delay level: the answer to 45 and ``delayOffset.json``."""

    offset_table: dict[Int32, Int64] = msgspec.field(default_factory=dict)


class CorrectionOffsets(Body):
    """Offsets by queue id, the answer to 308 (``QueryCorrectionOffsetBody``)."""

    correction_offsets: dict[Int32, Int64] = msgspec.field(default_factory=dict)


class OffsetMovedEvent(Body):
    """The body of a message in OFFSET_MOVED_EVENT: a group asked for an offset that is out of range."""

    consumer_group: str = ""
    message_queue: MessageQueue = msgspec.field(default_factory=MessageQueue)
    offset_new: Int64 = 0
    offset_request: Int64 = 0

    def __str__(self) -> str:
        return (
            f"OffsetMovedEvent [consumerGroup={self.consumer_group}, messageQueue={self.message_queue}, "
            f"offsetRequest={self.offset_request}, offsetNew={self.offset_new}]"
        )


class ResetOffsetBody(Body):
    """An offset for each queue: the body of 220 and the answer to 222.

    Reads the map form of Java, the list form for C++ members
    (``[{"brokerName":…,"offset":…}]``) and the pairs of gson (``[[{…},5]]``).
    """

    offset_table: dict[MessageQueue, Int64] = msgspec.field(default_factory=dict)

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview) -> Self:
        """Read any of the three forms; raises ProtocolError for anything else."""
        value = fastjson.loads(data)
        table = value.get("offsetTable") if isinstance(value, dict) else None
        if not isinstance(table, list):
            return fastjson.fit(cls, value)
        if table and isinstance(table[0], list):
            return cls(offset_table=dict(_read_pair(pair) for pair in table))
        entries = fastjson.fit(list[_Entry], table)
        return cls(offset_table={each.queue(): each.offset for each in entries})

    def encode_list(self) -> bytes:
        """The list form, which C++ members expect in a 220 and no other member does."""
        entries = [
            _Entry(topic=mq.topic, broker_name=mq.broker_name, queue_id=mq.queue_id, offset=at)
            for mq, at in self.offset_table.items()
        ]
        return _Entries(offset_table=entries).encode()


class _Entry(Body):
    """One queue and its offset (``MessageQueueForC`` in 4.9.7)."""

    broker_name: str = ""
    offset: Int64 = 0
    queue_id: Int32 = 0
    topic: str = ""

    def queue(self) -> MessageQueue:
        return MessageQueue(self.topic, self.broker_name, self.queue_id)


class _Entries(Body):
    offset_table: list[_Entry] = msgspec.field(default_factory=list)


def _read_pair(pair: Any) -> tuple[MessageQueue, int]:
    if not isinstance(pair, list) or len(pair) != 2:
        raise ProtocolError("offsetTable: a pair of queue and offset expected")
    return fastjson.fit(MessageQueue, pair[0]), fastjson.fit(Int64, pair[1])


class LocalOffsets(Body):
    """The offsets of a broadcasting consumer, as its ``offsets.json`` holds them
    (written with Style.PRETTY)."""

    offset_table: dict[MessageQueue, Int64] = msgspec.field(default_factory=dict)


class GetConsumerStatusBody(Body):
    """Offsets of the queues of clients, the answers to 221 (``message_queue_table``, one
    client) and 223 (``consumer_table``, by client id)."""

    consumer_table: dict[str, dict[MessageQueue, Int64]] = msgspec.field(default_factory=dict)
    message_queue_table: dict[MessageQueue, Int64] = msgspec.field(default_factory=dict)


class OffsetWrapper(Body):
    """The progress of a group in one queue; ``last_timestamp`` is the store time in ms of the
    last message it consumed, 0 if unknown. ``pull_offset`` is the offset of its next pull
    (of 5.x; None if absent)."""

    broker_offset: Int64 = 0
    consumer_offset: Int64 = 0
    last_timestamp: Int64 = 0
    pull_offset: Int64 | None = None

    def lag(self) -> int:
        """The lag: messages that are not consumed yet."""
        return self.broker_offset - self.consumer_offset


class ConsumeStats(Body):
    """Progress of a group on one broker, the answer to 208; messages per second."""

    consume_tps: float = 0.0
    offset_table: dict[MessageQueue, OffsetWrapper] = msgspec.field(default_factory=dict)

    def lag(self) -> int:
        """The lag over all queues."""
        return sum(each.lag() for each in self.offset_table.values())


class ConsumeStatsList(Body):
    """Progress of all groups of a broker by topic, the answer to 317."""

    broker_addr: str | None = None
    consume_stats_list: list[dict[str, list[ConsumeStats]]] = msgspec.field(default_factory=list)
    total_diff: Int64 = 0


class QueueTimeSpan(Body):
    """Times of one queue in ms: oldest, newest and last consumed message, and the delay of
    consumption; -1 for an empty queue.  The ``…Str`` members repeat the times as
    ``yyyy-MM-dd#HH:mm:ss:SSS`` in the broker's zone."""

    consume_time_stamp: Int64 = 0
    consume_time_stamp_str: str | None = None
    delay_time: Int64 = 0
    max_time_stamp: Int64 = 0
    max_time_stamp_str: str | None = None
    message_queue: MessageQueue | None = None
    min_time_stamp: Int64 = 0
    min_time_stamp_str: str | None = None


class ConsumeTimeSpans(Body):
    """The time spans of a topic's queues, the answer to 303."""

    consume_time_span_set: list[QueueTimeSpan] = msgspec.field(default_factory=list)
