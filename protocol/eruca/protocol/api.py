"""The table of all requests: code, request header, answer header, and the codes that count as an answer.

Servers register handlers for these entries, callers pass them to calls, tests and tools read them. Nothing else in
Eruca pairs a code with its headers. ``bodies`` has the types of bodies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from eruca.protocol.codes import RequestCode, ResponseCode
from eruca.protocol.header import Empty, Header
from eruca.protocol.headers import access, clients, failover, offsets, pull, routes, send, topics
from eruca.protocol.templates import encode_send, read_pull, read_send

Ask = TypeVar("Ask", bound=Header)
Answer = TypeVar("Answer", bound=Header)

_OK = frozenset({ResponseCode.SUCCESS})


class Endpoint(msgspec.Struct, Generic[Ask, Answer], frozen=True, eq=False):
    """One kind of request.

    ``accepts`` are the response codes whose header is of the ``answer`` type; a caller gets any other code as Refused.
    Frequent requests have fast paths: ``read_binary`` reads the fields of a binary header (as ``frame.FieldsReader``),
    ``encode`` writes everything of a request's frame before its body, given serialization, code, opaque, flag, header
    and the length of the body (as ``frame.encode``).
    """

    code: RequestCode
    ask: type[Ask]
    answer: type[Answer]
    accepts: frozenset[ResponseCode] = _OK
    read_binary: Callable[[bytes], Ask | None] | None = None
    encode: Callable[[int, int, int, int, Any, int], bytes] | None = None


_STORED = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    }
)
_PULLED = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)
_C = RequestCode

# Sending
SEND_MESSAGE = Endpoint(_C.SEND_MESSAGE, send.SendMessage, send.SendReply, _STORED)
SEND_MESSAGE_V2 = Endpoint(_C.SEND_MESSAGE_V2, send.SendMessageV2, send.SendReply, _STORED, read_send, encode_send)
SEND_BATCH_MESSAGE = Endpoint(
    _C.SEND_BATCH_MESSAGE, send.SendMessageV2, send.SendReply, _STORED, read_send, encode_send
)
SEND_REPLY_MESSAGE = Endpoint(_C.SEND_REPLY_MESSAGE, send.SendMessage, send.SendReply)
SEND_REPLY_MESSAGE_V2 = Endpoint(
    _C.SEND_REPLY_MESSAGE_V2, send.SendMessageV2, send.SendReply, read_binary=read_send, encode=encode_send
)
CONSUMER_SEND_MSG_BACK = Endpoint(_C.CONSUMER_SEND_MSG_BACK, send.ConsumerSendMsgBack, Empty)
END_TRANSACTION = Endpoint(_C.END_TRANSACTION, send.EndTransaction, Empty)

# Consuming
PULL_MESSAGE = Endpoint(_C.PULL_MESSAGE, pull.PullMessage, pull.PullReply, _PULLED, read_pull)
LITE_PULL_MESSAGE = Endpoint(_C.LITE_PULL_MESSAGE, pull.PullMessage, pull.PullReply, _PULLED, read_pull)
QUERY_CONSUMER_OFFSET = Endpoint(_C.QUERY_CONSUMER_OFFSET, offsets.QueryConsumerOffset, offsets.OffsetReply)
UPDATE_CONSUMER_OFFSET = Endpoint(_C.UPDATE_CONSUMER_OFFSET, offsets.UpdateConsumerOffset, Empty)
SEARCH_OFFSET_BY_TIMESTAMP = Endpoint(_C.SEARCH_OFFSET_BY_TIMESTAMP, offsets.SearchOffset, offsets.OffsetReply)
GET_MAX_OFFSET = Endpoint(_C.GET_MAX_OFFSET, offsets.QueueOf, offsets.OffsetReply)
GET_MIN_OFFSET = Endpoint(_C.GET_MIN_OFFSET, offsets.QueueOf, offsets.OffsetReply)
GET_EARLIEST_MSG_STORETIME = Endpoint(_C.GET_EARLIEST_MSG_STORETIME, offsets.QueueOf, offsets.TimestampReply)
LOCK_BATCH_MQ = Endpoint(_C.LOCK_BATCH_MQ, Empty, Empty)
UNLOCK_BATCH_MQ = Endpoint(_C.UNLOCK_BATCH_MQ, Empty, Empty)
QUERY_MESSAGE = Endpoint(_C.QUERY_MESSAGE, pull.QueryMessage, pull.QueryMessageReply)
VIEW_MESSAGE_BY_ID = Endpoint(_C.VIEW_MESSAGE_BY_ID, pull.ViewMessage, Empty)
QUERY_CONSUME_QUEUE = Endpoint(_C.QUERY_CONSUME_QUEUE, pull.QueryConsumeQueue, Empty)

# Clients
HEART_BEAT = Endpoint(_C.HEART_BEAT, Empty, Empty)
UNREGISTER_CLIENT = Endpoint(_C.UNREGISTER_CLIENT, clients.UnregisterClient, Empty)
GET_CONSUMER_LIST_BY_GROUP = Endpoint(_C.GET_CONSUMER_LIST_BY_GROUP, clients.OfConsumerGroup, Empty)
CHECK_CLIENT_CONFIG = Endpoint(_C.CHECK_CLIENT_CONFIG, Empty, Empty)
GET_CONSUMER_CONNECTION_LIST = Endpoint(_C.GET_CONSUMER_CONNECTION_LIST, clients.OfConsumerGroup, Empty)
GET_PRODUCER_CONNECTION_LIST = Endpoint(_C.GET_PRODUCER_CONNECTION_LIST, clients.OfProducerGroup, Empty)
GET_ALL_PRODUCER_INFO = Endpoint(_C.GET_ALL_PRODUCER_INFO, Empty, Empty)

# Broker to client
CHECK_TRANSACTION_STATE = Endpoint(_C.CHECK_TRANSACTION_STATE, send.CheckTransactionState, Empty)
NOTIFY_CONSUMER_IDS_CHANGED = Endpoint(_C.NOTIFY_CONSUMER_IDS_CHANGED, clients.OfConsumerGroup, Empty)
RESET_CONSUMER_CLIENT_OFFSET = Endpoint(_C.RESET_CONSUMER_CLIENT_OFFSET, offsets.ResetOffset, Empty)
GET_CONSUMER_STATUS_FROM_CLIENT = Endpoint(_C.GET_CONSUMER_STATUS_FROM_CLIENT, offsets.ConsumerStatus, Empty)
GET_CONSUMER_RUNNING_INFO = Endpoint(_C.GET_CONSUMER_RUNNING_INFO, clients.ConsumerRunningInfoOf, Empty)
CONSUME_MESSAGE_DIRECTLY = Endpoint(_C.CONSUME_MESSAGE_DIRECTLY, clients.ConsumeMessageDirectly, Empty)
PUSH_REPLY_MESSAGE_TO_CLIENT = Endpoint(_C.PUSH_REPLY_MESSAGE_TO_CLIENT, send.PushReplyMessage, Empty)

# Offsets of groups, by admins
INVOKE_BROKER_TO_RESET_OFFSET = Endpoint(_C.INVOKE_BROKER_TO_RESET_OFFSET, offsets.ResetOffset, Empty)
INVOKE_BROKER_TO_GET_CONSUMER_STATUS = Endpoint(_C.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, offsets.ConsumerStatus, Empty)
QUERY_CORRECTION_OFFSET = Endpoint(_C.QUERY_CORRECTION_OFFSET, offsets.CorrectionOffset, Empty)
CLONE_GROUP_OFFSET = Endpoint(_C.CLONE_GROUP_OFFSET, offsets.CloneGroupOffset, Empty)
GET_CONSUME_STATS = Endpoint(_C.GET_CONSUME_STATS, topics.ConsumeStatsOf, Empty)
GET_BROKER_CONSUME_STATS = Endpoint(_C.GET_BROKER_CONSUME_STATS, topics.BrokerConsumeStatsOf, Empty)
QUERY_CONSUME_TIME_SPAN = Endpoint(_C.QUERY_CONSUME_TIME_SPAN, topics.ConsumeTimeSpanOf, Empty)
QUERY_TOPIC_CONSUME_BY_WHO = Endpoint(_C.QUERY_TOPIC_CONSUME_BY_WHO, topics.OfTopic, Empty)

# Topics, groups and the broker itself, by admins and slaves
UPDATE_AND_CREATE_TOPIC = Endpoint(_C.UPDATE_AND_CREATE_TOPIC, topics.CreateTopic, Empty)
DELETE_TOPIC_IN_BROKER = Endpoint(_C.DELETE_TOPIC_IN_BROKER, topics.OfTopic, Empty)
GET_ALL_TOPIC_CONFIG = Endpoint(_C.GET_ALL_TOPIC_CONFIG, Empty, Empty)
GET_TOPIC_CONFIG = Endpoint(_C.GET_TOPIC_CONFIG, topics.OfTopic, Empty)
GET_TOPIC_STATS_INFO = Endpoint(_C.GET_TOPIC_STATS_INFO, topics.OfTopic, Empty)
UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = Endpoint(_C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, Empty, Empty)
DELETE_SUBSCRIPTIONGROUP = Endpoint(_C.DELETE_SUBSCRIPTIONGROUP, topics.DeleteSubscriptionGroup, Empty)
GET_ALL_SUBSCRIPTIONGROUP_CONFIG = Endpoint(_C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, Empty, Empty)
GET_SUBSCRIPTIONGROUP_CONFIG = Endpoint(_C.GET_SUBSCRIPTIONGROUP_CONFIG, topics.OfGroup, Empty)
GET_ALL_CONSUMER_OFFSET = Endpoint(_C.GET_ALL_CONSUMER_OFFSET, Empty, Empty)
GET_ALL_DELAY_OFFSET = Endpoint(_C.GET_ALL_DELAY_OFFSET, Empty, Empty)
UPDATE_BROKER_CONFIG = Endpoint(_C.UPDATE_BROKER_CONFIG, Empty, Empty)
GET_BROKER_CONFIG = Endpoint(_C.GET_BROKER_CONFIG, Empty, topics.ConfigVersion)
GET_BROKER_RUNTIME_INFO = Endpoint(_C.GET_BROKER_RUNTIME_INFO, Empty, Empty)
GET_BROKER_HA_STATUS = Endpoint(_C.GET_BROKER_HA_STATUS, Empty, Empty)
CONTROLLER_ELECT_MASTER = Endpoint(_C.CONTROLLER_ELECT_MASTER, failover.ElectMaster, failover.ElectMasterReply)
CONTROLLER_GET_METADATA_INFO = Endpoint(_C.CONTROLLER_GET_METADATA_INFO, Empty, failover.ControllerMetadata)
CONTROLLER_GET_SYNC_STATE_DATA = Endpoint(_C.CONTROLLER_GET_SYNC_STATE_DATA, Empty, Empty)
GET_BROKER_EPOCH_CACHE = Endpoint(_C.GET_BROKER_EPOCH_CACHE, Empty, Empty)
GET_SYSTEM_TOPIC_LIST_FROM_BROKER = Endpoint(_C.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, Empty, Empty)
VIEW_BROKER_STATS_DATA = Endpoint(_C.VIEW_BROKER_STATS_DATA, topics.BrokerStatsOf, Empty)
CLEAN_EXPIRED_CONSUMEQUEUE = Endpoint(_C.CLEAN_EXPIRED_CONSUMEQUEUE, Empty, Empty)
CLEAN_UNUSED_TOPIC = Endpoint(_C.CLEAN_UNUSED_TOPIC, Empty, Empty)
DELETE_EXPIRED_COMMITLOG = Endpoint(_C.DELETE_EXPIRED_COMMITLOG, Empty, Empty)
RESUME_CHECK_HALF_MESSAGE = Endpoint(_C.RESUME_CHECK_HALF_MESSAGE, topics.ResumeCheckHalfMessage, Empty)
UPDATE_AND_CREATE_ACL_CONFIG = Endpoint(_C.UPDATE_AND_CREATE_ACL_CONFIG, access.UpdateAccessConfig, Empty)
DELETE_ACL_CONFIG = Endpoint(_C.DELETE_ACL_CONFIG, access.DeleteAccessConfig, Empty)
GET_BROKER_CLUSTER_ACL_INFO = Endpoint(_C.GET_BROKER_CLUSTER_ACL_INFO, Empty, access.AccessConfigVersion)
UPDATE_GLOBAL_WHITE_ADDRS_CONFIG = Endpoint(_C.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, access.UpdateGlobalWhiteAddrs, Empty)
GET_BROKER_CLUSTER_ACL_CONFIG = Endpoint(_C.GET_BROKER_CLUSTER_ACL_CONFIG, Empty, Empty)

# Nameserver
PUT_KV_CONFIG = Endpoint(_C.PUT_KV_CONFIG, routes.PutKVConfig, Empty)
GET_KV_CONFIG = Endpoint(_C.GET_KV_CONFIG, routes.KVConfigKey, routes.KVConfigReply)
DELETE_KV_CONFIG = Endpoint(_C.DELETE_KV_CONFIG, routes.KVConfigKey, Empty)
GET_KVLIST_BY_NAMESPACE = Endpoint(_C.GET_KVLIST_BY_NAMESPACE, routes.OfNamespace, Empty)
REGISTER_BROKER = Endpoint(_C.REGISTER_BROKER, routes.RegisterBroker, routes.RegisterBrokerReply)
UNREGISTER_BROKER = Endpoint(_C.UNREGISTER_BROKER, routes.UnregisterBroker, Empty)
QUERY_DATA_VERSION = Endpoint(_C.QUERY_DATA_VERSION, routes.UnregisterBroker, routes.DataVersionReply)
GET_ROUTEINFO_BY_TOPIC = Endpoint(_C.GET_ROUTEINFO_BY_TOPIC, routes.RouteOf, Empty)
GET_BROKER_CLUSTER_INFO = Endpoint(_C.GET_BROKER_CLUSTER_INFO, Empty, Empty)
WIPE_WRITE_PERM_OF_BROKER = Endpoint(_C.WIPE_WRITE_PERM_OF_BROKER, routes.OfBroker, routes.WipeReply)
ADD_WRITE_PERM_OF_BROKER = Endpoint(_C.ADD_WRITE_PERM_OF_BROKER, routes.OfBroker, routes.AddReply)
GET_ALL_TOPIC_LIST_FROM_NAMESERVER = Endpoint(_C.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, Empty, Empty)
DELETE_TOPIC_IN_NAMESRV = Endpoint(_C.DELETE_TOPIC_IN_NAMESRV, topics.DeleteTopicInNamesrv, Empty)
GET_TOPICS_BY_CLUSTER = Endpoint(_C.GET_TOPICS_BY_CLUSTER, routes.OfCluster, Empty)
GET_SYSTEM_TOPIC_LIST_FROM_NS = Endpoint(_C.GET_SYSTEM_TOPIC_LIST_FROM_NS, Empty, Empty)
GET_UNIT_TOPIC_LIST = Endpoint(_C.GET_UNIT_TOPIC_LIST, Empty, Empty)
GET_HAS_UNIT_SUB_TOPIC_LIST = Endpoint(_C.GET_HAS_UNIT_SUB_TOPIC_LIST, Empty, Empty)
GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST = Endpoint(_C.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, Empty, Empty)
UPDATE_NAMESRV_CONFIG = Endpoint(_C.UPDATE_NAMESRV_CONFIG, Empty, Empty)
GET_NAMESRV_CONFIG = Endpoint(_C.GET_NAMESRV_CONFIG, Empty, Empty)

ENDPOINTS: tuple[Endpoint[Any, Any], ...] = tuple(
    value for value in tuple(globals().values()) if isinstance(value, Endpoint)
)
"""Every entry of the table."""
