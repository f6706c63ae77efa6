"""The running information of a consumer: the answers to 307 and 309.

Owns the text formats.  Must not know how a client collects the figures.
"""

import enum

import msgspec

from eruca.protocol.bodies.body import Body
from eruca.protocol.bodies.clients import SubscriptionData
from eruca.protocol.queues import Int32, Int64, MessageQueue


class ProcessQueueInfo(Body):
    """The process queue of one queue in a client; times in ms (``ProcessQueueInfo`` in 4.9.7,
    whose spelling ``droped`` is on the wire)."""

    cached_msg_count: Int32 = 0
    cached_msg_max_offset: Int64 = 0
    cached_msg_min_offset: Int64 = 0
    cached_msg_size_in_mib: Int32 = msgspec.field(default=0, name="cachedMsgSizeInMiB")
    commit_offset: Int64 = 0
    droped: bool = False
    last_consume_timestamp: Int64 = 0
    last_lock_timestamp: Int64 = 0
    last_pull_timestamp: Int64 = 0
    locked: bool = False
    transaction_msg_count: Int32 = 0
    transaction_msg_max_offset: Int64 = 0
    transaction_msg_min_offset: Int64 = 0
    try_unlock_times: Int64 = 0


class ConsumeStatus(Body):
    """Throughput of a consumer in one topic: milliseconds (RT) and messages per second (TPS)."""

    consume_failed_msgs: Int64 = 0
    consume_failed_tps: float = msgspec.field(default=0.0, name="consumeFailedTPS")
    consume_ok_tps: float = msgspec.field(default=0.0, name="consumeOKTPS")
    consume_rt: float = msgspec.field(default=0.0, name="consumeRT")
    pull_rt: float = msgspec.field(default=0.0, name="pullRT")
    pull_tps: float = msgspec.field(default=0.0, name="pullTPS")


class ConsumerRunningInfo(Body):
    """The state of one consumer, the answer to 307.  ``properties`` hold its settings
    and the ``PROP_`` entries; ``jstack`` is present on request."""

    jstack: str | None = None
    mq_table: dict[MessageQueue, ProcessQueueInfo] = msgspec.field(default_factory=dict)
    properties: dict[str, str] = msgspec.field(default_factory=dict)
    status_table: dict[str, ConsumeStatus] = msgspec.field(default_factory=dict)
    subscription_set: list[SubscriptionData] = msgspec.field(default_factory=list)


class ConsumeResult(enum.StrEnum):
    """The outcome of consuming one message directly (309)."""

    CR_SUCCESS = "CR_SUCCESS"
    CR_LATER = "CR_LATER"
    CR_ROLLBACK = "CR_ROLLBACK"
    CR_COMMIT = "CR_COMMIT"
    CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    CR_RETURN_NULL = "CR_RETURN_NULL"


class ConsumeMessageDirectlyResult(Body):
    """The answer to 309; ``spent_time_mills`` in ms."""

    auto_commit: bool = True
    consume_result: str | None = None
    order: bool = False
    remark: str | None = None
    spent_time_mills: Int64 = 0
