"""Reset of an online group to a time, and the offsets of its members: requests 222 and 223 (Broker2Client in 4.9.7).

The members get one-way requests (220) and commit the new offsets themselves; the broker's table does not change.
Nothing is sent unless every member supports it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial

import structlog

from eruca.broker.broker import Broker
from eruca.broker.handlers.checks import (
    all_confirmed,
    leads_surely,
    legal_group,
    legal_topic,
    need_room_for_offset,
    persisting,
    still_leads,
)
from eruca.broker.services.resets import END, QueueOffsets, plan
from eruca.broker.state.clients import Member
from eruca.broker.store.lookup import Lookup
from eruca.protocol import api
from eruca.protocol.bodies import GetConsumerStatusBody, ResetOffsetBody, TopicConfig
from eruca.protocol.codes import ResponseCode, version_name
from eruca.protocol.errors import ProtocolError, Refused
from eruca.protocol.headers.offsets import ConsumerStatus, ResetOffset
from eruca.protocol.queues import MessageQueue
from eruca.remoting import Call, RemotingError, Reply, Routes
from eruca.remoting.slices import batches, encoded, sliced

routes: Routes[Broker] = Routes()

OLDEST_MEMBER = 28
"""The MQVersion ordinal (V3_0_7_SNAPSHOT) of the first clients that know the requests 220 and 221."""
QUEUES_SHOWN = 32
"""Queues that a line of a log names."""
STATUS_WITHIN = 5.0
"""Seconds in which a member must answer a 221."""

log = structlog.get_logger("eruca.broker")


@routes.on(
    api.INVOKE_BROKER_TO_RESET_OFFSET,
    costly=True,
    changes=lambda ask: f"offsets of group {ask.group} in topic {ask.topic}",
)
async def reset(broker: Broker, call: Call[ResetOffset]) -> Reply:
    """Reset the online members of a group to a time; the answer holds the new offset of each queue.

    Refused with 1 for an unknown topic, a queue without a committed offset (broadcasting groups have none here) or a
    member that is too old; with 206 if no member is online. If one queue is named (5.x) and no member is online, the
    offset is committed here, and on disk before the answer.
    """
    ask = call.header
    epoch = leads_surely(broker)
    legal_topic(ask.topic)
    legal_group(ask.group)
    single = ask.queue_id is not None and ask.queue_id >= 0
    table = await (_new_offset(broker, ask) if single else _new_offsets(broker, ask))
    _note(broker, call, table, [ask.queue_id or 0] if single else range(QUEUES_SHOWN))
    group = broker.clients.consumer(ask.group)
    if group is None and single:
        still_leads(broker, epoch)
        for queue, offset in table.items():
            need_room_for_offset(broker, ask.group, ask.topic, queue.queue_id)
            broker.offsets.commit(ask.group, ask.topic, queue.queue_id, offset)
        with persisting(f"the offset of {ask.group}"):
            await broker.offsets.saved()
        await all_confirmed(broker, epoch, on_disk=True)
        return Reply(body=ResetOffsetBody(offset_table=table).encode())
    if group is None:
        raise Refused(
            ResponseCode.CONSUMER_NOT_ONLINE,
            f"Consumer not online, so can not reset offset, Group: {ask.group} Topic: {ask.topic} "
            f"Timestamp: {ask.timestamp}",
        )
    members = list(group.members.values())
    _need_new_members(members)
    text = b"".join(await encoded(ResetOffsetBody(offset_table=table)))
    body = ResetOffsetBody(offset_table=table if ask.is_force or single else _changed(broker, ask, table))
    if body.offset_table:
        _push(ask, text if len(body.offset_table) == len(table) else b"".join(await encoded(body)), body, members)
    return Reply(body=text)


def _changed(broker: Broker, ask: ResetOffset, table: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
    """The queues that move. The others stay out of what members get without force, since members that drop a queue
    consume again what they have not committed (Apache's broker sends all)."""
    known = broker.offsets.of(ask.group, ask.topic)
    return {queue: offset for queue, offset in table.items() if known.get(queue.queue_id) != offset}


def _shown(queue_ids: Iterable[int], offset_of: Callable[[int], int | None], count: int) -> str:
    """The offsets of some of ``count`` queues, for the audit log."""
    known = [(queue_id, offset) for queue_id in queue_ids if (offset := offset_of(queue_id)) is not None]
    more = f" and {count - len(known)} more" if count > len(known) else ""
    return ", ".join(f"queue {queue_id}: {offset}" for queue_id, offset in known) + more or "none"


def _note(broker: Broker, call: Call[ResetOffset], table: Mapping[MessageQueue, int], queue_ids: Iterable[int]) -> None:
    ask, known = call.header, broker.offsets.of(call.header.group, call.header.topic)
    call.note(
        before=_shown(queue_ids, known.get, len(known) if len(table) > 1 else 1),
        after=_shown(queue_ids, lambda queue_id: table.get(MessageQueue(ask.topic, broker.name, queue_id)), len(table)),
    )


def _known(broker: Broker, ask: ResetOffset) -> TopicConfig:
    config = broker.topics.get(ask.topic)
    if config is None:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"[reset-offset] reset offset failed, no topic in this broker. topic={ask.topic}",
        )
    return config


async def _new_offset(broker: Broker, ask: ResetOffset) -> dict[MessageQueue, int]:
    """The new offset of one queue: the given one, else the one at the time."""
    store, topic, queue_id = broker.store, ask.topic, ask.queue_id or 0
    config = _known(broker, ask)
    if queue_id >= max(config.write_queue_nums, config.read_queue_nums):
        raise Refused(ResponseCode.SYSTEM_ERROR, f"the topic {topic} has no queue {queue_id}")
    least, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    if ask.offset is not None and ask.offset != -1:
        offset = ask.offset
        if not least <= offset <= end:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"Target offset {offset} not in consume queue range [{least}-{end}]"
            )
    elif ask.timestamp == END:
        offset = end
    else:
        offset = await store.lookup(lambda there: there.offset_by_time(topic, queue_id, ask.timestamp))
    return {MessageQueue(topic, broker.name, queue_id): offset}


async def _new_offsets(broker: Broker, ask: ResetOffset) -> dict[MessageQueue, int]:
    topic, store = ask.topic, broker.store
    offsets: list[QueueOffsets] = []
    fresh: list[int] = []
    async for queues in sliced(batches(range(_known(broker, ask).write_queue_nums))):
        if ask.timestamp == END:
            found = [store.max_offset(topic, queue_id) for queue_id in queues]
        else:
            found = await store.lookup(
                partial(Lookup.offsets_by_time, topic=topic, queue_ids=queues, timestamp=ask.timestamp)
            )
        for queue_id, offset in zip(queues, found, strict=True):
            committed = broker.offsets.query(ask.group, topic, queue_id)
            offsets.append(QueueOffsets(committed, offset))
            if committed == -1:
                fresh.append(queue_id)
    if fresh:
        shown = fresh[:QUEUES_SHOWN]
        log.info(
            "reset_refused", group=ask.group, topic=topic, queues_without_offset=shown, more=len(fresh) - len(shown)
        )
    targets = [each async for some in sliced(batches(offsets)) for each in plan(ask.group, some, ask.is_force)]
    return {MessageQueue(topic, broker.name, queue_id): offset async for queue_id, offset in sliced(enumerate(targets))}


def _need_new_members(members: Iterable[Member]) -> None:
    for member in members:
        if member.version < OLDEST_MEMBER:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"the client does not support this feature. version={version_name(member.version)}",
            )


def _push(ask: ResetOffset, table: bytes, body: ResetOffsetBody, members: Iterable[Member]) -> None:
    """Send a 220 to each member. As from Apache's broker, isForce is false and the body has no blanks (the Go client
    parses it by characters). Only C++ members get the list format, the only one that they read."""
    header = ResetOffset(topic=ask.topic, group=ask.group, timestamp=ask.timestamp, is_force=False)
    entries: bytes | None = None
    for member in members:
        own = table
        if member.language == "CPP":
            own = entries = entries or body.encode_list()
        member.connection.oneway(api.RESET_CONSUMER_CLIENT_OFFSET, header, own)


@routes.on(api.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, reads=True, costly=True)
async def status(broker: Broker, call: Call[ConsumerStatus]) -> Reply:
    """The offsets that the members of a group hold in memory, by client id; on request of one client.

    Members that do not answer are skipped.
    """
    ask = call.header
    group = broker.clients.consumer(ask.group)
    if group is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{ask.group}]")
    wanted = ask.client_addr if ask.client_addr and not ask.client_addr.isspace() else None
    members = [member for member in group.members.values() if wanted in (None, member.client_id)]
    _need_new_members(members)
    tables = await asyncio.gather(*(_held_by(member, ask) for member in members))
    found = {member.client_id: table for member, table in zip(members, tables, strict=True) if table is not None}
    return Reply(body=await encoded(GetConsumerStatusBody(consumer_table=found)))


async def _held_by(member: Member, ask: ConsumerStatus) -> dict[MessageQueue, int] | None:
    question = ConsumerStatus(topic=ask.topic, group=ask.group)
    try:
        answer = await member.connection.call(api.GET_CONSUMER_STATUS_FROM_CLIENT, question, timeout=STATUS_WITHIN)
        return GetConsumerStatusBody.decode(answer.body).message_queue_table if answer.body else None
    except (RemotingError, Refused, ProtocolError) as error:
        log.warning("consumer_status_missing", group=ask.group, client_id=member.client_id, error=str(error))
        return None
