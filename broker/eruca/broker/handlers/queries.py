"""Lookups: by key (12), by commit log offset (33), and the units of a queue (321) (QueryMessageProcessor in 4.9.7)."""

from __future__ import annotations

from functools import partial

from eruca.broker.broker import Broker
from eruca.broker.handlers.checks import readable
from eruca.broker.store.lookup import Lookup
from eruca.protocol import api
from eruca.protocol.bodies import ConsumeQueueData, QueryConsumeQueueResponseBody
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import Refused
from eruca.protocol.fastjson import Style
from eruca.protocol.headers.pull import QueryConsumeQueue, QueryMessage, QueryMessageReply, ViewMessage
from eruca.protocol.record import decode_record
from eruca.remoting import Call, Reply, Routes
from eruca.remoting.slices import batches, encoded, sliced

routes: Routes[Broker] = Routes()

MOST_UNITS = 10_000
"""The units that one 321 shows; Apache stops at the end of the queue's file."""


@routes.on(api.QUERY_MESSAGE, reads=True)
async def by_key(broker: Broker, call: Call[QueryMessage]) -> Reply:
    """The newest messages of a topic with a key, stored between two times."""
    readable(broker)
    ask = call.header
    wanted = broker.config.store.default_query_max_num if ask.unique_key_query else ask.max_num
    found = await broker.store.lookup(
        lambda there: there.query(ask.topic, ask.key, wanted, ask.begin_timestamp, ask.end_timestamp)
    )
    if not found.records:
        none = QueryMessageReply(index_last_update_timestamp=0, index_last_update_phyoffset=0)
        raise Refused(ResponseCode.QUERY_NOT_FOUND, "can not find message, maybe time range not correct", none)
    reach = QueryMessageReply(
        index_last_update_timestamp=found.index_last_update_timestamp,
        index_last_update_phyoffset=found.index_last_update_physical_offset,
    )
    return Reply(header=reach, body=found.records)


@routes.on(api.VIEW_MESSAGE_BY_ID, reads=True)
async def by_place(broker: Broker, call: Call[ViewMessage]) -> Reply:
    """The record that begins at an offset of the commit log; one that the requester may not read is not there."""
    readable(broker)
    record = await broker.store.shown(call.header.offset, in_queue=bool(call.account))
    if record is None or not call.may_read(decode_record(record).topic):
        raise Refused(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {call.header.offset}")
    return Reply(body=record)


@routes.on(api.QUERY_CONSUME_QUEUE, reads=True, costly=True)
async def units(broker: Broker, call: Call[QueryConsumeQueue]) -> Reply:
    """The units of a queue from an index on, and the subscription of the named group if it is online."""
    readable(broker)
    ask = call.header
    queue = f"{ask.queue_id}@{ask.topic}"
    if ask.queue_id not in broker.store.queue_ids(ask.topic):
        raise Refused(ResponseCode.SYSTEM_ERROR, f"{queue} is not exist!")
    first, end = broker.store.min_offset(ask.topic, ask.queue_id), broker.store.max_offset(ask.topic, ask.queue_id)
    if not 0 <= ask.index < end:
        return Reply(remark=f"Index {ask.index} of {queue} is not exist!")
    indexes = range(ask.index, min(end, ask.index + _bounded(ask.count)))
    units: list[tuple[int, int, int]] = []
    async for some in sliced(batches(indexes)):
        units += await broker.store.lookup(partial(Lookup.units, topic=ask.topic, queue_id=ask.queue_id, indexes=some))
    body = QueryConsumeQueueResponseBody(
        min_queue_index=first,
        max_queue_index=end,
        queue_data=[
            ConsumeQueueData(physic_offset=offset, physic_size=size, tags_code=code) for offset, size, code in units
        ],
    )
    if ask.consumer_group is not None:
        body.subscription_data = broker.clients.subscription(ask.consumer_group, ask.topic)
        body.filter_data = f"{ask.consumer_group}@{ask.topic} is not online!"
        if body.subscription_data is not None:
            known = broker.filters.get(ask.topic, ask.consumer_group)
            body.filter_data = "null" if known is None else known.encode(Style.PRETTY).decode()
    return Reply(body=await encoded(body))


def _bounded(count: int) -> int:
    return min(max(count, 0), MOST_UNITS)
