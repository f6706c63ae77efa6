"""Connected clients: heartbeats, unregistration, lists of clients, checks of subscriptions, and locks of queues.

Requests 34, 35, 38, 41, 42, 46, 203, 204 and 328. Owns only the translation: ``state.clients`` holds who is online,
``state.locks`` who holds a queue. Facts: ClientManageProcessor, ConsumerManageProcessor, ClientHousekeepingService,
ConsumerManager, ProducerManager and RebalanceLockManager in 4.9.7.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from eruca.broker.broker import Broker
from eruca.broker.handlers.checks import (
    all_confirmed,
    confirmed,
    leads_surely,
    legal_client_id,
    legal_group,
    legal_topic,
    still_leads,
)
from eruca.broker.state.clients import Member
from eruca.broker.state.topics import UNIT_SUB
from eruca.protocol import api, bodies, names
from eruca.protocol.bodies import (
    DIALECT_AT_ONCE,
    MOST_GROUPS,
    CheckClientRequestBody,
    ConsumerConnection,
    ConsumerData,
    ConsumerIdList,
    HeartbeatData,
    LockBatchAnswer,
    LockBatchRequest,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
    SubscriptionData,
)
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import LongDialect, ProtocolError, Refused
from eruca.protocol.header import Empty
from eruca.protocol.headers.clients import OfConsumerGroup, OfProducerGroup, UnregisterClient
from eruca.protocol.queues import MessageQueue
from eruca.protocol.sql92 import Sql92Error, compile_sql
from eruca.protocol.subscription import SQL92, is_tag_type
from eruca.remoting import Call, Connection, Reply, Routes
from eruca.remoting.router import Result
from eruca.remoting.slices import batches, encoded, in_thread, sliced

routes: Routes[Broker] = Routes()

LONGEST_WORD = 64
"""Characters of a consume type, message model, start or expression type, which are kept as they come."""
MOST_SUBSCRIPTIONS = 10_000
"""Subscriptions of all groups of a heartbeat, which is read at once."""
MOST_TAGS = 10_000
"""Tags of a subscription, of a heartbeat or of a pull."""
MOST_TAGS_AT_ONCE = 2 * MOST_TAGS
"""Tags of all subscriptions of a heartbeat, which are kept as long as its member is online."""
MOST_GROUPS_OF_ONE = 2_000
"""Groups of one connection, of consumers and producers together, by all of its heartbeats."""
MOST_LOCKS_AT_ONCE = 1024
"""Queues that one request locks or releases at once; more take their time."""


@routes.on(api.HEART_BEAT)
def heartbeat(broker: Broker, call: Call[Empty]) -> Result:
    """34: the groups and subscriptions of a client."""
    try:
        beat = HeartbeatData.decode_request(call.body, DIALECT_AT_ONCE)
    except LongDialect:
        return _long_heartbeat(broker, call)
    except ProtocolError as error:
        raise _unreadable(error) from None
    epoch = _heard(broker, call, beat)
    return confirmed(broker, epoch, Reply()) if epoch else Reply()


async def _long_heartbeat(broker: Broker, call: Call[Empty]) -> Reply:
    try:
        beat = await in_thread(partial(HeartbeatData.decode_request, call.body))
    except ProtocolError as error:
        raise _unreadable(error) from None
    if epoch := _heard(broker, call, beat):
        await all_confirmed(broker, epoch)
    return Reply()


def _unreadable(error: ProtocolError) -> Refused:
    return Refused(ResponseCode.SYSTEM_ERROR, f"the heartbeat cannot be read: {error}")


def _heard(broker: Broker, call: Call[Empty], beat: HeartbeatData) -> int:
    """Take in a heartbeat. The epoch, if it has changed groups, topics or filters that all brokers of a group have;
    else 0."""
    legal_client_id(beat.client_id)
    count = len(beat.consumer_data_set) + len(beat.producer_data_set)
    if count > MOST_GROUPS:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"the heartbeat names {count} groups, at most {MOST_GROUPS} are allowed; send several heartbeats",
        )
    subscriptions = sum(len(data.subscription_data_set) for data in beat.consumer_data_set)
    if subscriptions > MOST_SUBSCRIPTIONS:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"the heartbeat has {subscriptions} subscriptions, at most {MOST_SUBSCRIPTIONS} are allowed; send several "
            "heartbeats",
        )
    tags = sum(_tags(each) for data in beat.consumer_data_set for each in data.subscription_data_set)
    if tags > MOST_TAGS_AT_ONCE:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"the heartbeat has {tags} tags, at most {MOST_TAGS_AT_ONCE} are allowed; send several heartbeats",
        )
    groups = {data.group_name for data in beat.consumer_data_set}, {data.group_name for data in beat.producer_data_set}
    if (known := broker.clients.groups_of(call.connection, *groups)) > MOST_GROUPS_OF_ONE:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"the connection is in {known} groups with this heartbeat, at most {MOST_GROUPS_OF_ONE} are allowed; open "
            "another one",
        )
    now = broker.monotonic()
    before = broker.tables.number if broker.tables is not None else 0
    refused: Refused | None = None

    def member() -> Member:
        return Member(call.connection, beat.client_id, call.language, call.version, now, call.may_send)

    for data in beat.consumer_data_set:
        try:
            _legal(data)
            notify = _create_group(broker, data)
        except Refused as refusal:  # the client's other groups stay online
            refused = refused or refusal
            continue
        if broker.clients.register_consumer(data, member()) and notify:
            _notify_members(broker, [data.group_name])
        broker.filters.register(data.group_name, data.subscription_data_set)
    for producer in beat.producer_data_set:
        try:
            legal_group(producer.group_name)
        except Refused as refusal:
            refused = refused or refusal
        else:
            broker.clients.register_producer(producer.group_name, member())
    if refused is not None:
        raise refused
    return broker.tables.epoch if broker.tables is not None and broker.tables.number != before else 0


def _tags(subscription: SubscriptionData) -> int:
    return max(len(subscription.tags_set), len(subscription.code_set))


def _legal(data: ConsumerData) -> None:
    """Refuse a consumer group with names that no group or topic may have, or with words too long to be any."""
    legal_group(data.group_name)
    words = [data.consume_type, data.message_model, data.consume_from_where]
    for subscription in data.subscription_data_set:
        if subscription.topic != names.retry_topic(data.group_name):
            legal_topic(subscription.topic)
        words.append(subscription.expression_type)
        if _tags(subscription) > MOST_TAGS:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"the subscription to {subscription.topic} has more than {MOST_TAGS} tags: subscribe to '*' and choose "
                "in the listener, or filter by a property",
            )
    if any(len(word) > LONGEST_WORD for word in words if word is not None):
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"the group {data.group_name} names a kind of consumer or expression with more than {LONGEST_WORD} "
            "characters, which nobody knows",
        )


def _create_group(broker: Broker, data: ConsumerData) -> bool:
    """Create group and retry topic if that is allowed; returns whether members are to be notified of changes.

    A broker that follows in a group that elects its master makes neither: its master hears of the member, too.

    Raises Refused if there is no room for a new group or its retry topic; then neither is made.
    """
    topic = names.retry_topic(data.group_name)
    has_topic = names.topic_fault(topic) is None
    if has_topic and broker.groups.comes_by_itself(data.group_name):
        broker.topics.need_room(topic)
    group = broker.groups.find(data.group_name)
    if group is None:
        return True
    if has_topic and not broker.follows_group:
        flag = UNIT_SUB if data.unit_mode else 0
        broker.registration.have_topic(topic, group.retry_queue_nums, sys_flag=flag)
    return group.notify_consumer_ids_changed_enable


def _notify_members(broker: Broker, groups: list[str]) -> None:
    """Send request 40 one-way to every online member of ``groups`` (DefaultConsumerIdsChangeListener in 4.9.7)."""
    if not broker.config.notify_consumer_ids_changed_enable:
        return
    for name in groups:
        group = broker.clients.consumer(name)
        if group is not None:
            for connection in group.members:
                connection.oneway(api.NOTIFY_CONSUMER_IDS_CHANGED, OfConsumerGroup(consumer_group=name))


@routes.on(api.UNREGISTER_CLIENT)
def unregister(broker: Broker, call: Call[UnregisterClient]) -> Reply:
    """35: a client leaves a producer group, a consumer group, or both."""
    ask = call.header
    if ask.producer_group:
        broker.clients.unregister_producer(ask.producer_group, call.connection)
    if ask.consumer_group and broker.clients.unregister_consumer(ask.consumer_group, call.connection):
        group = broker.groups.get(ask.consumer_group)
        if group is None or group.notify_consumer_ids_changed_enable:
            _notify_members(broker, [ask.consumer_group])
        _unregister_filters(broker, [ask.consumer_group])
    return Reply()


def connection_lost(broker: Broker, connection: Connection) -> None:
    """Remove the client of an ended connection from its groups."""
    groups = broker.clients.lost(connection)
    _notify_members(broker, groups)
    _unregister_filters(broker, groups)


def _unregister_filters(broker: Broker, groups: list[str]) -> None:
    """Unregister the filters of groups whose last member has left."""
    for group in groups:
        if broker.clients.consumer(group) is None:
            broker.filters.unregister(group)


def drop_silent(broker: Broker, now: int) -> None:
    """Close the connections of clients that sent no heartbeat for channelExpiredTimeout."""
    for connection in broker.clients.silent(now, broker.config.channel_expired_timeout):
        connection_lost(broker, connection)
        connection.close()


@routes.on(api.GET_CONSUMER_LIST_BY_GROUP, reads=True)
def consumer_list(broker: Broker, call: Call[OfConsumerGroup]) -> Reply:
    """38: the client ids of a group."""
    group = broker.clients.consumer(call.header.consumer_group)
    if group is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {call.header.consumer_group}")
    return Reply(body=ConsumerIdList(consumer_id_list=group.client_ids).encode())


@routes.on(api.CHECK_CLIENT_CONFIG, reads=True)
def check_subscription(broker: Broker, call: Call[Empty]) -> Reply:
    """46: whether this broker can filter by a subscription."""
    try:
        subscription = CheckClientRequestBody.decode_request(call.body, DIALECT_AT_ONCE).subscription_data
    except ProtocolError as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"the subscription cannot be read: {error}") from None
    if subscription.class_filter_mode:
        raise class_filter_refused()
    if is_tag_type(subscription.expression_type):
        return Reply()
    if not broker.config.enable_property_filter:
        raise filter_refused(subscription.expression_type)
    if subscription.expression_type != SQL92:
        raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, filter_refused(subscription.expression_type).remark)
    try:
        compile_sql(subscription.sub_string or "")
    except Sql92Error as error:
        raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
    return Reply()


def filter_refused(expression_type: str) -> Refused:
    """The refusal of an expression type that this broker does not evaluate."""
    advice = "; set enablePropertyFilter=true in its configuration" if expression_type == SQL92 else ""
    return Refused(
        ResponseCode.SYSTEM_ERROR,
        f"The broker does not support consumer to filter message by {expression_type}{advice}",
    )


def class_filter_refused() -> Refused:
    """The refusal of filters that are Java classes, which needed the filter servers of old versions."""
    return Refused(
        ResponseCode.SYSTEM_ERROR,
        "The broker does not support consumer to filter message by a Java class; subscribe by tags or by SQL92",
    )


# ------------------------------------------------------------------ lists of clients, for operators


@routes.on(api.GET_CONSUMER_CONNECTION_LIST, reads=True, costly=True)
async def consumers(broker: Broker, call: Call[OfConsumerGroup]) -> Reply:
    """The online members of a consumer group, and its subscriptions."""
    group = broker.clients.consumer(call.header.consumer_group)
    if group is None:
        raise Refused(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{call.header.consumer_group}] not online")
    body = ConsumerConnection(
        connection_set=await _connections(group.members.values()),
        consume_from_where=group.consume_from_where,
        consume_type=group.consume_type,
        message_model=group.message_model,
        subscription_table=group.subscriptions,
    )
    return Reply(body=await encoded(body))


@routes.on(api.GET_PRODUCER_CONNECTION_LIST, reads=True, costly=True)
async def producers(broker: Broker, call: Call[OfProducerGroup]) -> Reply:
    """The online members of a producer group."""
    members = broker.clients.producers.get(call.header.producer_group)
    if members is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"the producer group[{call.header.producer_group}] not exist")
    return Reply(body=await encoded(ProducerConnection(connection_set=await _connections(members.values()))))


@routes.on(api.GET_ALL_PRODUCER_INFO, reads=True, costly=True)
async def all_producers(broker: Broker, call: Call[Empty]) -> Reply:
    """All online producers by group."""
    now, passed = broker.clock(), broker.monotonic()
    table = {
        group: [
            ProducerInfo(
                client_id=member.client_id,
                language=member.language,
                last_update_timestamp=now - (passed - member.last_seen),
                remote_ip=f"/{member.connection.remote}",
                version=member.version,
            )
            for member in members.values()
        ]
        async for group, members in sliced(list(broker.clients.producers.items()))
    }
    return Reply(body=await encoded(ProducerTableInfo(data=table)))


async def _connections(members: Iterable[Member]) -> list[bodies.Connection]:
    return [
        bodies.Connection(
            client_addr=member.connection.remote,
            client_id=member.client_id,
            language=member.language,
            version=member.version,
        )
        async for member in sliced(list(members))
    ]


# ------------------------------------------------------------------ locks of queues, for orderly consumers


@routes.on(api.LOCK_BATCH_MQ)
def lock(broker: Broker, call: Call[Empty]) -> Result:
    """Lock queues for a client; the answer names those that it now holds."""
    ask = _asked(call)
    epoch = leads_surely(broker)
    if len(ask.mq_set) > MOST_LOCKS_AT_ONCE:
        return _lock_many(broker, epoch, ask)
    held = broker.locks.lock(ask.consumer_group, ask.mq_set, ask.client_id, broker.monotonic())
    if ask.mq_set and not held and len(broker.locks) >= broker.locks.most:
        raise Refused(
            ResponseCode.SYSTEM_BUSY,
            f"{broker.locks.most} queues are locked at this broker, more may not be: locks end when their consumers do",
        )
    return confirmed(broker, epoch, Reply(body=LockBatchAnswer(locked=held).encode()))


async def _lock_many(broker: Broker, epoch: int, ask: LockBatchRequest) -> Reply:
    held: list[MessageQueue] = []
    async for queues in sliced(batches(ask.mq_set)):
        still_leads(broker, epoch)
        held += broker.locks.lock(ask.consumer_group, queues, ask.client_id, broker.monotonic())
    await all_confirmed(broker, epoch)
    return Reply(body=await encoded(LockBatchAnswer(locked=held)))


@routes.on(api.UNLOCK_BATCH_MQ)
def unlock(broker: Broker, call: Call[Empty]) -> Result:
    """Release the queues that the client holds.

    A client that stops sends this last: few are released at once, before the end of its connection is seen.
    """
    ask = _asked(call)
    epoch = leads_surely(broker)
    if len(ask.mq_set) > MOST_LOCKS_AT_ONCE:
        return _unlock_many(broker, epoch, ask)
    broker.locks.unlock(ask.consumer_group, ask.mq_set, ask.client_id)
    return Reply()


async def _unlock_many(broker: Broker, epoch: int, ask: LockBatchRequest) -> Reply:
    async for queues in sliced(batches(ask.mq_set)):
        still_leads(broker, epoch)
        broker.locks.unlock(ask.consumer_group, queues, ask.client_id)
    return Reply()


def _asked(call: Call[Empty]) -> LockBatchRequest:
    try:
        ask = LockBatchRequest.decode_request(call.body, DIALECT_AT_ONCE)
    except ProtocolError as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"the body is no LockBatchRequestBody: {error}") from None
    legal_client_id(ask.client_id)
    legal_group(ask.consumer_group)
    return ask
