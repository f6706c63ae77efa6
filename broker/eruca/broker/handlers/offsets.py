"""Offsets: those that groups committed, and those at the ends and at a time of a queue.

Requests 14, 15, 29 to 32, 43, 45, 308 and 314.
"""

from __future__ import annotations

from eruca.broker.broker import Broker
from eruca.broker.handlers.checks import audit, legal_group, legal_topic, persisting
from eruca.protocol import api
from eruca.protocol.bodies import CorrectionOffsets
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import Refused
from eruca.protocol.header import Empty
from eruca.protocol.headers.offsets import (
    CloneGroupOffset,
    CorrectionOffset,
    OffsetReply,
    QueryConsumerOffset,
    QueueOf,
    SearchOffset,
    TimestampReply,
    UpdateConsumerOffset,
)
from eruca.remoting import Call, Reply, Routes

routes: Routes[Broker] = Routes()


@routes.on(api.QUERY_CONSUMER_OFFSET)
async def query(broker: Broker, call: Call[QueryConsumerOffset]) -> Reply:
    """How far a group has come in a queue.

    A group that is new to a queue whose first message is still at hand starts with that (0); else it is told that
    nothing is known (22), and decides itself.
    """
    ask = call.header
    offset = broker.offsets.query(ask.consumer_group, ask.topic, ask.queue_id)
    if offset < 0:
        if broker.store.min_offset(ask.topic, ask.queue_id) > 0 or await broker.store.lookup(
            lambda there: there.is_cold(ask.topic, ask.queue_id, 0)
        ):
            raise Refused(
                ResponseCode.QUERY_NOT_FOUND, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
            )
        offset = 0
    return Reply(header=OffsetReply(offset=offset))


@routes.on(api.UPDATE_CONSUMER_OFFSET)
def update(broker: Broker, call: Call[UpdateConsumerOffset]) -> Reply:
    """Store how far a group has come; it may go back, and is not compared with the queue."""
    ask = call.header
    legal_group(ask.consumer_group)
    legal_topic(ask.topic)
    broker.offsets.commit(ask.consumer_group, ask.topic, ask.queue_id, ask.commit_offset)
    return Reply()


@routes.on(api.SEARCH_OFFSET_BY_TIMESTAMP)
async def search(broker: Broker, call: Call[SearchOffset]) -> Reply:
    """The offset at a time: of the message nearest to it."""
    ask = call.header
    offset = await broker.store.lookup(lambda there: there.offset_by_time(ask.topic, ask.queue_id, ask.timestamp))
    return Reply(header=OffsetReply(offset=offset))


@routes.on(api.GET_MAX_OFFSET)
def greatest(broker: Broker, call: Call[QueueOf]) -> Reply:
    """The offset that the next message of a queue gets; 0 where there is no such queue."""
    return Reply(header=OffsetReply(offset=broker.store.max_offset(call.header.topic, call.header.queue_id)))


@routes.on(api.GET_MIN_OFFSET)
def least(broker: Broker, call: Call[QueueOf]) -> Reply:
    """The offset of the oldest message of a queue; 0 where there is no such queue."""
    return Reply(header=OffsetReply(offset=broker.store.min_offset(call.header.topic, call.header.queue_id)))


@routes.on(api.GET_EARLIEST_MSG_STORETIME)
async def earliest(broker: Broker, call: Call[QueueOf]) -> Reply:
    """When the oldest message of a queue was stored; -1 where there is none."""
    ask = call.header
    stored = await broker.store.lookup(lambda there: there.earliest_store_time(ask.topic, ask.queue_id))
    return Reply(header=TimestampReply(timestamp=stored))


@routes.on(api.GET_ALL_CONSUMER_OFFSET)
def all_offsets(broker: Broker, call: Call[Empty]) -> Reply:
    """Every committed offset, for a slave."""
    return Reply(body=broker.offsets.body())


@routes.on(api.GET_ALL_DELAY_OFFSET)
def delay_offsets(broker: Broker, call: Call[Empty]) -> Reply:
    """How far each delay level was delivered, for a slave; levels that never had a message are left out."""
    return Reply(body=broker.delays.offsets.body())


@routes.on(api.QUERY_CORRECTION_OFFSET)
def correction(broker: Broker, call: Call[CorrectionOffset]) -> Reply:
    """The least offset of each queue over all groups but the filtered ones; offsets of deleted messages do not count.

    The group to compare with has no influence: 4.9.7 looks it up with group and topic exchanged, and finds nothing.
    """
    ask = call.header
    filtered = {group for group in (ask.filter_groups or "").split(",") if group}
    found: dict[int, int] = {}
    for group in broker.offsets.groups_of(ask.topic) - filtered:
        for queue_id, offset in broker.offsets.of(group, ask.topic).items():
            if offset >= broker.store.min_offset(ask.topic, queue_id):
                found[queue_id] = min(offset, found.get(queue_id, offset))
    return Reply(body=CorrectionOffsets(correction_offsets=dict(sorted(found.items()))).encode())


@routes.on(api.CLONE_GROUP_OFFSET)
async def clone(broker: Broker, call: Call[CloneGroupOffset]) -> Reply:
    """Give one group the offsets of another, in one topic or (where none is named) in all of them.

    Topics that an online source group does not subscribe are left out, unless ``offline``. On disk before it is
    answered.
    """
    ask = call.header
    legal_group(ask.dest_group)
    topics = [ask.topic] if ask.topic and not ask.topic.isspace() else broker.offsets.topics_of(ask.src_group)
    online = broker.clients.consumer(ask.src_group)
    subscribed = online.subscriptions if online is not None and not ask.offline else None
    for topic in topics:
        if topic in broker.topics and (not subscribed or topic in subscribed):
            broker.offsets.clone(ask.src_group, ask.dest_group, topic)
    audit(call, "offsets_cloned", source=ask.src_group, target=ask.dest_group, topics=sorted(topics))
    with persisting(f"the offsets of {ask.dest_group}"):
        await broker.offsets.saved()
    return Reply()
