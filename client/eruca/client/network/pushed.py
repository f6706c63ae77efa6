"""What brokers ask of this client, on its own connections: 39, 40, 220, 221, 307, 309, 326.

Owns the requests and the form of the answers; a ``Reachable`` consumer knows what is true and does the work.
Facts: ClientRemotingProcessor in 4.9.7.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

import msgspec

from eruca.client.log import log
from eruca.protocol import api, names
from eruca.protocol.bodies import (
    RESETS,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    GetConsumerStatusBody,
    ResetOffsetBody,
    decode_resets,
    encode_resets,
)
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import Refused
from eruca.protocol.headers import clients, offsets
from eruca.protocol.headers.send import CheckTransactionState, PushReplyMessage
from eruca.protocol.queues import MessageQueue
from eruca.protocol.record import Record, decode_record
from eruca.remoting import Call, Connection, Reply, Routes

if TYPE_CHECKING:
    from eruca.client.network.session import Session


class Reachable(Protocol):
    """A consumer as brokers reach it: their requests and notifications."""

    def members_changed(self) -> None:
        """Another member joined or left the group."""

    def reset(self, topic: str, table: Mapping[MessageQueue, int]) -> None:
        """Go on from these offsets."""

    def positions(self, topic: str) -> dict[MessageQueue, int]:
        """The offsets in memory."""

    async def running_info(self, with_stacks: bool) -> ConsumerRunningInfo:
        """What the consumer is doing."""

    async def consume_directly(self, record: Record, broker: str) -> ConsumeMessageDirectlyResult:
        """Let the listener have one message, outside all queues."""


class CheckListener(Protocol):
    """A producer that knows what became of its transactions."""

    def ask(self, header: CheckTransactionState, half: Record, connection: Connection) -> None:
        """A broker asks about this half message and awaits the answer on this connection."""


routes: Routes[Session] = Routes()


def _member(session: Session, group: str) -> Reachable:
    member = session.consumers.get(session.names.from_broker(group))
    if member is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"The Consumer Group <{group}> not exist in this consumer")
    return member


@routes.on(api.CHECK_TRANSACTION_STATE)
def check_transaction(session: Session, call: Call[CheckTransactionState]) -> None:
    """39: a check of a transaction; its result is a request of its own (37)."""
    half = decode_record(call.body)
    group = session.names.from_broker(half.properties.get(names.PRODUCER_GROUP, ""))
    producers = session.transactional.get(group)
    if producers:
        producers[-1].ask(call.header, half, call.connection)
    else:
        log.warning("%s checks a transaction of group %s, which has no producer here", call.connection.remote, group)


@routes.on(api.PUSH_REPLY_MESSAGE_TO_CLIENT)
def take_answer(session: Session, call: Call[PushReplyMessage]) -> Reply:
    """326: the reply to a request of this client."""
    session.requests.answered(call.header, call.body)
    return Reply()


@routes.on(api.NOTIFY_CONSUMER_IDS_CHANGED)
def members_changed(session: Session, call: Call[clients.OfConsumerGroup]) -> None:
    """40: the group has other members now, or the broker has become the master."""
    session.silence.doubt(call.connection)
    member = session.consumers.get(session.names.from_broker(call.header.consumer_group))
    if member is not None:
        member.members_changed()


@routes.on(api.RESET_CONSUMER_CLIENT_OFFSET)
def reset(session: Session, call: Call[offsets.ResetOffset]) -> None:
    """220: an admin moved the group."""
    header = call.header
    known = session.names
    member = session.consumers.get(known.from_broker(header.group))
    if member is None:
        log.warning("a reset of group %s is ignored: it has no consumer here", header.group)
        return
    table = ResetOffsetBody.decode(call.body).offset_table
    log.info("reset of %s in group %s to time %s: %s", header.topic, header.group, header.timestamp, table)
    queues = zip(known.queues_from_broker(table), table.values(), strict=True)
    member.reset(known.from_broker(header.topic), dict(queues))


@routes.on(api.GET_CONSUMER_STATUS_FROM_CLIENT)
def status(session: Session, call: Call[offsets.ConsumerStatus]) -> Reply:
    """221: which offsets are in memory."""
    known = session.names
    member = session.consumers.get(known.from_broker(call.header.group))
    table = member.positions(known.from_broker(call.header.topic)) if member is not None else {}
    found = dict(zip(known.queues_to_broker(table), table.values(), strict=True))
    return Reply(body=GetConsumerStatusBody(message_queue_table=found).encode())


@routes.on(api.GET_CONSUMER_RUNNING_INFO)
async def running_info(session: Session, call: Call[clients.ConsumerRunningInfoOf]) -> Reply:
    """307: what a consumer is doing."""
    member = _member(session, call.header.consumer_group)
    info = await member.running_info(call.header.jstack_enable)
    info.properties["PROP_NAMESERVER_ADDR"] = ";".join(session.nameservers.addresses)
    known = session.names
    resets = decode_resets(info.properties.get(RESETS, ""))
    done = dict(zip(known.queues_to_broker(resets), resets.values(), strict=True))
    found = msgspec.structs.replace(
        info,
        properties={**info.properties, RESETS: encode_resets(done)},
        mq_table=dict(zip(known.queues_to_broker(info.mq_table), info.mq_table.values(), strict=True)),
        status_table={known.to_broker(topic): status for topic, status in info.status_table.items()},
        subscription_set=[known.subscription(each) for each in info.subscription_set],
    )
    return Reply(body=found.encode())


@routes.on(api.CONSUME_MESSAGE_DIRECTLY)
async def consume_directly(session: Session, call: Call[clients.ConsumeMessageDirectly]) -> Reply:
    """309: let the listener have a message now."""
    member = _member(session, call.header.consumer_group)
    record = decode_record(call.body)
    record = record._replace(topic=session.names.from_broker(record.topic))
    result = await member.consume_directly(record, call.header.broker_name or "")
    return Reply(body=result.encode())
