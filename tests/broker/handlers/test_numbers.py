"""Every whole number that comes from outside is bounded by its type, by a check, or is listed here with the reason.

A new field of a header or body is red here until somebody has thought of 2^31 in it. Besides, every number of every
request is tried at the ends of its type: it is answered, by nobody's accident, and the broker goes on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from msgspec import inspect
from structlog.testing import capture_logs

from eruca.broker.handlers import TABLES
from eruca.nameserver.handlers import routes as of_nameserver
from eruca.protocol import bodies
from eruca.protocol.api import ENDPOINTS, Endpoint
from eruca.protocol.bodies import (
    DataVersion,
    HeartbeatData,
    LockBatchRequest,
    RegisterBrokerBody,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from eruca.protocol.bodies.body import Body
from eruca.protocol.header import Header, plan_of
from eruca.protocol.queues import Int32, Int64, MessageQueue
from tests.support.desk import Desk
from tests.support.load import send
from tests.support.names import Names
from tests.support.odd import ACCIDENT

# ---------------------------------------------------------------------- the table

CHECKED = {
    "CreateTopic.readQueueNums": "queue_count",
    "CreateTopic.writeQueueNums": "queue_count",
    "CreateTopic.perm": "0 to 7",
    "TopicConfig.readQueueNums": "queue_count, in registrations, files and tables of a master",
    "TopicConfig.writeQueueNums": "queue_count",
    "SubscriptionGroupConfig.retryQueueNums": "queue_count, in 200, files and tables of a master",
    "QueueData.readQueueNums": "queue_count, by clients",
    "QueueData.writeQueueNums": "queue_count, by clients",
    "SendMessage.defaultTopicQueueNums": "the template topic has the most queues of a new topic",
    "SendMessageV2.d": "the same",
    "PullMessage.maxMsgNums": "maxTransferCountOnMessageIn…",
    "QueryMessage.maxNum": "maxMsgsNumBatch",
    "QueryConsumeQueue.count": "10,000",
    "ConsumerSendMsgBack.delayLevel": "the last level",
    "EndTransaction.commitOrRollback": "0, 8 or 12",
    "ElectMaster.knownEpoch": "half of 2^31: more can be added",
    "ElectMaster.knownSetEpoch": "the same",
    "RegisterBroker.bodyCrc32": "the CRC of the body",
    "Connection.version": "bounded_version, when the heartbeat came",
    "ProducerInfo.version": "the same",
    "BloomFilterData.bitNum": "that of the broker's own filter, else no filter is taken",
    "BloomFilterData.bitPos": "the same",
}
"""Fields with a bound narrower than their type, and what checks it."""

QUEUE = "which queue: looked up in a table, or compared with the number of queues of its topic"
OFFSET = (
    "a place in a queue or in the log: looked up, or compared with the ends; one that is committed is only a number"
)
TIME = "a time: compared, stored and shown; nothing is counted up to it"
BITS = "bits, that are looked at one by one and stored"
ORDER = "compared with another of its kind, which is newer"
TIMES = "compared with how often a message came"
ANSWER = "of an answer of a server: compared with what the asker holds, or shown to an operator"
REPORT = "what a member says of itself: shown to an operator"
HELD = "a pull is held until then at most, or until its connection ends"
ID = "which broker: a key"

REASONS = {
    QUEUE: """
        QueryConsumerOffset.queueId QueueOf.queueId ResetOffset.queueId SearchOffset.queueId
        UpdateConsumerOffset.queueId PullMessage.queueId QueryConsumeQueue.queueId SendMessage.queueId SendMessageV2.e
        PushReplyMessage.queueId _Entry.queueId MessageQueue.queueId
    """,
    OFFSET: """
        ResetOffset.offset UpdateConsumerOffset.commitOffset PullMessage.queueOffset PullMessage.commitOffset
        QueryConsumeQueue.index ViewMessage.offset ConsumerSendMsgBack.offset EndTransaction.tranStateTableOffset
        EndTransaction.commitLogOffset CheckTransactionState.tranStateTableOffset CheckTransactionState.commitLogOffset
        ConsumerOffsets.offsetTable CorrectionOffsets.correctionOffsets DelayOffsetSerializeWrapper.offsetTable
        GetConsumerStatusBody.consumerTable GetConsumerStatusBody.messageQueueTable LocalOffsets.offsetTable
        ResetOffsetBody.offsetTable _Entry.offset
    """,
    TIME: """
        ResetOffset.timestamp SearchOffset.timestamp QueryMessage.beginTimestamp QueryMessage.endTimestamp
        SendMessage.bornTimestamp SendMessageV2.g PushReplyMessage.bornTimestamp PushReplyMessage.storeTimestamp
        ConsumerFilterData.bornTime ConsumerFilterData.deadTime ProducerInfo.lastUpdateTimestamp ElectMaster.invokeTime
    """,
    BITS: """
        PullMessage.sysFlag SendMessage.sysFlag SendMessageV2.f PushReplyMessage.sysFlag SendMessage.flag
        SendMessageV2.h PushReplyMessage.flag CreateTopic.topicSysFlag TopicConfig.topicSysFlag QueueData.topicSysFlag
        TopicConfig.perm QueueData.perm
    """,
    ORDER: """
        PullMessage.subVersion SubscriptionData.subVersion SubscriptionData.codeSet ConsumerFilterData.clientVersion
        DataVersion.counter DataVersion.stateVersion DataVersion.timestamp
    """,
    TIMES: """
        ConsumerSendMsgBack.maxReconsumeTimes SendMessage.reconsumeTimes SendMessage.maxReconsumeTimes SendMessageV2.j
        SendMessageV2.l PushReplyMessage.reconsumeTimes SubscriptionGroupConfig.retryMaxTimes
    """,
    HELD: "PullMessage.suspendTimeoutMillis",
    "of a message that tells of a moved offset: shown to an operator": """
        OffsetMovedEvent.offsetNew OffsetMovedEvent.offsetRequest
    """,
    ID: """
        RegisterBroker.brokerId UnregisterBroker.brokerId BrokerData.brokerAddrs SubscriptionGroupConfig.brokerId
        SubscriptionGroupConfig.whichBrokerWhenConsumeSlowly ElectMaster.brokerId
    """,
    "not looked at by the requester, who has the reply": "PushReplyMessage.defaultTopicQueueNums",
    ANSWER: """
        OffsetReply.offset TimestampReply.timestamp PullReply.suggestWhichBrokerId PullReply.nextBeginOffset
        PullReply.minOffset PullReply.maxOffset QueryMessageReply.indexLastUpdateTimestamp
        QueryMessageReply.indexLastUpdatePhyoffset AddReply.addTopicCount WipeReply.wipeTopicCount SendReply.queueId
        SendReply.queueOffset BrokerStatsItem.sum ConsumeQueueData.physicOffset ConsumeQueueData.physicSize
        ConsumeQueueData.tagsCode HAClientRuntimeInfo.lastReadTimestamp HAClientRuntimeInfo.lastWriteTimestamp
        HAClientRuntimeInfo.masterFlushOffset HAClientRuntimeInfo.maxOffset
        HAClientRuntimeInfo.transferredByteInSecond HAConnectionRuntimeInfo.diff
        HAConnectionRuntimeInfo.slaveAckOffset HAConnectionRuntimeInfo.transferFromWhere
        HAConnectionRuntimeInfo.transferredByteInSecond HARuntimeInfo.inSyncSlaveNums
        HARuntimeInfo.masterCommitLogMaxOffset QueryConsumeQueueResponseBody.maxQueueIndex
        QueryConsumeQueueResponseBody.minQueueIndex ConsumeStatsList.totalDiff OffsetWrapper.brokerOffset
        OffsetWrapper.consumerOffset OffsetWrapper.lastTimestamp OffsetWrapper.pullOffset
        QueueTimeSpan.consumeTimeStamp QueueTimeSpan.delayTime QueueTimeSpan.maxTimeStamp QueueTimeSpan.minTimeStamp
        TopicOffset.lastUpdateTimestamp TopicOffset.maxOffset TopicOffset.minOffset BrokerMemberGroup.brokerAddrs
        ElectMasterReply.masterBrokerId ElectMasterReply.masterEpoch ElectMasterReply.syncStateSetEpoch
        EpochEntry.endOffset EpochEntry.epoch EpochEntry.startOffset EpochEntryCache.brokerId EpochEntryCache.maxOffset
        ReplicaIdentity.brokerId ReplicasInfo.masterBrokerId ReplicasInfo.masterEpoch ReplicasInfo.syncStateSetEpoch
    """,
    REPORT: """
        ConsumeMessageDirectlyResult.spentTimeMills ConsumeStatus.consumeFailedMsgs ProcessQueueInfo.cachedMsgCount
        ProcessQueueInfo.cachedMsgMaxOffset ProcessQueueInfo.cachedMsgMinOffset ProcessQueueInfo.cachedMsgSizeInMiB
        ProcessQueueInfo.commitOffset ProcessQueueInfo.lastConsumeTimestamp ProcessQueueInfo.lastLockTimestamp
        ProcessQueueInfo.lastPullTimestamp ProcessQueueInfo.transactionMsgCount
        ProcessQueueInfo.transactionMsgMaxOffset ProcessQueueInfo.transactionMsgMinOffset
        ProcessQueueInfo.tryUnlockTimes
    """,
}
"""Fields that may have any value of their type, by the reason why that does no harm."""

WHOLE_TYPES = [get_args(each)[1] for each in (Int32, Int64)]


def subclasses(kind: type) -> Iterator[type]:
    each: type
    for each in kind.__subclasses__():
        yield each
        yield from subclasses(each)


def numbers_in(declared: inspect.Type) -> Iterator[inspect.IntType]:
    """The whole numbers of a field's type, but those of structs in it, which have fields of their own."""
    if isinstance(declared, inspect.IntType):
        yield declared
    for part in ("item_type", "key_type", "value_type"):
        if hasattr(declared, part):
            yield from numbers_in(getattr(declared, part))
    for each in getattr(declared, "types", ()):
        yield from numbers_in(each)


def open_fields() -> set[str]:
    """Every field that takes any number of 32 or 64 bits, of every header of the table and every body."""
    headers: set[type[Header]] = {kind for endpoint in ENDPOINTS for kind in (endpoint.ask, endpoint.answer)}
    of_product: list[type] = [kind for kind in subclasses(Body) if kind.__module__.startswith("eruca.protocol.")]
    found = set()
    for kind in (*headers, *of_product, MessageQueue):
        info = inspect.type_info(kind)
        assert isinstance(info, inspect.StructType)
        for field in info.fields:
            bounds = [msgspec.Meta(ge=each.ge, le=each.le) for each in numbers_in(field.type)]
            if any(each in WHOLE_TYPES or each.ge is None or each.le is None for each in bounds):
                found.add(f"{kind.__name__}.{field.encode_name}")
    return found


def test_every_number_is_bounded_or_has_a_reason_not_to_be() -> None:
    listed = [*CHECKED, *(name for names in REASONS.values() for name in names.split())]
    assert len(listed) == len(set(listed)), "a field has one reason"
    assert open_fields() == set(listed)


def test_a_field_that_nobody_thought_of_is_found_out() -> None:
    class Thoughtless(Body):
        many: dict[str, list[int | None]] = msgspec.field(default_factory=dict)

    info = inspect.type_info(Thoughtless)
    assert isinstance(info, inspect.StructType)
    assert [each.ge for field in info.fields for each in numbers_in(field.type)] == [None]


# ---------------------------------------------------------------------- at the ends of their types

ENDS = (-(2**63), -(2**31), -1, 65_537, 2**31 - 1, 2**63 - 1)
FLAGS = {"PullMessage.sysFlag": 4, "SendMessage.sysFlag": 0, "EndTransaction.commitOrRollback": 8}
TEXTS = {"topic": "T", "b": "T", "consumerGroup": "g", "group": "g", "a": "p", "brokerAddr": "1.1.1.1:1"}


def fields_of(kind: type[Header], number: str | None = None, value: int = 0) -> dict[str, Any]:
    """Plausible fields of a request; one of its numbers has this value."""
    found: dict[str, Any] = {}
    for field in plan_of(kind):
        plain = {int: FLAGS.get(f"{kind.__name__}.{field.wire}", 0), bool: "false"}.get(field.base)
        if field.required or field.base is int:
            found[field.wire] = TEXTS.get(field.wire, "x") if plain is None else plain
    return found if number is None else {**found, number: value}


def served(tables: Any) -> list[tuple[Endpoint[Any, Any], str]]:
    """Each request with a number in its header, and that number."""
    return [
        (endpoint, field.wire)
        for table in tables
        for endpoint, *_ in table.handlers.values()
        for field in plan_of(endpoint.ask)
        if field.base is int
    ]


def named(value: object) -> str:
    return value.code.name if isinstance(value, Endpoint) else str(value)


@pytest.mark.parametrize(("endpoint", "number"), served(TABLES), ids=named)
async def test_a_broker_answers_whatever_a_number_is(desk: Desk, endpoint: Endpoint[Any, Any], number: str) -> None:
    desk.topic("T", 2)
    desk.store("T", 0, 0, 1)
    desk.commit("g", "T", 1, 0)
    desk.topic("Bystander", 4)
    with capture_logs() as said:
        for value in ENDS:
            answer = await desk.ask(endpoint.code, fields_of(endpoint.ask, number, value), b"x")
            assert not ACCIDENT.match(answer.remark or ""), (value, answer.remark)
        assert (await send(desk.operator, 0, b"x", topic="Bystander")).code == 0
    assert [line for line in said if line["event"] == "request_failed"] == []
    assert max(max(each.read_queue_nums, each.write_queue_nums) for each in desk.broker.topics.table.values()) <= 65_536


@pytest.mark.parametrize(("endpoint", "number"), served([of_nameserver]), ids=named)
async def test_a_nameserver_answers_whatever_a_number_is(
    tmp_path: Path, endpoint: Endpoint[Any, Any], number: str
) -> None:
    async with Names(tmp_path) as names:
        for value in ENDS:
            answer = await names.peer.ask(endpoint.code, fields_of(endpoint.ask, number, value))
            assert not ACCIDENT.match(answer.remark or ""), (value, answer.remark)
        await names.brokers()


SUBSCRIPTION = bodies.SubscriptionData(topic="T", sub_string="*", code_set={1})
CONSUMER = bodies.ConsumerData(group_name="g", subscription_data_set=[SUBSCRIPTION])
CHECK = bodies.CheckClientRequestBody(client_id="c", group="g", subscription_data=SUBSCRIPTION)
TABLE = TopicConfigSerializeWrapper(data_version=DataVersion(), topic_config_table={"T": TopicConfig(topic_name="T")})
OF_BROKERS: list[tuple[int, Body]] = [
    (34, HeartbeatData(client_id="c", consumer_data_set=[CONSUMER])),
    (41, LockBatchRequest(client_id="c", consumer_group="g", mq_set=[MessageQueue("T", "b", 0)])),
    (42, LockBatchRequest(client_id="c", consumer_group="g", mq_set=[MessageQueue("T", "b", 0)])),
    (46, CHECK),
    (200, SubscriptionGroupConfig(group_name="g")),
]


def at_the_ends(value: Any) -> Iterator[Any]:
    """The value, once for each number in it and each end."""
    if isinstance(value, dict):
        for key, member in value.items():
            yield from ({**value, key: other} for other in at_the_ends(member))
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from ([*value[:index], other, *value[index + 1 :]] for other in at_the_ends(member))
    elif type(value) is int:
        yield from ENDS


@pytest.mark.parametrize(("code", "body"), OF_BROKERS, ids=lambda value: str(value)[:20])
async def test_a_broker_answers_whatever_a_number_in_a_body_is(desk: Desk, code: int, body: Body) -> None:
    count = 0
    for value in at_the_ends(json.loads(body.encode())):
        answer = await desk.ask(code, body=json.dumps(value).encode())
        assert not ACCIDENT.match(answer.remark or ""), (value, answer.remark)
        count += 1
    assert count >= len(ENDS)
    assert (await send(desk.operator, 0, b"x")).code == 0
    assert all(0 <= each.retry_queue_nums <= 65_536 for each in desk.broker.groups.table.values())


async def test_a_nameserver_answers_whatever_a_number_in_a_registration_is(tmp_path: Path) -> None:
    body = RegisterBrokerBody(topic_config_serialize_wrapper=TABLE)
    async with Names(tmp_path) as names:
        for value in at_the_ends(json.loads(body.encode())):
            fields = {"brokerName": "b", "brokerAddr": "1.1.1.1:1", "clusterName": "c", "brokerId": 0}
            answer = await names.peer.ask(103, fields, json.dumps(value).encode())
            assert not ACCIDENT.match(answer.remark or ""), (value, answer.remark)
            route = await names.route("T")
            assert route is None or all(0 <= each.read_queue_nums <= 65_536 for each in route.queue_datas)
