"""Topics for operators and slaves: create, change, delete, list, and the state of their queues.

Requests 17, 21, 202, 215, 300, 305, 316 and 351. A change is on disk, and registered with the nameservers, before the
answer. Facts: TopicConfigManager and AdminBrokerProcessor in 4.9.7.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

import structlog

from eruca.broker.broker import Broker
from eruca.broker.handlers.checks import (
    all_confirmed,
    changeable_topic,
    known_topic,
    leads_surely,
    persisting,
    readable,
    within_bounds,
)
from eruca.broker.store.housekeeping import DROPPED_AT_ONCE
from eruca.broker.store.lookup import Lookup
from eruca.protocol import api, names
from eruca.protocol.bodies import GroupList, TopicConfig, TopicList, TopicOffset, TopicStatsTable
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import Refused
from eruca.protocol.header import Empty
from eruca.protocol.headers.topics import CreateTopic, OfTopic
from eruca.protocol.queues import MessageQueue
from eruca.remoting import Call, Reply, Routes
from eruca.remoting.audit import NOTHING
from eruca.remoting.slices import batches, encoded, next_slice, sliced

routes: Routes[Broker] = Routes()
log = structlog.get_logger("eruca.broker")

FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")
DROPPED_WITH_TOPIC = 64
"""Queues that a broker that asks nobody deletes in one turn with the topic, before a producer can make it again."""
REGISTER_WITHIN = 2.0
"""Seconds that an answer waits for nameservers; slower ones get the topic a little later."""


def _target(ask: CreateTopic | OfTopic) -> str:
    return f"topic {ask.topic}"


@routes.on(api.UPDATE_AND_CREATE_TOPIC, changes=_target)
async def update(broker: Broker, call: Call[CreateTopic]) -> Reply:
    """Create a topic or replace its settings, except whether it is ordered, which the nameserver decides."""
    ask = call.header
    epoch = changeable_topic(broker, ask.topic)
    known = broker.topics.get(ask.topic)
    config = TopicConfig(
        topic_name=ask.topic,
        read_queue_nums=ask.read_queue_nums,
        write_queue_nums=ask.write_queue_nums,
        perm=ask.perm,
        topic_filter_type=ask.topic_filter_type,
        topic_sys_flag=ask.topic_sys_flag or 0,
        order=known is not None and known.order,
    )
    _sensible(config)
    broker.topics.need_room(ask.topic, max(config.read_queue_nums, config.write_queue_nums))
    call.note(before=known or NOTHING, after=config)
    broker.topics.put(config)
    with persisting(f"the topic {ask.topic}"):
        await broker.topics.saved()
    await all_confirmed(broker, epoch)
    await _register(broker)
    return Reply()


def _sensible(config: TopicConfig) -> None:
    within_bounds(config)
    if not 0 <= config.perm <= 7:
        raise Refused(
            ResponseCode.SYSTEM_ERROR, f"perm = [{config.perm}] is not a sum of 4 (read), 2 (write), 1 (inherit)"
        )
    if config.topic_filter_type not in FILTER_TYPES:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"topicFilterType = [{config.topic_filter_type}] value invalid")


async def _register(broker: Broker) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(REGISTER_WITHIN):
            await broker.registration.register_changed()


@routes.on(api.DELETE_TOPIC_IN_BROKER, costly=True, changes=_target)
async def delete(broker: Broker, call: Call[OfTopic]) -> Reply | None:
    """Delete a topic, its queues and the offsets of groups in it; an unknown topic is no error.

    In a group that elects its master the queues stay until all have deleted it: else the next master may have it still.
    All note where the log ends now; when one of them is elected, its queues of the topic go, too. What is begun is
    done to its end, also when the connection ends meanwhile: else the topic would be gone, and its messages not.
    """
    topic = call.header.topic
    epoch = changeable_topic(broker, topic)
    call.note(before=broker.topics.get(topic) or NOTHING, after=NOTHING)
    broker.topics.remove(topic)
    _forget(broker, topic)
    end = broker.store.replicator.end_offset
    if broker.tables is None:  # nobody has to agree, and a producer may make the topic again in the next turn
        with persisting(_what(topic)):
            broker.store.drop_topic(topic, DROPPED_WITH_TOPIC)
    deletion = broker.begun.start(object(), partial(_deleted, broker, topic, epoch, end))
    try:
        return await asyncio.shield(deletion)
    except asyncio.CancelledError:
        deletion.add_done_callback(partial(_unheard, topic))
        raise


def _unheard(topic: str, deletion: asyncio.Task[Reply | None]) -> None:
    """A deletion has ended, and nobody waits for it any more."""
    if not deletion.cancelled() and (fault := deletion.exception()) is not None:
        log.warning("topic_not_deleted", topic=topic, reason=str(fault))


async def _deleted(broker: Broker, topic: str, epoch: int, end: int) -> Reply:
    """Bring a deletion to its end; the log ended at ``end`` when the topic left the table."""
    if broker.tables is not None:
        with persisting(_what(topic)):
            await _saved(broker)  # before its messages go: a broker that is killed has no topic without them
        await all_confirmed(broker, epoch, on_disk=True)
    with persisting(_what(topic)):
        await _drop_queues(broker, topic, end)
        if topic not in broker.topics:
            _forget(broker, topic)  # what came meanwhile goes, too
        else:  # offsets that came meanwhile may belong to the former queues
            broker.offsets.fit(broker.store.max_offset, without=names.TRANSACTION_GROUP, topic=topic)
        broker.holds.drop(topic)
        await _saved(broker)
    await all_confirmed(broker, epoch)
    if kept := broker.store.reaching_before(topic, end):
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"the topic {topic} was made again while it was deleted, and {kept} of its queues have new messages, and "
            "those from before as well: stop its producers, and delete it again",
        )
    return Reply()


def _what(topic: str) -> str:
    return f"the deletion of the topic {topic}"


def _forget(broker: Broker, topic: str) -> None:
    """A topic is gone from the table: so are its figures, and the offsets in it."""
    _note_deleted(broker, topic)
    broker.offsets.remove_topic(topic)
    broker.statistics.forget_topic(topic)


async def _saved(broker: Broker) -> None:
    await broker.topics.saved()
    await broker.deletions.saved()
    await broker.offsets.saved()


def _note_deleted(broker: Broker, topic: str) -> None:
    """Let the next start, or the next master of the group, delete the queues that it has of a topic that is gone."""
    log_here = broker.store.replicator
    broker.deletions.note(topic, log_here.begin_offset, log_here.end_offset)


async def _drop_queues(broker: Broker, topic: str, end: int) -> None:
    """Delete the queues of a topic in slices; all of them at once if the broker stops meanwhile.

    If the topic is made again meanwhile, queues with messages that have come since, behind ``end``, stay; another
    deletion takes them when the group has agreed to that one.
    """

    def drop(most: int | None = DROPPED_AT_ONCE) -> int:
        gone = topic not in broker.topics and broker.deletions.ends.get(topic) == end
        return broker.store.drop_topic(topic, most, before=None if gone else end)

    try:
        while drop():
            await next_slice()
    except asyncio.CancelledError:
        drop(None)
        raise


@routes.on(api.GET_ALL_TOPIC_CONFIG, reads=True, costly=True)
async def all_topics(broker: Broker, call: Call[Empty]) -> Reply:
    """All topics with their version."""
    return Reply(body=await encoded(broker.topics.wrapper()))


@routes.on(api.GET_TOPIC_CONFIG, reads=True)
def one_topic(broker: Broker, call: Call[OfTopic]) -> Reply:
    """The settings of one topic, for mqadmin of 5.x."""
    config = broker.topics.get(call.header.topic)
    if config is None:
        raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {call.header.topic}")
    return Reply(body=config.encode())


@routes.on(api.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, reads=True)
def system_topics(broker: Broker, call: Call[Empty]) -> Reply:
    """The names that operators may neither create nor delete."""
    return Reply(body=TopicList(topic_list=sorted(broker.topics.system_names)).encode())


@routes.on(api.GET_TOPIC_STATS_INFO, reads=True, costly=True)
async def stats(broker: Broker, call: Call[OfTopic]) -> Reply:
    """Least and next offset of each write queue, and the time of its last write."""
    readable(broker)
    topic = call.header.topic
    config = known_topic(broker, topic)
    store, table = broker.store, TopicStatsTable()
    async for queues in sliced(batches(range(config.write_queue_nums))):
        ends = [max(store.max_offset(topic, queue_id), 0) for queue_id in queues]
        last = [(queue_id, end - 1) for queue_id, end in zip(queues, ends, strict=True)]
        times = await store.lookup(partial(Lookup.store_times, topic=topic, places=last))
        for queue_id, end, written in zip(queues, ends, times, strict=True):
            table.offset_table[MessageQueue(topic, broker.name, queue_id)] = TopicOffset(
                min_offset=max(store.min_offset(topic, queue_id), 0), max_offset=end, last_update_timestamp=written
            )
    return Reply(body=await encoded(table))


@routes.on(api.QUERY_TOPIC_CONSUME_BY_WHO, reads=True, costly=True)
async def consumed_by(broker: Broker, call: Call[OfTopic]) -> Reply:
    """The groups that subscribe to a topic or have offsets in it."""
    topic = call.header.topic
    groups = broker.clients.subscribers(topic) | broker.offsets.groups_of(topic)
    return Reply(body=await encoded(GroupList(group_list=sorted(groups))))


@routes.on(api.CLEAN_UNUSED_TOPIC, costly=True, changes="queues of topics that no longer exist")
async def drop_unused(broker: Broker, call: Call[Empty]) -> Reply:
    """Delete the queues of topics that no longer exist.

    A broker that follows in a group that elects its master deletes nothing: the group may not have agreed to what it
    knows. It deletes what the master has deleted when it is elected.
    """
    used = set(broker.topics) | names.SYSTEM_TOPICS
    if broker.follows_group:
        return Reply()
    epoch = leads_surely(broker)
    await all_confirmed(broker, epoch, on_disk=True)
    gone: set[str] = set()
    with persisting("the deletion of unused queues"):
        while some := broker.store.drop_unused(used | set(broker.topics), DROPPED_AT_ONCE):
            gone.update(some)
            for topic in set(some).difference(broker.topics):
                _note_deleted(broker, topic)
            await next_slice()
        await broker.deletions.saved()
    await all_confirmed(broker, epoch)
    call.note(after=f"deleted: {', '.join(sorted(gone)) or NOTHING}")
    return Reply()
