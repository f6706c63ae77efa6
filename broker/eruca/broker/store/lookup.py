"""Lookups: a record by its offset, messages by key, offsets and times (QueryMessageService and getOffsetInQueueByTime
in RocketMQ).

Owns the queries of operators and consumers besides reading a queue. A ``Lookup`` either waits for the disk or raises
NotInMemory, so that the event loop tries it first and leaves the rest to a thread. Knows log, queues and index; changes
none of them. Any thread may use a ``Lookup`` that waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eruca.broker.store.commit_log import CommitLog
from eruca.broker.store.config import StoreConfig
from eruca.broker.store.consume_queue import ConsumeQueue
from eruca.broker.store.index import Index
from eruca.broker.store.queue_table import QueueTable
from eruca.broker.store.results import Found
from eruca.broker.store.scan import sound_record
from eruca.protocol.message import java_hash
from eruca.protocol.properties_text import get
from eruca.protocol.record import Record
from eruca.remoting.operating_system import machine_memory


class Lookup:
    """Queries of a store.

    All methods raise NotInMemory when data must be read from the disk and ``wait`` is False, and OSError when the disk
    fails.
    """

    def __init__(
        self, config: StoreConfig, log: CommitLog, queues: QueueTable, index: Index | None, *, wait: bool
    ) -> None:
        self._config = config
        self._log = log
        self._queues = queues
        self._index = index
        self._wait = wait

    # ---- records

    def record(self, physical_offset: int) -> bytes | None:
        """The whole record that begins at a commit log offset; None when none does, or it is damaged."""
        sound = self._sound(physical_offset)
        return None if sound is None else sound[0]

    def message(self, physical_offset: int) -> bytes | None:
        """As ``record``, if a queue has its message there: the body of another may hold what looks like a record."""
        sound = self._sound(physical_offset)
        if sound is None:
            return None
        data, record = sound
        units = self.units(record.topic, record.queue_id, [record.queue_offset])
        return data if units and units[0][:2] == (physical_offset, len(data)) else None

    def _sound(self, physical_offset: int) -> tuple[bytes, Record] | None:
        """As ``record``, with what it says."""
        size = self._log.record_size_at(physical_offset, wait=self._wait)
        found = self._log.bytes_at(physical_offset, size, wait=self._wait) if size else None
        data = b"" if found is None else bytes(found)
        record = sound_record(data, 0, physical_offset)
        return None if record is None else (data, record)

    def query(self, topic: str, key: str, max_messages: int, begin: int, end: int) -> Found:
        """Messages of a topic with a key (a business key or the unique one), stored between two times
        in ms; at most ``maxMsgsNumBatch``, the newest ones, in the order of the log."""
        if self._index is None or not self._index.files:
            return Found([])
        newest = self._index.files[-1]
        wanted = min(max_messages, self._config.max_msgs_num_batch)
        offsets: set[int] = set()
        code = java_hash(f"{topic}#{key}")
        found: list[tuple[int, bytes]] = []
        for offset in self._index.search(code, begin, end, wait=self._wait):
            if len(found) >= wanted:
                break
            sound = self._sound(offset) if offset not in offsets else None
            offsets.add(offset)
            if sound is not None and _has_key(sound[1], topic, key, begin, end):
                found.append((offset, sound[0]))
        return Found([data for _, data in sorted(found)], newest.end_time, newest.end_offset)

    # ---- units of a queue

    def units(self, topic: str, queue_id: int, indexes: Sequence[int]) -> list[tuple[int, int, int]]:
        """Commit log offset, size and tag code of units of a queue, those left out that are not there."""
        queue = self._queues.queues.get((topic, queue_id))
        if queue is None:
            return []
        found = (self._queues.unit(queue, index, wait=self._wait) for index in indexes)
        return [unit for unit in found if unit is not None]

    def is_cold(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether a message lies further behind the log's end than accessMessageInMemoryMaxRatio of the memory.

        False for a message that does not exist (checkInDiskByConsumeOffset in 4.9.7).
        """
        units = self.units(topic, queue_id, range(offset, offset + 1))
        if not units:
            return False
        memory = machine_memory()
        return self._log.position - units[0][0] > memory * self._config.access_message_in_memory_max_ratio // 100

    # ---- by time

    def earliest_time(self) -> int:
        """Store time in ms of the log's oldest record; -1 when there is none or it cannot be read."""
        sound = self._sound(self._log.min_offset)
        return sound[1].store_timestamp if sound is not None else -1

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """Store time in ms of a queue's message; -1 when there is none or it cannot be read."""
        queue = self._queues.queues.get((topic, queue_id))
        unit = self._queues.unit(queue, offset, wait=self._wait) if queue is not None else None
        return self._log.store_time_at(unit[0], wait=self._wait) if unit is not None else -1

    def store_times(self, topic: str, places: Iterable[tuple[int, int]]) -> list[int]:
        """As ``store_time``, of several messages by queue id and offset; 0 for an offset below 0."""
        return [self.store_time(topic, queue_id, offset) if offset >= 0 else 0 for queue_id, offset in places]

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """Store time in ms of a queue's oldest message; -1 when it has none."""
        queue = self._queues.queues.get((topic, queue_id))
        return self.store_time(topic, queue_id, queue.min_offset) if queue is not None else -1

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        """The offset to consume from to begin at a time (getOffsetInQueueByTime in 4.9.7).

        An exact hit wins (any one of several equal times that the halving meets first); between
        two messages the nearer one, the earlier one of two equally near; before all the first,
        after all the last one. 0 for an empty queue or when a record cannot be read.
        """
        queue = self._queues.queues.get((topic, queue_id))
        if queue is None or self._queues.end_of(queue) == 0:
            return 0
        low, high = self._range_by_time(queue, timestamp)
        before = after = -1
        before_time = after_time = -1
        oldest = self._log.min_offset
        while low <= high:
            middle = (low + high) // 2
            unit = self._queues.unit(queue, middle, wait=self._wait)
            if unit is None:
                return 0
            if unit[0] < oldest:
                low, before = middle + 1, middle
                continue
            time = self._log.store_time_at(unit[0], wait=self._wait)
            if time < 0:
                return 0
            if time == timestamp:
                return middle
            if time > timestamp:
                high, after, after_time = middle - 1, middle, time
            else:
                low, before, before_time = middle + 1, middle, time
        if before_time == -1:
            return max(after, 0)
        if after_time == -1:
            return before
        return after if timestamp - before_time > after_time - timestamp else before

    def offsets_by_time(self, topic: str, queue_ids: Iterable[int], timestamp: int) -> list[int]:
        """As ``offset_by_time``, for several queues."""
        return [self.offset_by_time(topic, queue_id, timestamp) for queue_id in queue_ids]

    def _range_by_time(self, queue: ConsumeQueue, timestamp: int) -> tuple[int, int]:
        """First and last index of the file to search: the first that ends at or after the time."""
        per_file = self._queues.file_size // 20
        low = queue.min_offset
        last = self._queues.end_of(queue) - 1
        high = min(low - low % per_file + per_file - 1, last)
        while high < last:
            unit = self._queues.unit(queue, high, wait=self._wait)
            if unit is not None and self._log.store_time_at(unit[0], wait=self._wait) >= timestamp:
                break
            low = high + 1
            high = min(high + per_file, last)
        return low, high


def _has_key(record: Record, topic: str, key: str, begin: int, end: int) -> bool:
    if record.topic != topic or not begin <= record.store_timestamp <= end:
        return False
    unique, business = (get(record.properties_text, name).decode("utf-8", "replace") for name in ("UNIQ_KEY", "KEYS"))
    return key == unique or key in business.split(" ")  # the texts that the index has the hashes of
