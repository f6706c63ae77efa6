"""Questions about a store that its readers need not ask: how old it is, and what is no longer in memory.

Owns nothing; asks the store's own methods, and waits for the disk in a thread.
"""

from __future__ import annotations

import os

from eruca.broker.store.store import Store
from eruca.protocol.errors import ProtocolError
from eruca.protocol.record import decode_record


async def is_cold(store: Store, topic: str, queue_id: int, offset: int) -> bool:
    """Whether a queue's message lies further back in the log than accessMessageInMemoryMaxRatio of the memory.

    False where there is no such message (checkInDiskByConsumeOffset in 4.9.7).
    """
    units = await store.look(lambda there: there.units(topic, queue_id, range(offset, offset + 1)))
    if not units:
        return False
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return store.figures().max_offset - units[0][0] > memory * store.config.access_message_in_memory_max_ratio // 100


async def earliest_time(store: Store) -> int:
    """When the oldest message of the log was stored (ms); -1 where there is none or it cannot be read."""
    data = await store.look(lambda there: there.record(store.figures().min_offset))
    try:
        return decode_record(data).store_timestamp if data is not None else -1
    except ProtocolError:
        return -1
