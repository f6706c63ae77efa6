"""What each consumer group did with a message: one MessageTrack for each group of its topic.

Owns the rule of ``DefaultMQAdminExtImpl.messageTrackDetail`` in 4.9.7, but for one word. There, a group whose offset
is beyond a message has CONSUMED it, also where a reset or a skip passed it over. Here it is CONSUMED only if the trace
of a member says so, else PASSED.
"""

from __future__ import annotations

from eruca.admin.client import Admin
from eruca.admin.errors import AdminError, PeerRefused
from eruca.admin.lookups import Asked, ask_each, groups_of, members_of, progress
from eruca.admin.messages import message_id
from eruca.admin.results.messages import Track
from eruca.admin.results.traces import trace
from eruca.protocol.bodies import ConsumerConnection
from eruca.protocol.codes import ResponseCode
from eruca.protocol.names import TRACE_TOPIC
from eruca.protocol.record import Record, host_text


async def tracks(admin: Admin, record: Record) -> Asked[Track]:
    """What each consumer group of the message's topic did with it, by group, and who could not be asked for groups."""
    groups = await groups_of(admin, await admin.route(record.topic), record.topic)
    traced = await _traced(admin, record) if groups.names else set()
    found = await ask_each({each: _track(admin, record, each, each in traced) for each in groups.names})
    return Asked({each: found.answers[each] for each in groups.names}, groups.errors)


async def _track(admin: Admin, record: Record, group: str, traced: bool) -> Track:
    reason: str | None = None
    try:
        verdict = await _verdict(admin, record, group, traced)
    except PeerRefused as refused:
        offline = refused.code == ResponseCode.CONSUMER_NOT_ONLINE
        verdict, reason = "NOT_ONLINE" if offline else "UNKNOWN", f"CODE:{refused.code} DESC:{refused.remark}"
    except AdminError as error:
        verdict, reason = "UNKNOWN", str(error)
    return Track(group=group, type=verdict, reason=reason)


async def _traced(admin: Admin, record: Record) -> set[str]:
    """The groups whose members' traces say that they consumed the message."""
    try:
        steps, _ = await trace(admin, TRACE_TOPIC, message_id(record))
    except AdminError:
        return set()  # nobody writes traces, or they cannot be read
    return {step.group for step in steps if step.kind == "Sub" and step.succeeded}


async def _verdict(admin: Admin, record: Record, group: str, traced: bool) -> str:
    members = await members_of(admin, group)
    if members.consume_type == "CONSUME_ACTIVELY":
        return "PULL"
    if traced:
        return "CONSUMED"
    if not await _is_passed(admin, record, group):
        return "NOT_CONSUME_YET"
    return "PASSED" if _is_wanted(members, record) else "CONSUMED_BUT_FILTERED"


async def _is_passed(admin: Admin, record: Record, group: str) -> bool:
    brokers = (await admin.clusters()).broker_addr_table
    stored_at = host_text(record.store_host)
    found = await progress(admin, group)
    for queue, offset in found.stats.offset_table.items():
        if (queue.topic, queue.queue_id) != (record.topic, record.queue_id) or queue.broker_name not in brokers:
            continue
        if brokers[queue.broker_name].master() == stored_at and offset.consumer_offset > record.queue_offset:
            return True
    for name, error in found.errors.items():
        if name in brokers and brokers[name].master() == stored_at:
            raise error
    return False


def _is_wanted(members: ConsumerConnection, record: Record) -> bool:
    subscription = members.subscription_table.get(record.topic)
    if subscription is None:
        return True
    tags = subscription.tags_set
    return not tags or "*" in tags or record.tags in tags
