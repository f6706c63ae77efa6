"""Headers of sends: messages, batches, replies, messages sent back, and ends of transactions.

Fields are those of SendMessageRequestHeader, SendMessageRequestHeaderV2, SendMessageResponseHeader,
ConsumerSendMsgBackRequestHeader, EndTransactionRequestHeader, CheckTransactionStateRequestHeader and
ReplyMessageRequestHeader in 4.9.7. Times are ms since 1970.
"""

from __future__ import annotations

from msgspec import field

from eruca.protocol.header import Header, Int, Long


class SendMessage(Header, kw_only=True):
    """10 and 324: a message, with long names."""

    producer_group: str
    topic: str
    default_topic: str = "TBW102"
    default_topic_queue_nums: Int = 4
    queue_id: Int
    sys_flag: Int
    born_timestamp: Long
    flag: Int
    properties: str | None = None
    reconsume_times: Int | None = None
    unit_mode: bool = False
    batch: bool = False
    max_reconsume_times: Int | None = None


class SendMessageV2(Header, kw_only=True):
    """310, 320 and 325: the same fields under names of one letter, in the order in which Java writes them."""

    producer_group: str = field(name="a")
    topic: str = field(name="b")
    default_topic: str = field(name="c", default="TBW102")
    default_topic_queue_nums: Int = field(name="d", default=4)
    queue_id: Int = field(name="e")
    sys_flag: Int = field(name="f")
    born_timestamp: Long = field(name="g")
    flag: Int = field(name="h")
    properties: str | None = field(name="i", default=None)
    reconsume_times: Int | None = field(name="j", default=None)
    unit_mode: bool = field(name="k", default=False)
    max_reconsume_times: Int | None = field(name="l", default=None)
    batch: bool = field(name="m", default=False)


class SendReply(Header, kw_only=True):
    """The answer to a send; a batch answers with its ids joined by commas and the offset of its first message."""

    msg_id: str
    queue_id: Int
    queue_offset: Long
    transaction_id: str | None = None
    region: str = field(name="MSG_REGION", default="DefaultRegion")
    trace_on: bool = field(name="TRACE_ON", default=True)


class SendRefused(Header, kw_only=True):
    """The two fields of every answer to a send, including refusals."""

    region: str = field(name="MSG_REGION", default="DefaultRegion")
    trace_on: bool = field(name="TRACE_ON", default=True)


class ConsumerSendMsgBack(Header, kw_only=True):
    """36: send a message back, for redelivery after a delay or to the dead letters (delay_level below 0)."""

    offset: Long
    group: str
    delay_level: Int
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int | None = None


class EndTransaction(Header, kw_only=True):
    """37: commit (8), roll back (12) or leave undecided (0) the half message at these offsets."""

    producer_group: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: Int
    from_transaction_check: bool = False
    msg_id: str
    transaction_id: str | None = None


class CheckTransactionState(Header, kw_only=True):
    """39: the broker checks the state of a producer's transaction."""

    tran_state_table_offset: Long
    commit_log_offset: Long
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


class PushReplyMessage(Header, kw_only=True):
    """326: the reply message of a request-reply call, pushed to the requester."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int
    queue_id: Int
    sys_flag: Int
    born_timestamp: Long
    flag: Int
    properties: str | None = None
    reconsume_times: Int | None = None
    unit_mode: bool = False
    born_host: str
    store_host: str
    store_timestamp: Long
