"""Ends of transactions (37), and checking one again that was given up (323).

Owns the checks of an end and the texts of its refusals (EndTransactionProcessor in 4.9.7). ``services.halves`` writes
what an end stores, ``services.commits`` most commits.
"""

from __future__ import annotations

from collections.abc import Awaitable

from eruca.broker.broker import Broker
from eruca.broker.handlers.checks import answered
from eruca.broker.store.results import Durability, PutStatus
from eruca.protocol import api, names
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import ProtocolError, Refused
from eruca.protocol.headers.send import EndTransaction
from eruca.protocol.headers.topics import ResumeCheckHalfMessage
from eruca.protocol.message import TRANSACTION_COMMIT, TRANSACTION_NONE, TRANSACTION_ROLLBACK, parse_offset_message_id
from eruca.protocol.record import Record
from eruca.remoting import Call, Reply, Routes
from eruca.remoting.router import Result

routes: Routes[Broker] = Routes()

NOTHING_TO_SAY = "not set any response code"
"""What 4.9.7 leaves in the remark of some answers; with code 0 it means nothing."""


@routes.on(api.END_TRANSACTION)
def end(broker: Broker, call: Call[EndTransaction]) -> Result:
    """Commit or roll back a transaction; an undecided one (0) has no answer, and may be asked about."""
    ask = call.header
    if broker.role.is_slave:
        raise Refused(ResponseCode.SLAVE_NOT_AVAILABLE, "transactions are ended at the master, this broker is a slave")
    if ask.commit_or_rollback == TRANSACTION_NONE:
        return None
    if ask.commit_or_rollback not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"commitOrRollback is {ask.commit_or_rollback}: it is 8 to commit, 12 to roll back, 0 for undecided",
        )
    commit = ask.commit_or_rollback == TRANSACTION_COMMIT
    if commit and not broker.waits:
        place = ask.tran_state_table_offset, ask.commit_log_offset, ask.producer_group
        if broker.commits.commit([place]):
            return Reply()
    half = _half(broker, ask)
    reading = broker.halves.looked_for(half)
    if reading is None:
        return _decided(broker, call, half)
    return broker.begun.result(object(), lambda: _end_later(broker, call, reading))


async def _end_later(broker: Broker, call: Call[EndTransaction], reading: Awaitable[bool]) -> Reply | None:
    """End a transaction once it is known whether it was given up; the broker may be a slave meanwhile, and the
    connection closed: Java's producers send an end one-way, and wait for nothing."""
    if not await reading:
        raise _not_stored(broker, PutStatus.SERVICE_NOT_AVAILABLE)
    return await answered(end(broker, call))


def _decided(broker: Broker, call: Call[EndTransaction], half: Record) -> Result:
    commit = call.header.commit_or_rollback == TRANSACTION_COMMIT
    put = broker.halves.decide(half, commit=commit)
    if put.status:
        raise _not_stored(broker, put.status)
    reply = Reply(remark=None if commit else NOTHING_TO_SAY)
    if call.oneway:
        return reply
    # What was decided before may not be safe yet.
    return _safe(broker, put.end_offset if put.end_offset >= 0 else broker.store.replicator.end_offset, reply)


def _safe(broker: Broker, end_offset: int, reply: Reply) -> Result:
    """The reply when the log is safe up to there."""
    waiter = broker.durable(end_offset)
    return reply if waiter is None else _when_safe(broker, waiter, reply)


def _half(broker: Broker, ask: EndTransaction) -> Record:
    half = broker.halves.find(ask.commit_log_offset)
    if half is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
    if half.properties.get(names.PRODUCER_GROUP) != ask.producer_group:
        raise Refused(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
    if half.queue_offset != ask.tran_state_table_offset:
        raise Refused(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
    return half


async def _when_safe(broker: Broker, waiter: Awaitable[Durability], reply: Reply) -> Reply:
    """Answer when the end is as safe as is promised; a disk or a slave that is only slow is no failure, as in 4.9.7."""
    outcome = await waiter
    if outcome is Durability.NOT_CONFIRMED:
        raise _not_stored(broker, PutStatus.SERVICE_NOT_AVAILABLE)
    if outcome is Durability.FLUSH_DISK_TIMEOUT and broker.store.refusal is not None:
        raise _not_stored(broker, PutStatus.SERVICE_NOT_AVAILABLE)
    return reply


def _not_stored(broker: Broker, status: PutStatus) -> Refused:
    if status is PutStatus.SERVICE_NOT_AVAILABLE:
        return Refused(ResponseCode.SERVICE_NOT_AVAILABLE, "Service not available now.")
    return Refused(
        ResponseCode.MESSAGE_ILLEGAL,
        "The message is illegal, maybe msg body or properties length not matched. msg body length limit "
        f"{broker.config.store.max_message_size}B, msg properties length limit 32KB.",
    )


@routes.on(api.RESUME_CHECK_HALF_MESSAGE, changes=lambda ask: f"half message {ask.msg_id}")
async def resume(broker: Broker, call: Call[ResumeCheckHalfMessage]) -> Reply | None:
    """Ask the producers about a half message again, as if it had never been checked."""
    message_id = call.header.msg_id or ""
    try:
        _, physical_offset = parse_offset_message_id(message_id)
    except ProtocolError as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"msgId: {error}") from None
    while True:
        if broker.role.is_slave:
            raise Refused(
                ResponseCode.SLAVE_NOT_AVAILABLE,
                "half messages are checked again at the master, this broker is a slave: ask the master",
            )
        half = _any_half(broker, message_id, physical_offset)
        reading = broker.halves.looked_for(half)
        if reading is None:
            break
        if not await reading:
            raise _not_stored(broker, PutStatus.SERVICE_NOT_AVAILABLE)
    if broker.halves.is_decided(half):
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"the transaction of msgId {message_id} is committed or rolled back: its producer is not asked any more",
        )
    if broker.halves.resume(half) is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"Put message back to {names.TRANS_HALF_TOPIC} failed.")
    call.note(after="it is checked again")
    return await answered(_safe(broker, broker.store.replicator.end_offset, Reply()))


def _any_half(broker: Broker, message_id: str, physical_offset: int) -> Record:
    half = broker.halves.find_any(physical_offset)
    if half is None:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"there is no half message at msgId {message_id}: name one of {names.TRANS_CHECK_MAX_TIME_TOPIC}",
        )
    return half
