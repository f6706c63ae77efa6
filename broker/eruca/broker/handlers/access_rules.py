"""What each request to the broker needs of an account: the table of access control.

Owns the rule of every code that the broker serves, and where the requests that carry names in their bodies, or are
about a stored message, have them. Must not know how accounts are checked (``eruca.remoting.access``). Facts:
PlainAccessValidator in 4.9.7, which checks the rules that are marked ``always``, and leaves all others open.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from eruca.broker.broker import Broker
from eruca.protocol import names
from eruca.protocol.bodies import DIALECT_AT_ONCE, CheckClientRequestBody, HeartbeatData, LockBatchRequest
from eruca.protocol.codes import RequestCode
from eruca.protocol.headers.send import EndTransaction
from eruca.remoting import Call
from eruca.remoting.access.rules import Named, Need, Rule, body_of, table

_C = RequestCode
_MONITOR = frozenset({Need.MONITOR})
"""States without messages, which monitors need to do their work."""


def _heartbeat(broker: Broker, call: Call[Any]) -> Named:
    """Each consumer group, and each topic to which one subscribes."""
    beat = body_of(partial(HeartbeatData.decode_request, dialect=DIALECT_AT_ONCE), call)
    groups = [data.group_name for data in beat.consumer_data_set]
    topics = {each.topic for data in beat.consumer_data_set for each in data.subscription_data_set}
    return Named(sorted(topics), groups)


def _locks(broker: Broker, call: Call[Any]) -> Named:
    """The group, and the topic of each queue."""
    ask = body_of(partial(LockBatchRequest.decode_request, dialect=DIALECT_AT_ONCE), call)
    return Named(sorted({queue.topic for queue in ask.mq_set}), (ask.consumer_group,))


def _subscription(broker: Broker, call: Call[Any]) -> Named:
    """The group and the topic of a subscription that is to be checked."""
    ask = body_of(partial(CheckClientRequestBody.decode_request, dialect=DIALECT_AT_ONCE), call)
    return Named((ask.subscription_data.topic,), (ask.group,))


def _half(broker: Broker, call: Call[EndTransaction]) -> Named:
    """The topic for which a half message was sent; none if there is no such message, which the handler then says."""
    half = broker.halves.find(call.header.commit_log_offset)
    return Named() if half is None else Named((half.properties.get(names.REAL_TOPIC, ""),))


RULES: Mapping[int, Rule[Broker]] = table(
    (Rule(need=Need.PUB, topic="topic", always=True), (_C.SEND_MESSAGE, _C.SEND_MESSAGE_V2)),
    (
        Rule(need=Need.PUB, topic="topic"),
        (_C.SEND_BATCH_MESSAGE, _C.SEND_REPLY_MESSAGE, _C.SEND_REPLY_MESSAGE_V2),
    ),
    (Rule(need=Need.PUB, named=_half), (_C.END_TRANSACTION,)),
    (
        Rule(need=Need.BOTH, topic="topic", group="consumer_group", always=True),
        (_C.PULL_MESSAGE, _C.UPDATE_CONSUMER_OFFSET),
    ),
    (
        Rule(need=Need.BOTH, topic="topic", group="consumer_group"),
        (_C.LITE_PULL_MESSAGE, _C.QUERY_CONSUMER_OFFSET),
    ),
    (Rule(need=Need.BOTH, named=_heartbeat, always=True), (_C.HEART_BEAT,)),
    (Rule(need=Need.BOTH, named=_locks), (_C.LOCK_BATCH_MQ, _C.UNLOCK_BATCH_MQ)),
    (Rule(need=Need.BOTH, named=_subscription), (_C.CHECK_CLIENT_CONFIG,)),
    (Rule(need=Need.BOTH, topic="topic", group="group", also=_MONITOR), (_C.QUERY_CONSUME_TIME_SPAN,)),
    # The handler of 36 asks besides whether the requester may read the message (Call.may_read).
    (Rule(need=Need.GROUP, group="group", always=True), (_C.CONSUMER_SEND_MSG_BACK,)),
    (
        Rule(need=Need.GROUP, group="consumer_group", always=True),
        (_C.UNREGISTER_CLIENT, _C.GET_CONSUMER_LIST_BY_GROUP),
    ),
    (
        Rule(need=Need.GROUP, group="consumer_group", also=_MONITOR),
        (_C.GET_CONSUMER_CONNECTION_LIST, _C.GET_CONSUME_STATS),
    ),
    (Rule(need=Need.GROUP, group="group"), (_C.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,)),
    (Rule(need=Need.GROUP, group="consumer_group"), (_C.GET_CONSUMER_RUNNING_INFO,)),
    (Rule(need=Need.SUB, topic="topic", always=True), (_C.QUERY_MESSAGE,)),
    (Rule(need=Need.SUB, topic="topic"), (_C.QUERY_CONSUME_QUEUE,)),
    # Of the message that is found: the handler asks for its topic (Call.may_read).
    (Rule(need=Need.SUB), (_C.VIEW_MESSAGE_BY_ID,)),
    (
        Rule(need=Need.EITHER, topic="topic", also=_MONITOR),
        (
            _C.SEARCH_OFFSET_BY_TIMESTAMP,
            _C.GET_MAX_OFFSET,
            _C.GET_MIN_OFFSET,
            _C.GET_EARLIEST_MSG_STORETIME,
            _C.GET_TOPIC_STATS_INFO,
            _C.QUERY_TOPIC_CONSUME_BY_WHO,
            _C.QUERY_CORRECTION_OFFSET,
            _C.GET_TOPIC_CONFIG,
        ),
    ),
    (
        Rule(need=Need.MONITOR, also=frozenset({Need.BROKER})),
        (
            _C.GET_ALL_TOPIC_CONFIG,
            _C.GET_ALL_CONSUMER_OFFSET,
            _C.GET_ALL_DELAY_OFFSET,
            _C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            _C.GET_BROKER_RUNTIME_INFO,
        ),
    ),
    (
        Rule(need=Need.MONITOR),
        (
            _C.GET_BROKER_CLUSTER_ACL_INFO,
            _C.GET_PRODUCER_CONNECTION_LIST,
            _C.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
            _C.VIEW_BROKER_STATS_DATA,
            _C.GET_BROKER_CONSUME_STATS,
            _C.GET_ALL_PRODUCER_INFO,
            _C.GET_SUBSCRIPTIONGROUP_CONFIG,
            _C.GET_BROKER_HA_STATUS,
            _C.CONTROLLER_GET_METADATA_INFO,
            _C.CONTROLLER_GET_SYNC_STATE_DATA,
            _C.GET_BROKER_EPOCH_CACHE,
        ),
    ),
    (
        Rule(need=Need.ADMIN, always=True),
        (
            _C.UPDATE_AND_CREATE_TOPIC,
            _C.UPDATE_BROKER_CONFIG,
            _C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            _C.DELETE_SUBSCRIPTIONGROUP,
            _C.DELETE_TOPIC_IN_BROKER,
            _C.UPDATE_AND_CREATE_ACL_CONFIG,
            _C.DELETE_ACL_CONFIG,
            _C.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
            _C.GET_BROKER_CLUSTER_ACL_CONFIG,
        ),
    ),
    (
        Rule(need=Need.ADMIN),
        (
            _C.GET_BROKER_CONFIG,
            _C.INVOKE_BROKER_TO_RESET_OFFSET,
            _C.CLEAN_EXPIRED_CONSUMEQUEUE,
            _C.CONSUME_MESSAGE_DIRECTLY,
            _C.CLONE_GROUP_OFFSET,
            _C.CLEAN_UNUSED_TOPIC,
            _C.RESUME_CHECK_HALF_MESSAGE,
            _C.DELETE_EXPIRED_COMMITLOG,
            _C.CONTROLLER_ELECT_MASTER,
        ),
    ),
)
