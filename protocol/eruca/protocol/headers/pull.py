"""Headers of pulls and lookups.

Fields are those of PullMessageRequestHeader, PullMessageResponseHeader, QueryMessageRequestHeader,
QueryMessageResponseHeader, ViewMessageRequestHeader and QueryConsumeQueueRequestHeader in 4.9.7, flags those of
PullSysFlag. Times are ms.
"""

from __future__ import annotations

from msgspec import field

from eruca.protocol.header import Header, Int, Long

COMMIT_OFFSET = 1
"""Pull flag: store commit_offset for the group."""
SUSPEND = 2
"""Pull flag: hold the pull while there is no message (long polling)."""
SUBSCRIPTION = 4
"""Pull flag: filter by the expression in this header, not by the one of the heartbeat."""
CLASS_FILTER = 8
"""Pull flag of the filter servers, which no longer exist."""
LITE_PULL = 16
"""Pull flag: the requester is a lite pull consumer."""


class PullMessage(Header, kw_only=True):
    """11 and 361: messages of a queue from an offset on."""

    consumer_group: str
    topic: str
    queue_id: Int
    queue_offset: Long
    max_msg_nums: Int
    sys_flag: Int
    commit_offset: Long
    suspend_timeout_millis: Long
    subscription: str | None = None
    sub_version: Long | None = None
    expression_type: str | None = None


class PullReply(Header, kw_only=True):
    """The next offset; in each answer with code 0, 19, 20 or 21."""

    suggest_which_broker_id: Long
    next_begin_offset: Long
    min_offset: Long
    max_offset: Long


class QueryMessage(Header, kw_only=True):
    """12: messages of a topic by key, within a time range."""

    topic: str
    key: str
    max_num: Int
    begin_timestamp: Long
    end_timestamp: Long
    unique_key_query: bool | None = field(name="_UNIQUE_KEY_QUERY", default=None)


class QueryMessageReply(Header, kw_only=True):
    """The extent of the key index."""

    index_last_update_timestamp: Long
    index_last_update_phyoffset: Long


class ViewMessage(Header, kw_only=True):
    """33: one message by its offset in the commit log."""

    offset: Long


class QueryConsumeQueue(Header, kw_only=True):
    """321: the units of a consume queue."""

    topic: str
    queue_id: Int
    index: Long
    count: Int
    consumer_group: str | None = None
