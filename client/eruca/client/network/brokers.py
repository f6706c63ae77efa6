"""What is asked of brokers about one queue: its offsets, a group's offsets, and messages.

Owns the requests and what their answers mean. Each function asks once and waits for the answer; several may be under
way on one connection. Raises ClientError. Offsets count messages, times are ms since 1970.
"""

from __future__ import annotations

from msgspec.structs import replace

from eruca.client.errors import BadAnswer, BrokerRefused, BrokerUnreachable, UsageError
from eruca.client.network.session import Session
from eruca.protocol import api
from eruca.protocol.bodies import CheckClientRequestBody, ConsumerOffsets, SubscriptionData
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import ProtocolError
from eruca.protocol.headers import offsets, pull, send
from eruca.protocol.queues import MessageQueue
from eruca.protocol.record import Record, decode_records
from eruca.protocol.subscription import ALL, TAG, is_tag_type
from eruca.remoting import Answer

OFFSET_TIMEOUT = 5.0
"""Seconds for a group's offsets (RemoteBrokerOffsetStore in 4.9.7)."""
SEND_BACK_TIMEOUT = 5.0
_STEP = 32
"""Messages of one pull in the search for a time."""


async def min_offset(session: Session, queue: MessageQueue) -> int:
    """The offset of the oldest message that is there."""
    return await _offset(session, queue, api.GET_MIN_OFFSET)


async def max_offset(session: Session, queue: MessageQueue) -> int:
    """The offset that the next message will get."""
    return await _offset(session, queue, api.GET_MAX_OFFSET)


async def _offset(
    session: Session, queue: MessageQueue, endpoint: api.Endpoint[offsets.QueueOf, offsets.OffsetReply]
) -> int:
    address = await session.directory.master(queue.broker_name, queue.topic)
    answer = await session.call(address, endpoint, offsets.QueueOf(topic=queue.topic, queue_id=queue.queue_id))
    return answer.header.offset


async def offset_by_time(session: Session, queue: MessageQueue, timestamp: int) -> int:
    """The offset of the message stored nearest to ``timestamp``, by the broker's rule."""
    address = await session.directory.master(queue.broker_name, queue.topic)
    ask = offsets.SearchOffset(topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp)
    return (await session.call(address, api.SEARCH_OFFSET_BY_TIMESTAMP, ask)).header.offset


async def offset_since(session: Session, group: str, queue: MessageQueue, timestamp: int) -> int:
    """The offset of the first message stored at ``timestamp`` or later; the end where there is none yet.

    The broker's search finds a neighbour, or any one of several that were stored in the same ms. So the messages from
    there on are pulled until one fits.
    """
    offset = await offset_by_time(session, queue, max(timestamp - 1, 0))
    while True:
        ask = pull_request(group, queue, offset, _STEP)
        answer = await pull_messages(session, queue, ask)
        try:
            records = decode_records(answer.body)
        except ProtocolError as error:
            raise BadAnswer(str(error)) from error
        for record in records:
            if record.store_timestamp >= timestamp:
                return record.queue_offset
        if not records and answer.header.next_begin_offset <= offset:
            return offset
        offset = answer.header.next_begin_offset


async def earliest_store_time(session: Session, queue: MessageQueue) -> int:
    """When the oldest message was stored; -1 in an empty queue."""
    address = await session.directory.master(queue.broker_name, queue.topic)
    ask = offsets.QueueOf(topic=queue.topic, queue_id=queue.queue_id)
    return (await session.call(address, api.GET_EARLIEST_MSG_STORETIME, ask)).header.timestamp


async def group_offset(session: Session, group: str, queue: MessageQueue) -> int | None:
    """Where the group goes on in the queue; None where the broker refuses to say, normally since it has none.

    A broker answers a new group 0 as long as the queue's first message is there and in memory.
    """
    address = await session.directory.reader(queue.broker_name, queue.topic)
    ask = offsets.QueryConsumerOffset(consumer_group=group, topic=queue.topic, queue_id=queue.queue_id)
    try:
        answer = await session.call(address, api.QUERY_CONSUMER_OFFSET, ask, timeout=OFFSET_TIMEOUT)
    except BrokerRefused as error:
        if error.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        raise
    return answer.header.offset


async def has_group_offset(session: Session, group: str, queue: MessageQueue) -> bool:
    """Whether the broker has an offset of the group, which ``group_offset`` cannot distinguish from none while it is 0.

    Asks for all offsets of the broker (43): use it rarely.
    """
    known = session.names
    table = await all_group_offsets(session, queue)
    return queue.queue_id in table.get(f"{known.to_broker(queue.topic)}@{known.to_broker(group)}", {})


async def all_group_offsets(session: Session, queue: MessageQueue) -> dict[str, dict[int, int]]:
    """All offsets of the queue's broker: by ``topic@group``, as it names them, and queue id (43)."""
    address = await session.directory.reader(queue.broker_name, queue.topic)
    answer = await session.call(address, api.GET_ALL_CONSUMER_OFFSET, timeout=OFFSET_TIMEOUT)
    try:
        return ConsumerOffsets.decode(answer.body).offset_table
    except ProtocolError as error:
        raise BadAnswer(str(error)) from error


async def store_group_offset(session: Session, group: str, queue: MessageQueue, offset: int) -> None:
    """Store where the group goes on; returns when the broker has confirmed it."""
    address = await session.directory.reader(queue.broker_name, queue.topic)
    ask = offsets.UpdateConsumerOffset(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
    )
    await session.call(address, api.UPDATE_CONSUMER_OFFSET, ask, timeout=OFFSET_TIMEOUT)


def pull_request(
    group: str,
    queue: MessageQueue,
    offset: int,
    most: int,
    *,
    expression: str = ALL,
    expression_type: str = TAG,
    suspend: float = 0.0,
) -> pull.PullMessage:
    """A pull that needs no member: it brings its subscription. ``suspend``: seconds for which it may be held."""
    return pull.PullMessage(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=most,
        sys_flag=pull.SUBSCRIPTION | (pull.SUSPEND if suspend > 0 else 0),
        commit_offset=0,
        suspend_timeout_millis=int(min(suspend * 1000, 2**31 - 1)),  # infinity included
        subscription=expression,
        sub_version=0,
        expression_type=expression_type,
    )


async def pull_messages(
    session: Session, queue: MessageQueue, ask: pull.PullMessage, *, broker_id: int = 0, timeout: float = 10.0
) -> Answer[pull.PullReply]:
    """Pull once from the suggested broker id; ``timeout`` in seconds must outlast the time the broker may hold it.

    If the connection ends, and another broker is known in the place of that one, what is left of the pull goes there.
    """
    asked = session.loop.time()
    address = await session.directory.reader(queue.broker_name, queue.topic, broker_id)
    try:
        return await session.call(address, api.PULL_MESSAGE, ask, timeout=timeout)
    except BrokerUnreachable:
        other = await session.directory.reader(queue.broker_name, queue.topic, broker_id)
        gone = session.loop.time() - asked
        if other == address or gone >= timeout:
            raise
    held = max(ask.suspend_timeout_millis - int(gone * 1000), 0)
    ask = replace(ask, suspend_timeout_millis=held)
    return await session.call(other, api.PULL_MESSAGE, ask, timeout=timeout - gone)


async def check_subscription(session: Session, group: str, subscription: SubscriptionData) -> None:
    """Ask a broker of the topic whether it can filter by this expression (46); tags need no asking.

    Raises UsageError when it cannot.
    """
    if is_tag_type(subscription.expression_type):
        return
    route = await session.directory.route(subscription.topic)
    body = CheckClientRequestBody(
        client_id=session.client_id,
        group=session.names.to_broker(group),
        subscription_data=session.names.subscription(subscription),
    ).encode()
    for broker in route.brokers:
        address = await session.directory.reader(broker)
        try:
            await session.call(address, api.CHECK_CLIENT_CONFIG, body=body)
        except BrokerRefused as error:
            raise UsageError(
                f"The subscription of {subscription.topic} by {subscription.expression_type} "
                f'"{subscription.sub_string}" is refused by {broker}: {error.remark}'
            ) from error


async def send_back(
    session: Session, group: str, queue: MessageQueue, record: Record, *, delay_level: int, max_reconsume_times: int
) -> None:
    """Let the broker deliver a message again later (36); ``delay_level`` 0 leaves the delay to it."""
    address = await session.directory.master(queue.broker_name, queue.topic)
    ask = send.ConsumerSendMsgBack(
        offset=record.physical_offset,
        group=group,
        delay_level=delay_level,
        origin_msg_id=record.unique_key or record.offset_message_id,
        origin_topic=record.topic,
        max_reconsume_times=max_reconsume_times,
    )
    await session.call(address, api.CONSUMER_SEND_MSG_BACK, ask, timeout=SEND_BACK_TIMEOUT)
