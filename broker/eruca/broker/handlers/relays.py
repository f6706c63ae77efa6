"""Requests that the broker relays to a consumer: 307 (running information) and 309 (consume a message directly).

Owns the choice of the consumer. Its answer is passed on with code, remark, body, language and version
(AdminBrokerProcessor.callConsumer in 4.9.7), as far as they are known ones.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from eruca.broker.broker import Broker
from eruca.broker.handlers.checks import readable
from eruca.broker.state.clients import Member
from eruca.protocol import api
from eruca.protocol.api import Endpoint
from eruca.protocol.codes import ResponseCode, bounded_version, known_language, version_name
from eruca.protocol.errors import ProtocolError, Refused
from eruca.protocol.header import Empty, Header
from eruca.protocol.headers.clients import ConsumeMessageDirectly, ConsumerRunningInfoOf
from eruca.protocol.message import parse_offset_message_id
from eruca.remoting import Call, CallTimedOut, RemotingError, Reply, Routes

routes: Routes[Broker] = Routes()

OLDEST_MEMBER = 62
"""The MQVersion ordinal (V3_1_8_SNAPSHOT) of the first clients that know these requests."""
ANSWER_WITHIN = 10.0
"""Seconds in which the consumer must answer."""

_ANY_CODE = frozenset(ResponseCode)
_RUNNING_INFO = replace(api.GET_CONSUMER_RUNNING_INFO, accepts=_ANY_CODE)
_CONSUME_DIRECTLY = replace(api.CONSUME_MESSAGE_DIRECTLY, accepts=_ANY_CODE)


@routes.on(api.GET_CONSUMER_RUNNING_INFO, reads=True)
async def running_info(broker: Broker, call: Call[ConsumerRunningInfoOf]) -> Reply:
    """The running information of a consumer."""
    ask = call.header
    member = _member(broker, ask.consumer_group, ask.client_id)
    return await _relayed(member, _RUNNING_INFO, ask, ask.consumer_group)


def _consumption(ask: ConsumeMessageDirectly) -> str:
    return f"consumption of message {ask.msg_id} by {ask.client_id} of group {ask.consumer_group}"


@routes.on(api.CONSUME_MESSAGE_DIRECTLY, changes=_consumption)
async def consume_directly(broker: Broker, call: Call[ConsumeMessageDirectly]) -> Reply:
    """Let one consumer consume one stored message now; the answer is the outcome."""
    readable(broker)
    ask = call.header
    client_id = ask.client_id or ""
    record = await _record(broker, ask.msg_id or "")
    member = _member(broker, ask.consumer_group, client_id)
    question = ConsumeMessageDirectly(
        consumer_group=ask.consumer_group, client_id=ask.client_id, msg_id=ask.msg_id, broker_name=broker.name
    )
    return await _relayed(member, _CONSUME_DIRECTLY, question, ask.consumer_group, record)


async def _record(broker: Broker, message_id: str) -> bytes:
    try:
        _, offset = parse_offset_message_id(message_id)
    except ProtocolError as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"msgId: {error}") from None
    record = await broker.store.shown(offset)
    if record is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
    return record


def _member(broker: Broker, group: str, client_id: str) -> Member:
    online = broker.clients.consumer(group)
    member = online.member(client_id) if online is not None else None
    if member is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
    if member.version < OLDEST_MEMBER:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"The Consumer <{client_id}> Version <{version_name(member.version)}> too low to finish, "
            "please upgrade it to V3_1_8_SNAPSHOT",
        )
    return member


async def _relayed(member: Member, endpoint: Endpoint[Any, Empty], ask: Header, group: str, body: bytes = b"") -> Reply:
    """The member's answer. Its code, language and version become parts of a header here: only known ones pass."""
    try:
        answer = await member.connection.call(endpoint, ask, body, timeout=ANSWER_WITHIN)
    except RemotingError as error:
        raise _unanswered(group, member.client_id, error) from None
    except Refused as error:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"the consumer <{group}> <{member.client_id}> answered with the unknown code {error.code}: {error.remark}",
        ) from None
    by = (known_language(answer.language), bounded_version(answer.version))
    return Reply(answer.code, body=answer.body, remark=answer.remark, by=by)


def _unanswered(group: str, client_id: str, error: RemotingError) -> Refused:
    if isinstance(error, CallTimedOut):
        return Refused(ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer <{group}> <{client_id}> Timeout: {error}")
    return Refused(ResponseCode.SYSTEM_ERROR, f"invoke consumer <{group}> <{client_id}> Exception: {error}")
