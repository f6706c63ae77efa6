"""Clients: their heartbeats to brokers, the lists of clients by brokers, and the state that a consumer reports.

Owns the text formats of heartbeats, subscriptions, connections, consumer id lists, queue
locks, and of the answers to 307 and 309.  Must not know who is connected.

Enumerated values are texts, so that names of later versions are preserved; the StrEnum
classes hold the known names.
"""

import enum
from typing import Final, Self

import msgspec

from eruca.protocol.bodies.body import MAX_DIALECT, Body
from eruca.protocol.errors import ProtocolError
from eruca.protocol.queues import Int32, Int64, MessageQueue


class ConsumeType(enum.StrEnum):
    """How a consumer gets messages: the application pulls, or the library does."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"


class MessageModel(enum.StrEnum):
    """Whether every member of a group gets each message, or one member."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(enum.StrEnum):
    """Where a group without committed offsets starts."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class SubscriptionData(Body):
    """The subscription of a group to one topic (``SubscriptionData`` in 4.9.7).

    ``code_set`` holds the Java hash of each tag; ``sub_version`` is the time of the
    subscription in ms and decides which of two is newer.
    """

    class_filter_mode: bool = False
    code_set: set[Int32] = msgspec.field(default_factory=set)
    expression_type: str = "TAG"
    sub_string: str | None = None
    sub_version: Int64 = 0
    tags_set: set[str] = msgspec.field(default_factory=set)
    topic: str = ""


class ProducerData(Body):
    """One producer group of a client."""

    group_name: str = ""


class ConsumerData(Body):
    """One consumer group of a client; an unset enumeration is None."""

    consume_from_where: str | None = None
    consume_type: str | None = None
    group_name: str = ""
    message_model: str | None = None
    subscription_data_set: list[SubscriptionData] = msgspec.field(default_factory=list)
    unit_mode: bool = False


MOST_GROUPS: Final = 200
"""The most groups of one heartbeat, of consumers and producers together; Apache has no limit."""

LONGEST_HEARTBEAT: Final = 2 << 20
"""Bytes of the body of 34 in a request, which is read at once; Apache has no limit."""


class HeartbeatData(Body):
    """Groups of a client, the body of 34; null or absent lists are empty."""

    client_id: str = msgspec.field(default="", name="clientID")
    consumer_data_set: list[ConsumerData] = msgspec.field(default_factory=list)
    producer_data_set: list[ProducerData] = msgspec.field(default_factory=list)

    @classmethod
    def decode_request(cls, data: bytes | bytearray | memoryview, dialect: int = MAX_DIALECT) -> Self:
        """As that of Body; raises ProtocolError for more than LONGEST_HEARTBEAT, too."""
        if len(data) > LONGEST_HEARTBEAT:
            raise ProtocolError(
                f"it has {len(data)} bytes, at most {LONGEST_HEARTBEAT} are allowed; send several heartbeats"
            )
        return super().decode_request(data, dialect)

    def parts(self) -> list[Self]:
        """This heartbeat as one or more that have at most MOST_GROUPS groups each; the groups of one do not end those
        of another."""
        found = []
        for begin in range(0, max(len(self.consumer_data_set), len(self.producer_data_set), 1), MOST_GROUPS // 2):
            end = begin + MOST_GROUPS // 2
            consumers, producers = self.consumer_data_set[begin:end], self.producer_data_set[begin:end]
            found.append(type(self)(client_id=self.client_id, consumer_data_set=consumers, producer_data_set=producers))
        return found


class ConsumerIdList(Body):
    """Client ids of a group, the answer to 38."""

    consumer_id_list: list[str] = msgspec.field(default_factory=list)


class LockBatchRequest(Body):
    """The queues a client wants to lock (41) or release (42)."""

    client_id: str = ""
    consumer_group: str = ""
    mq_set: list[MessageQueue] = msgspec.field(default_factory=list)


class LockBatchAnswer(Body):
    """The queues that were locked, the answer to 41."""

    locked: list[MessageQueue] = msgspec.field(default_factory=list, name="lockOKMQSet")


class CheckClientRequestBody(Body):
    """A subscription to be checked before a consumer starts, the body of 46."""

    client_id: str = ""
    group: str = ""
    subscription_data: SubscriptionData = msgspec.field(default_factory=SubscriptionData)


class Connection(Body):
    """One connected client: ``client_addr`` is ``ip:port``, ``version`` its MQVersion."""

    client_addr: str = ""
    client_id: str = ""
    language: str | None = None
    version: Int32 = 0


class ConsumerConnection(Body):
    """The members of a consumer group and its subscriptions, the answer to 203."""

    connection_set: list[Connection] = msgspec.field(default_factory=list)
    consume_from_where: str | None = None
    consume_type: str | None = None
    message_model: str | None = None
    subscription_table: dict[str, SubscriptionData] = msgspec.field(default_factory=dict)


class ProducerConnection(Body):
    """The members of a producer group, the answer to 204."""

    connection_set: list[Connection] = msgspec.field(default_factory=list)


class ProducerInfo(Body):
    """One producer; ``last_update_timestamp`` in ms, ``remote_ip`` like ``/1.1.1.1:5``."""

    client_id: str = ""
    language: str | None = None
    last_update_timestamp: Int64 = 0
    remote_ip: str = msgspec.field(default="", name="remoteIP")
    version: Int32 = 0


class ProducerTableInfo(Body):
    """All producers by group, the answer to 328."""

    data: dict[str, list[ProducerInfo]] = msgspec.field(default_factory=dict)


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


RESETS = "PROP_RESETS"
"""A property of ConsumerRunningInfo: the resets (220) that a member has done; Eruca's members only."""

Resets = dict[MessageQueue, tuple[int, int]]
"""By queue: how many resets a member has done, and the offset of the last one, which the broker has stored."""


def encode_resets(resets: Resets) -> str:
    """The value of RESETS."""
    rows = [(each.topic, each.broker_name, each.queue_id, *resets[each]) for each in sorted(resets)]
    return msgspec.json.encode(rows).decode()


def decode_resets(text: str) -> Resets:
    """What a value of RESETS says; nothing for a value of another form."""
    try:
        rows = msgspec.json.decode(text, type=list[tuple[str, str, int, int, int]])
    except (msgspec.ValidationError, msgspec.DecodeError):
        return {}
    return {MessageQueue(topic, broker, number): (count, offset) for topic, broker, number, count, offset in rows}


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
