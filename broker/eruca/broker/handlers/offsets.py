"""Offsets: those that groups committed (ConsumerOffsetManager), and those of a queue's ends and at a time.

Requests 14, 15, 29 to 32, 43, 45, 308 and 314. Facts: ConsumerManageProcessor and AdminBrokerProcessor in 4.9.7.
"""

from __future__ import annotations

from eruca.broker.broker import Broker
from eruca.broker.handlers.checks import (
    all_confirmed,
    confirmed,
    knows_offsets,
    leads_surely,
    legal_group,
    legal_topic,
    need_room_for_offset,
    persisting,
    readable,
    still_leads,
)
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
from eruca.remoting import Call, Reply, Routes, audit
from eruca.remoting.router import Result
from eruca.remoting.slices import encoded, sliced

routes: Routes[Broker] = Routes()


@routes.on(api.QUERY_CONSUMER_OFFSET, reads=True)
async def query(broker: Broker, call: Call[QueryConsumerOffset]) -> Reply:
    """The committed offset of a group in a queue.

    Without a committed offset the answer is 0 if the queue's first message is still in memory; else it is code 22, and
    the consumer decides where to start.
    """
    knows_offsets(broker)
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
def update(broker: Broker, call: Call[UpdateConsumerOffset]) -> Result:
    """Commit an offset. It may be lower than before, and is not compared with the queue."""
    ask = call.header
    epoch = leads_surely(broker)
    legal_group(ask.consumer_group)
    legal_topic(ask.topic)
    group = broker.clients.consumer(ask.consumer_group)
    if group is None or call.connection not in group.members:
        _note_reset(broker, call)
    need_room_for_offset(broker, ask.consumer_group, ask.topic, ask.queue_id)
    broker.offsets.commit(ask.consumer_group, ask.topic, ask.queue_id, ask.commit_offset)
    return Reply() if call.oneway else confirmed(broker, epoch, Reply())


def _note_reset(broker: Broker, call: Call[UpdateConsumerOffset]) -> None:
    """A line of the audit log for an offset that somebody who is no member moves back: no consumer does that."""
    ask = call.header
    before = broker.offsets.query(ask.consumer_group, ask.topic, ask.queue_id)
    if ask.commit_offset < before:
        target = f"offset of group {ask.consumer_group} in queue {ask.queue_id} of topic {ask.topic}"
        call.note(target=target, before=before, after=ask.commit_offset)
        audit.answered(call, None)


@routes.on(api.SEARCH_OFFSET_BY_TIMESTAMP, reads=True)
async def search(broker: Broker, call: Call[SearchOffset]) -> Reply:
    """The offset of the message nearest to a time."""
    readable(broker)
    ask = call.header
    offset = await broker.store.lookup(lambda there: there.offset_by_time(ask.topic, ask.queue_id, ask.timestamp))
    return Reply(header=OffsetReply(offset=offset))


@routes.on(api.GET_MAX_OFFSET, reads=True)
def greatest(broker: Broker, call: Call[QueueOf]) -> Reply:
    """The offset of a queue's next message; 0 if there is no such queue."""
    readable(broker)
    return Reply(header=OffsetReply(offset=broker.store.max_offset(call.header.topic, call.header.queue_id)))


@routes.on(api.GET_MIN_OFFSET, reads=True)
def least(broker: Broker, call: Call[QueueOf]) -> Reply:
    """The offset of a queue's oldest message; 0 if there is no such queue."""
    return Reply(header=OffsetReply(offset=broker.store.min_offset(call.header.topic, call.header.queue_id)))


@routes.on(api.GET_EARLIEST_MSG_STORETIME, reads=True)
async def earliest(broker: Broker, call: Call[QueueOf]) -> Reply:
    """The store time of a queue's oldest message; -1 if there is none."""
    ask = call.header
    stored = await broker.store.lookup(lambda there: there.earliest_store_time(ask.topic, ask.queue_id))
    return Reply(header=TimestampReply(timestamp=stored))


@routes.on(api.GET_ALL_CONSUMER_OFFSET, reads=True, costly=True)
async def all_offsets(broker: Broker, call: Call[Empty]) -> Reply:
    """Every committed offset, for a slave."""
    return Reply(body=await encoded(broker.offsets.body()))


@routes.on(api.GET_ALL_DELAY_OFFSET, reads=True)
def delay_offsets(broker: Broker, call: Call[Empty]) -> Reply:
    """The delivered offset of each delay level, for a slave; levels that never had a message are omitted.

    A slave of a group may be elected before it has found in its log what was delivered: only a master says that.
    """
    leads_surely(broker)
    return Reply(body=broker.delays.offsets.body())


@routes.on(api.QUERY_CORRECTION_OFFSET, reads=True, costly=True)
async def correction(broker: Broker, call: Call[CorrectionOffset]) -> Reply:
    """The least offset of each queue over all groups but the filtered ones; offsets of deleted messages do not count.

    The group to compare with has no effect: 4.9.7 looks it up with group and topic swapped, and finds nothing.
    """
    ask = call.header
    filtered = {group for group in (ask.filter_groups or "").split(",") if group}
    found: dict[int, int] = {}
    for group in broker.offsets.groups_of(ask.topic) - filtered:
        async for queue_id, offset in sliced(broker.offsets.of(group, ask.topic).items()):
            if offset >= broker.store.min_offset(ask.topic, queue_id):
                found[queue_id] = min(offset, found.get(queue_id, offset))
    ordered = {queue_id: found[queue_id] async for queue_id in sliced(sorted(found))}
    return Reply(body=await encoded(CorrectionOffsets(correction_offsets=ordered)))


@routes.on(api.CLONE_GROUP_OFFSET, costly=True, changes=lambda ask: f"offsets of group {ask.dest_group}")
async def clone(broker: Broker, call: Call[CloneGroupOffset]) -> Reply:
    """Copy the offsets of one group to another, in one topic or, if none is named, in all.

    Topics that an online source group does not subscribe to are skipped, unless ``offline``. The offsets are on disk
    before the answer.
    """
    ask = call.header
    epoch = leads_surely(broker)
    legal_group(ask.dest_group)
    topics = [ask.topic] if ask.topic and not ask.topic.isspace() else broker.offsets.topics_of(ask.src_group)
    online = broker.clients.consumer(ask.src_group)
    subscribed = online.subscriptions if online is not None and not ask.offline else None
    async for topic in sliced(topics):
        still_leads(broker, epoch)
        if topic in broker.topics and (not subscribed or topic in subscribed):
            broker.offsets.clone(ask.src_group, ask.dest_group, topic)
    call.note(after=f"those of group {ask.src_group} in {', '.join(sorted(topics)) or 'no topic'}")
    with persisting(f"the offsets of {ask.dest_group}"):
        await broker.offsets.saved()
    await all_confirmed(broker, epoch, on_disk=True)
    return Reply()
