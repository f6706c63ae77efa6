"""What the store answers: values without behaviour, known to the handlers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import NamedTuple

from eruca.protocol.codes import ResponseCode


class PutStatus(IntEnum):
    """How an append ended; only OK has stored anything."""

    OK = 0
    MESSAGE_ILLEGAL = 1
    """Body, topic or record too long: code 13."""
    PROPERTIES_SIZE_EXCEEDED = 2
    """Properties over 32767 bytes: code 13."""
    SERVICE_NOT_AVAILABLE = 3
    """Disk full, closed, or a flush has failed: code 14; ``Store.refusal`` says which."""
    BATCH_ILLEGAL = 4
    """The batch body is malformed or holds nothing: code 13."""


class Durability(Enum):
    """How the wait until a stored message is durable ended; each value is the response code of a send
    (PutMessageStatus in 4.9.7)."""

    DURABLE = ResponseCode.SUCCESS
    """On the disk under SYNC_FLUSH, and on a slave of a SYNC_MASTER."""
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT
    """Not on the disk in time, or the flush failed: then ``Store.refusal`` says so."""
    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE
    """No slave is in reach."""
    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT
    """No slave confirmed it within slaveTimeout."""
    NOT_CONFIRMED = ResponseCode.SERVICE_NOT_AVAILABLE
    """The syncStateSet of a group that elects its master did not confirm it in time, or this is no master any more."""


class Put(NamedTuple):
    """One stored message (of a refused one only the status counts)."""

    status: PutStatus
    physical_offset: int = -1
    queue_offset: int = -1
    size: int = 0
    store_timestamp: int = 0
    end_offset: int = -1
    """Where the record ends in the log: what ``Store.durable`` takes."""


class PutBatch(NamedTuple):
    """A stored batch: one record each, contiguous, with consecutive queue offsets."""

    status: PutStatus
    physical_offsets: tuple[int, ...] = ()
    queue_offset: int = -1
    """Of the first message."""
    size: int = 0
    """Of all records together."""
    store_timestamp: int = 0
    end_offset: int = -1


class GetStatus(IntEnum):
    """How a read ended (GetMessageStatus in 4.9.7)."""

    FOUND = 0
    NO_MATCHED_MESSAGE = 1
    MESSAGE_WAS_REMOVING = 2
    OFFSET_FOUND_NULL = 3
    OFFSET_OVERFLOW_BADLY = 4
    OFFSET_OVERFLOW_ONE = 5
    OFFSET_TOO_SMALL = 6
    NO_MATCHED_LOGIC_QUEUE = 7
    NO_MESSAGE_IN_QUEUE = 8


class Got(NamedTuple):
    """What a read found. ``buffers`` together are whole records in order; they are views of the
    log where it is in memory and stay valid as long as they are held."""

    status: GetStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    buffers: list[memoryview | bytes]
    message_count: int = 0
    size: int = 0
    suggest_slow: bool = False
    """Whether the reader is so far behind that a slave should serve it."""


class Found(NamedTuple):
    """What a query by key found; ``records`` are whole records, oldest first."""

    records: list[bytes]
    index_last_update_timestamp: int = 0
    index_last_update_physical_offset: int = 0


FILTER_REACH = 800
"""How many messages one filtered read looks at (16000 bytes of a consume queue in 4.9.7)."""


@dataclass(frozen=True, slots=True)
class Matcher:
    """Which messages a reader wants. ``codes``: tag hashes (signed 32 bit), None for all;
    ``record``: asked with the whole record where the codes let it pass, None for no further test;
    ``reach``: how many messages one read looks at."""

    codes: frozenset[int] | None = None
    record: Callable[[memoryview | bytes], bool] | None = None
    reach: int = FILTER_REACH


class Damage(NamedTuple):
    """A range of the commit log that holds no readable record."""

    start: int
    end: int
    reason: str


@dataclass(slots=True)
class RecoveryReport:
    """What opening the store found and did."""

    clean: bool = True
    """Whether the store had been closed in order (no ``abort`` file)."""
    end_offset: int = 0
    records: int = 0
    """Records read again."""
    redispatched: int = 0
    """Records put again into consume queue and index."""
    last_store_timestamp: int = 0
    """Store time in ms of the newest record read again."""
    damages: list[Damage] = field(default_factory=list)
    lost_units: list[tuple[str, int, int]] = field(default_factory=list)
    """Topic, queue and queue offset of each message whose record was lost."""
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def skipped_bytes(self) -> int:
        """Bytes of the log that hold no readable record."""
        return sum(damage.end - damage.start for damage in self.damages)


@dataclass(frozen=True, slots=True)
class Figures:
    """The store's state in numbers; offsets are of the commit log."""

    min_offset: int
    max_offset: int
    flushed_offset: int
    dispatch_behind_bytes: int
    flush_behind_bytes: int
    disk_ratio: float
    puts: int
    put_bytes: int
    put_failed: int
    gets_found: int
    gets_missed: int
    gets_messages: int
    damaged_records: int
    skipped_bytes: int
    flushes: int
    refusal: str | None
