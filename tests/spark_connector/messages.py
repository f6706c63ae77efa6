"""Messages as a broker stores them, made by the record codec, for tests that decode."""

from eruca.protocol.message import COMPRESSED, COMPRESSION_ZLIB, encode_properties
from eruca.protocol.queues import MessageQueue
from eruca.protocol.record import encode_record, host_bytes

ORDERS = MessageQueue("orders", "broker-a", 1)
V4 = host_bytes("10.0.0.7", 10911)
V6 = host_bytes("2001:db8::7", 10911)


def stored(
    offset: int,
    body: bytes = b"hello",
    *,
    properties: dict[str, str | None] | bytes | None = None,
    queue: MessageQueue = ORDERS,
    sys_flag: int = 0,
    flag: int = 0,
    reconsume_times: int = 0,
    born: int = 1_700_000_000_000,
    stored: int = 1_700_000_000_500,
) -> bytes:
    """One V1 record; the host bits of ``sys_flag`` decide the hosts."""
    return encode_record(
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        physical_offset=offset * 1000,
        body=body,
        properties=properties if isinstance(properties, bytes) else encode_properties(properties or {}),
        flag=flag,
        sys_flag=sys_flag,
        born_timestamp=born + offset,
        born_host=V6 if sys_flag & 0x10 else V4,
        store_timestamp=stored + offset,
        store_host=V6 if sys_flag & 0x20 else V4,
        reconsume_times=reconsume_times,
    )


ZLIB = COMPRESSED | COMPRESSION_ZLIB
