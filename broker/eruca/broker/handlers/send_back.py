"""Messages that a consumer sends back (36): redelivered after a delay, or stored as dead letters.

Owns the decision about one such message. Facts: consumerSendMsgBack of SendMessageProcessor in 4.9.7; unlike there, the
answer waits until the copy is durable, since the consumer does not retry after it. Invariant: when the answer is 0, the
message is stored again, or its group has no retry queues.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable
from typing import NamedTuple

from eruca.broker.broker import Broker
from eruca.broker.handlers.checks import answered, new_topic_saved
from eruca.broker.services.admission import Destination
from eruca.broker.state.topics import UNIT_SUB
from eruca.broker.store.results import Durability, PutStatus
from eruca.protocol import api, names
from eruca.protocol.bodies import PERM_WRITE, SubscriptionGroupConfig
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import ProtocolError, Refused
from eruca.protocol.headers.send import ConsumerSendMsgBack
from eruca.protocol.message import encode_properties
from eruca.protocol.record import Record, decode_record
from eruca.remoting import Call, Reply, Routes
from eruca.remoting.router import Result

routes: Routes[Broker] = Routes()

FIRST_LEVEL = 3
"""The delay level of the first redelivery; each further one adds a level."""


class SentBack(NamedTuple):
    """Where a message that was sent back is stored, and with which properties."""

    to: Destination
    values: dict[str, str]


@routes.on(api.CONSUMER_SEND_MSG_BACK)
async def send_back(broker: Broker, call: Call[ConsumerSendMsgBack]) -> Reply | None:
    """36: store a message again for its group, delayed or as a dead letter."""
    ask = call.header
    group = broker.admission.group(ask.group)
    if not broker.config.broker_permission & PERM_WRITE:
        raise Refused(
            ResponseCode.NO_PERMISSION, f"the broker[{broker.config.broker_ip1}] sending message is forbidden"
        )
    if group.retry_queue_nums <= 0:
        return Reply()
    _check_accepting(broker)  # before a topic is made
    retry = _retry_topic(broker, group, unit_mode=ask.unit_mode)
    record = await _record(broker, call)
    _check_accepting(broker)  # it may have changed its role meanwhile, and a dead letter's topic is made next
    most = broker.admission.most_returns(group, ask.max_reconsume_times, call.head.version)
    back = _decide(broker, ask, record, retry, most)
    return await answered(_store(broker, ask.group, record, back))


def _check_accepting(broker: Broker) -> None:
    if not broker.accepting:
        raise Refused(ResponseCode.SYSTEM_ERROR, PutStatus.SERVICE_NOT_AVAILABLE.name)


def _retry_topic(broker: Broker, group: SubscriptionGroupConfig, *, unit_mode: bool) -> Destination:
    """A queue of the group's retry topic, which is created if it does not exist."""
    topic = names.retry_topic(group.group_name)
    if (fault := names.topic_fault(topic)) is not None:
        raise Refused(ResponseCode.SYSTEM_ERROR, fault)
    flag = UNIT_SUB if unit_mode else 0
    if not broker.registration.have_topic(topic, group.retry_queue_nums, sys_flag=flag).perm & PERM_WRITE:
        raise Refused(ResponseCode.NO_PERMISSION, f"the topic[{topic}] sending message is forbidden")
    return Destination(topic, random.randrange(group.retry_queue_nums), 0)


async def _record(broker: Broker, call: Call[ConsumerSendMsgBack]) -> Record:
    """The message; one that the requester may not read is not there: the copy would show it to the group."""
    offset = call.header.offset
    data = await broker.store.shown(offset, in_queue=bool(call.account)) if offset >= 0 else None
    try:
        record = None if data is None else decode_record(data)
    except ProtocolError:
        record = None
    if record is not None and call.may_read(record.topic):
        return record
    raise Refused(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}")


def _decide(broker: Broker, ask: ConsumerSendMsgBack, record: Record, retry: Destination, most: int) -> SentBack:
    """The destination: the dead letter topic after ``most`` redeliveries or without a level, else a delay."""
    values = dict(record.properties)
    values.setdefault(names.RETRY_TOPIC, record.topic)
    values[names.WAIT] = "false"
    if not values.get(names.ORIGIN_MESSAGE_ID, "").strip():
        values[names.ORIGIN_MESSAGE_ID] = record.offset_message_id
    if record.reconsume_times >= most or ask.delay_level < 0:
        values[names.DELAY] = "0"
        return SentBack(broker.admission.dead_letters(ask.group), values)
    level = ask.delay_level or FIRST_LEVEL + record.reconsume_times
    values[names.DELAY] = str(level)
    later = broker.delays.route(values, retry, level, broker.clock())
    return SentBack(later or retry, values)


def _store(broker: Broker, group: str, record: Record, back: SentBack) -> Result:
    try:
        properties = encode_properties(back.values)
    except ProtocolError:
        raise Refused(ResponseCode.SYSTEM_ERROR, PutStatus.PROPERTIES_SIZE_EXCEEDED.name) from None
    put = broker.store.appender.put(
        back.to.topic,
        back.to.queue_id,
        record.body,
        properties,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp=record.born_timestamp,
        born_host=record.born_host,
        store_host=record.store_host,
        reconsume_times=record.reconsume_times + 1,
        accepted=True,
    )
    if put.status:
        raise Refused(ResponseCode.SYSTEM_ERROR, put.status.name)
    broker.statistics.put(back.to.topic, back.to.queue_id, 1, put.size)
    broker.statistics.sent_back(group, back.values[names.RETRY_TOPIC])
    if names.is_dead_letter_topic(back.to.topic):
        broker.statistics.became_dead(group, back.values[names.RETRY_TOPIC])
    waiter = broker.durable(put.end_offset)
    if waiter is None and not broker.topics.dirty:
        return Reply()
    return _when_durable(broker, waiter)


async def _when_durable(broker: Broker, waiter: Awaitable[Durability] | None) -> Reply:
    """Answer when the copy is durable and a topic that was created for it is on disk.

    A slow disk or slave is no failure: the consumer would send the message once more.
    """
    outcome = Durability.DURABLE if waiter is None else await waiter
    failed = outcome is Durability.FLUSH_DISK_TIMEOUT and broker.store.refusal is not None
    if failed or outcome is Durability.NOT_CONFIRMED:
        raise Refused(ResponseCode.SYSTEM_ERROR, outcome.name)
    await new_topic_saved(broker)
    return Reply()
