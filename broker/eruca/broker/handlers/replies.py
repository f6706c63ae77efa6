"""Reply messages (324, 325): pushed to the requester (326) and stored (ReplyMessageProcessor in 4.9.7).

Owns the push and the answer to it; ``services.admission`` has the checks of a send. Invariant: a reply message is
pushed once, before it is stored, and 0 is answered only after the requester has accepted it.
"""

from __future__ import annotations

from typing import Any

import structlog

from eruca.broker.broker import Broker
from eruca.broker.services.admission import Destination, Send
from eruca.broker.store.results import Put, PutStatus
from eruca.protocol import api, names
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import ProtocolError, Refused
from eruca.protocol.header import Header
from eruca.protocol.headers.send import PushReplyMessage, SendRefused, SendReply
from eruca.protocol.message import COMPRESSED, COMPRESSION_MASK, decode_properties, encode_properties
from eruca.protocol.record import host_text
from eruca.remoting import Call, RemotingError, Reply, Routes
from eruca.remoting.router import Result

routes: Routes[Broker] = Routes()

PUSHED_WITHIN = 10.0
"""Seconds in which the requester must accept its reply."""
_STORED_BITS = COMPRESSED | COMPRESSION_MASK

log = structlog.get_logger("eruca.broker")


@routes.on(api.SEND_REPLY_MESSAGE)
def send_reply_with_long_names(broker: Broker, call: Call[Any]) -> Result:
    """324: as 325."""
    return send_reply(broker, call)


@routes.on(api.SEND_REPLY_MESSAGE_V2)
async def send_reply(broker: Broker, call: Call[Any]) -> Reply:
    """325: push a reply message to the requester, and store it if that is enabled; code 1 if the push failed."""
    ask: Send = call.header
    refused = SendRefused(region=broker.config.region_id, trace_on=broker.config.trace_on)
    try:
        to = broker.admission.admit(ask, call.connection.remote, broker.clock())
    except Refused as refusal:
        refusal.header = refused
        raise
    fault = await _push(broker, call, ask)
    put = _store(broker, call, ask, to) if broker.config.store_reply_message_enable else None
    if put is not None and (waiter := broker.durable(put.end_offset)) is not None:
        await waiter
    header: Header = refused
    if put is not None:
        header = _answer(broker, to, f"{broker.store_host_hex}{put.physical_offset:016X}", put.queue_offset)
    elif fault is None:
        header = _answer(broker, to, "0", 0)
    return Reply(ResponseCode.SUCCESS if fault is None else ResponseCode.SYSTEM_ERROR, header, remark=fault)


def _answer(broker: Broker, to: Destination, message_id: str, queue_offset: int) -> SendReply:
    return SendReply(
        msg_id=message_id,
        queue_id=to.queue_id,
        queue_offset=queue_offset,
        region=broker.config.region_id,
        trace_on=broker.config.trace_on,
    )


async def _push(broker: Broker, call: Call[Any], ask: Send) -> str | None:
    """Push the reply message; returns the reason of a failure, None on success."""
    properties = decode_properties((ask.properties or "").encode())
    client_id = properties.get(names.REPLY_TO_CLIENT)
    if client_id is None:
        return f"reply message properties[{names.REPLY_TO_CLIENT}] is null"
    member = broker.clients.producer(client_id)
    if member is None:
        return f"push reply message fail, channel of <{client_id}> not found."
    now = broker.clock()
    try:
        text = encode_properties({**properties, names.PUSH_REPLY_TIME: str(now)}).decode()
        push = PushReplyMessage(
            producer_group=ask.producer_group,
            topic=ask.topic,
            default_topic=ask.default_topic,
            default_topic_queue_nums=ask.default_topic_queue_nums,
            queue_id=ask.queue_id,
            sys_flag=ask.sys_flag,
            born_timestamp=ask.born_timestamp,
            flag=ask.flag,
            properties=text,
            reconsume_times=ask.reconsume_times,
            unit_mode=ask.unit_mode,
            born_host=call.connection.remote,
            store_host=host_text(broker.store_host),
            store_timestamp=now,
        )
        await member.connection.call(api.PUSH_REPLY_MESSAGE_TO_CLIENT, push, call.body, timeout=PUSHED_WITHIN)
    except (RemotingError, Refused, ProtocolError) as error:
        log.warning("reply_not_pushed", client_id=client_id, reason=str(error))
        return f"push reply message to {client_id}fail."
    return None


def _store(broker: Broker, call: Call[Any], ask: Send, to: Destination) -> Put | None:
    """Store the reply message unchanged; None if it could not be stored."""
    if not broker.accepting:
        return None
    host, host_bits = broker.hosts.get(call.connection) or broker.host_of(call.connection)
    put = broker.store.appender.put(
        to.topic,
        to.queue_id,
        call.body,
        (ask.properties or "").encode(),
        flag=ask.flag,
        sys_flag=ask.sys_flag & _STORED_BITS | to.sys_flag | host_bits,
        born_timestamp=ask.born_timestamp,
        born_host=host,
        store_host=broker.store_host,
        reconsume_times=ask.reconsume_times or 0,
    )
    if put.status is not PutStatus.OK:
        log.warning("reply_not_stored", topic=to.topic, status=put.status.name, reason=broker.store.refusal)
        return None
    broker.statistics.put(to.topic, to.queue_id, 1, put.size)
    return put
