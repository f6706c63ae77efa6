"""The progress of groups against the stored messages: requests 208, 303 and 317 (AdminBrokerProcessor in 4.9.7)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import partial

from eruca.broker.broker import Broker
from eruca.broker.handlers.checks import known_topic, knows_offsets
from eruca.broker.store.lookup import Lookup
from eruca.protocol import api
from eruca.protocol.bodies import (
    ConsumeStats,
    ConsumeStatsList,
    ConsumeTimeSpans,
    OffsetWrapper,
    QueueTimeSpan,
    TopicConfig,
)
from eruca.protocol.headers.topics import BrokerConsumeStatsOf, ConsumeStatsOf, ConsumeTimeSpanOf
from eruca.protocol.queues import MessageQueue
from eruca.remoting import Call, Reply, Routes
from eruca.remoting.slices import batches, encoded, sliced

routes: Routes[Broker] = Routes()


@routes.on(api.GET_CONSUME_STATS, reads=True, costly=True)
async def consume_stats(broker: Broker, call: Call[ConsumeStatsOf]) -> Reply:
    """Offsets and lag of a group in each read queue of one topic, or of all topics in which it has offsets.

    Unknown topics, and topics that the online group does not subscribe to, are skipped.
    """
    knows_offsets(broker)
    group, topic = call.header.consumer_group, call.header.topic
    topics = [topic] if topic and not topic.isspace() else sorted(broker.offsets.topics_of(group))
    stats = ConsumeStats()
    for config in _consumed(broker, group, topics):
        await _add(stats, broker, group, config, config.read_queue_nums)
    async for queue, offset in sliced(list(stats.offset_table.items())):
        offset.pull_offset = max(offset.consumer_offset, _reached(broker, group, queue))
    return Reply(body=await encoded(stats))


def _reached(broker: Broker, group: str, queue: MessageQueue) -> int:
    """The offset of the next pull of a group's members; 0 if no member is online to hold unconsumed messages."""
    if broker.clients.consumer(group) is None:
        return 0
    return broker.statistics.reached(group, queue.topic, queue.queue_id)


@routes.on(api.GET_BROKER_CONSUME_STATS, reads=True, costly=True)
async def all_consume_stats(broker: Broker, call: Call[BrokerConsumeStatsOf]) -> Reply:
    """Offsets and lag of every configured group by topic and write queue; on request only of ordered topics."""
    knows_offsets(broker)
    body = ConsumeStatsList(broker_addr=broker.address)
    async for group in sliced(list(broker.groups.table)):
        found = []
        for config in _consumed(broker, group, sorted(broker.offsets.topics_of(group))):
            if config.order or not call.header.is_order:
                stats = ConsumeStats()
                body.total_diff += await _add(stats, broker, group, config, config.write_queue_nums)
                found.append(stats)
        body.consume_stats_list.append({group: found})
    return Reply(body=await encoded(body))


def _consumed(broker: Broker, group: str, topics: Iterable[str]) -> Iterator[TopicConfig]:
    online = broker.clients.consumer(group)
    subscribed = online.subscriptions if online is not None else None
    for topic in topics:
        config = broker.topics.get(topic)
        if config is not None and (not subscribed or topic in subscribed):
            yield config


async def _add(stats: ConsumeStats, broker: Broker, group: str, config: TopicConfig, queues: int) -> int:
    """Add the progress of a group in a topic; returns the lag."""
    topic, store = config.topic_name, broker.store
    lag = 0
    async for some in sliced(batches(range(queues))):
        offsets = [max(broker.offsets.query(group, topic, queue_id), 0) for queue_id in some]
        last = [(queue_id, end - 1) for queue_id, end in zip(some, offsets, strict=True)]
        times = await store.lookup(partial(Lookup.store_times, topic=topic, places=last))
        for queue_id, consumed, time in zip(some, offsets, times, strict=True):
            progress = OffsetWrapper(
                broker_offset=max(store.max_offset(topic, queue_id), 0),
                consumer_offset=consumed,
                last_timestamp=max(time, 0),
            )
            stats.offset_table[MessageQueue(topic, broker.name, queue_id)] = progress
            lag += progress.lag()
    stats.consume_tps += broker.statistics.consume_tps(group, topic)
    return lag


@routes.on(api.QUERY_CONSUME_TIME_SPAN, reads=True, costly=True)
async def time_spans(broker: Broker, call: Call[ConsumeTimeSpanOf]) -> Reply:
    """The times of the oldest, the newest and the last consumed message of each write queue, and the delay of the
    group; -1 for an empty queue."""
    knows_offsets(broker)
    topic, group = call.header.topic, call.header.group
    config = known_topic(broker, topic)
    spans = [await _span(broker, group, topic, queue_id) async for queue_id in sliced(range(config.write_queue_nums))]
    return Reply(body=await encoded(ConsumeTimeSpans(consume_time_span_set=spans)))


async def _span(broker: Broker, group: str, topic: str, queue_id: int) -> QueueTimeSpan:
    store = broker.store
    first, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    consumed = broker.offsets.query(group, topic, queue_id)
    waiting = max(consumed, first)
    places = (first, end - 1, consumed - 1 if consumed > 0 else first, waiting)
    oldest, newest, last, due = await store.lookup(
        lambda there: [there.store_time(topic, queue_id, place) for place in places]
    )
    late = broker.clock() - due if waiting < end else 0
    return QueueTimeSpan(
        message_queue=MessageQueue(topic, broker.name, queue_id),
        min_time_stamp=oldest,
        min_time_stamp_str=_time_text(oldest),
        max_time_stamp=newest,
        max_time_stamp_str=_time_text(newest),
        consume_time_stamp=last,
        consume_time_stamp_str=_time_text(last),
        delay_time=late,
    )


def _time_text(millis: int) -> str:
    """``yyyy-MM-dd#HH:mm:ss:SSS`` in the broker's zone."""
    return f"{datetime.fromtimestamp(millis // 1000):%Y-%m-%d#%H:%M:%S}:{millis % 1000:03d}"
