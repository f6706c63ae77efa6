"""Messages as a client receives them."""

from __future__ import annotations

from eruca.client import ReceivedMessage
from eruca.protocol.queues import MessageQueue
from eruca.protocol.record import Record, decode_record, encode_record


def stored(body: bytes, sys_flag: int = 0, topic: str = "T", properties: bytes = b"") -> bytes:
    return encode_record(
        topic=topic,
        queue_id=2,
        queue_offset=7,
        physical_offset=4096,
        body=body,
        properties=properties,
        flag=9,
        sys_flag=sys_flag,
        born_timestamp=11,
        born_host=bytes([10, 0, 0, 1, 0, 0, 0, 80]).rjust(20 if sys_flag & 0x10 else 8, b"\0"),
        store_timestamp=12,
        store_host=bytes([1, 2, 3, 4, 0, 0, 0x2A, 0x9F]).rjust(20 if sys_flag & 0x20 else 8, b"\0"),
        reconsume_times=1,
    )


def received(body: bytes, sys_flag: int = 0, topic: str = "T", properties: bytes = b"") -> ReceivedMessage:
    return ReceivedMessage(decode_record(stored(body, sys_flag, topic, properties)), MessageQueue(topic, "a", 2))


def record(offset: int, body: bytes = b"x") -> Record:
    return decode_record(
        encode_record(
            topic="T",
            queue_id=0,
            queue_offset=offset,
            physical_offset=offset * 100,
            body=body,
            properties=b"",
            flag=0,
            sys_flag=0,
            born_timestamp=1,
            born_host=bytes(8),
            store_timestamp=2,
            store_host=bytes(8),
        )
    )
