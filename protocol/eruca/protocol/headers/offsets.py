"""Headers of offsets: of groups, of queues, by time, and of resets.

Fields are those of the request and response headers of codes 14, 15, 29 to 32, 220 to 223, 308 and 314 in 4.9.7.
Offsets count messages of a queue; times are ms.
"""

from __future__ import annotations

from eruca.protocol.header import Header, Int, Long


class QueryConsumerOffset(Header, kw_only=True):
    """14: query the committed offset of a group."""

    consumer_group: str
    topic: str
    queue_id: Int


class UpdateConsumerOffset(Header, kw_only=True):
    """15: commit the offset of a group."""

    consumer_group: str
    topic: str
    queue_id: Int
    commit_offset: Long


class OffsetReply(Header, kw_only=True):
    """One offset."""

    offset: Long


class SearchOffset(Header, kw_only=True):
    """29: the offset at a time."""

    topic: str
    queue_id: Int
    timestamp: Long


class QueueOf(Header, kw_only=True):
    """30, 31 and 32: greatest offset, least offset, or earliest store time of a queue."""

    topic: str
    queue_id: Int


class TimestampReply(Header, kw_only=True):
    """One time; -1 if there is none."""

    timestamp: Long


class ResetOffset(Header, kw_only=True):
    """222 and 220: reset a group to a time; -1 is the end of each queue.

    Of 5.x: ``queue_id`` (at least 0) restricts the reset to one queue, ``offset`` (not -1) is its new offset.
    """

    topic: str
    group: str
    timestamp: Long
    is_force: bool
    queue_id: Int | None = None
    offset: Long | None = None


class ConsumerStatus(Header, kw_only=True):
    """223 and 221: the offsets that the clients of a group hold in memory."""

    topic: str
    group: str
    client_addr: str | None = None


class CorrectionOffset(Header, kw_only=True):
    """308: the least offset that other groups have reached."""

    filter_groups: str | None = None
    compare_group: str
    topic: str


class CloneGroupOffset(Header, kw_only=True):
    """314: copy the offsets of one group to another."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False
