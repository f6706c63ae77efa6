"""Which groups have consumed a message: one MessageTrack for each consumer group.

Owns the rule of ``DefaultMQAdminExtImpl.messageTrackDetail`` in 4.9.7: a group has consumed a message when its offset
of the queue, at the broker that stored the message, is beyond it.
"""

from __future__ import annotations

from eruca.admin.client import Admin
from eruca.admin.errors import AdminError, PeerRefused
from eruca.admin.lookups import consume_stats, groups_of, members_of
from eruca.admin.results.answer import Result
from eruca.admin.text import shown
from eruca.protocol.bodies import ConsumerConnection
from eruca.protocol.codes import ResponseCode
from eruca.protocol.record import Record, host_text


class Track(Result, frozen=True, kw_only=True, rename="camel"):
    """What a consumer group did with a message."""

    group: str
    type: str
    """RocketMQ's word."""
    reason: str | None
    """Why the type is no better one."""

    def __str__(self) -> str:
        return f"MessageTrack [consumerGroup={self.group}, trackType={self.type}, exceptionDesc={shown(self.reason)}]"


async def tracks(admin: Admin, record: Record) -> list[Track]:
    """What each consumer group of the message's topic did with it."""
    route = await admin.route(record.topic)
    found = []
    for group in await groups_of(admin, route, record.topic):
        reason: str | None = None
        try:
            verdict = await _verdict(admin, record, group)
        except PeerRefused as refused:
            offline = refused.code == ResponseCode.CONSUMER_NOT_ONLINE
            verdict, reason = "NOT_ONLINE" if offline else "UNKNOWN", f"CODE:{refused.code} DESC:{refused.remark}"
        except AdminError as error:
            verdict, reason = "UNKNOWN", str(error)
        found.append(Track(group=group, type=verdict, reason=reason))
    return found


async def _verdict(admin: Admin, record: Record, group: str) -> str:
    members = await members_of(admin, group)
    if members.consume_type == "CONSUME_ACTIVELY":
        return "PULL"
    if not await _is_consumed(admin, record, group):
        return "NOT_CONSUME_YET"
    return "CONSUMED" if _is_wanted(members, record) else "CONSUMED_BUT_FILTERED"


async def _is_consumed(admin: Admin, record: Record, group: str) -> bool:
    brokers = (await admin.clusters()).broker_addr_table
    stored_at = host_text(record.store_host)
    for queue, offset in (await consume_stats(admin, group)).offset_table.items():
        if (queue.topic, queue.queue_id) != (record.topic, record.queue_id) or queue.broker_name not in brokers:
            continue
        if brokers[queue.broker_name].master() == stored_at and offset.consumer_offset > record.queue_offset:
            return True
    return False


def _is_wanted(members: ConsumerConnection, record: Record) -> bool:
    subscription = members.subscription_table.get(record.topic)
    if subscription is None:
        return True
    tags = subscription.tags_set
    return not tags or "*" in tags or record.tags in tags
