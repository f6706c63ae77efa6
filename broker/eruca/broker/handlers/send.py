"""Sending messages: one by one, in batches, and one-way (10, 310, 320).

Owns the way from a request to the store and back; the checks are in ``services.admission``. Facts: SendMessageProcessor
in 4.9.7. Invariant: 0 is answered only for what is stored, and where the disk or a slave is waited for, there; a topic
that was made for a message is on disk before that message is answered.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Mapping
from functools import partial
from time import monotonic
from typing import Any

from eruca.broker.broker import Broker
from eruca.broker.handlers.checks import new_topic_saved
from eruca.broker.handlers.send_forms import learn, template_of_replies
from eruca.broker.services.admission import Destination, Properties, Send
from eruca.broker.services.half_records import prepared, sent_of
from eruca.broker.services.halves import HALF
from eruca.broker.store import native
from eruca.broker.store.results import Durability, PutStatus
from eruca.protocol import api, frame, names
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import ProtocolError, Refused
from eruca.protocol.headers.send import SendRefused, SendReply
from eruca.protocol.message import BORN_HOST_V6, STORE_HOST_V6, TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_NONE
from eruca.remoting import Call, Reply, Routes
from eruca.remoting.router import Result

routes: Routes[Broker] = Routes()

_CLIENT_BITS = ~(BORN_HOST_V6 | STORE_HOST_V6)
"""The bits of sysFlag that a client decides; which addresses a record keeps, it does not."""
_HALF_BITS = _CLIENT_BITS & ~TRANSACTION_MASK
"""Those of a half message, which is stored as a plain one."""


@routes.on(api.SEND_MESSAGE)
def send_with_long_names(broker: Broker, call: Call[Any]) -> Result:
    """10: as 310."""
    return send(broker, call)


@routes.on(api.SEND_MESSAGE_V2, api.SEND_BATCH_MESSAGE)
def send(broker: Broker, call: Call[Any]) -> Result:
    """310 and 320: store a message or a batch; every answer carries the region and the trace switch."""
    try:
        return _send(broker, call)
    except Refused as refused:
        refused.header = refused_header(broker)
        raise


def _send(broker: Broker, call: Call[Any]) -> Result:
    ask: Send = call.header
    admission = broker.admission
    to = admission.admitted.get((ask.topic, ask.queue_id))
    if to is None:
        if not broker.accepting and broker.topics.get(ask.topic) is None:
            raise _unavailable(broker)  # no topic is made for a message that is not stored: its master may not have it
        to = admission.admit(ask, call.connection.remote, broker.clock())
    elif native.on:
        learn(broker, call, to)
    if broker.waiting_sends or monotonic() > broker.loop_monitor.overdue or not broker.accepting:
        _check_load(broker)
    if ask.batch:
        return _store_batch(broker, call, ask, to)
    target = admission.redirect(ask, to, call.head.version) if ask.topic.startswith(names.RETRY_PREFIX) else to
    plain = admission.plain(ask.properties)
    client_bits = _CLIENT_BITS
    half: Mapping[str, str] | None = None
    if plain is None:
        target, properties, wait, half = _special(broker, ask, target, dead=target is not to)
        if half is not None:
            client_bits = _HALF_BITS
    else:
        properties, wait = plain
    host, host_bits = broker.hosts.get(call.connection) or broker.host_of(call.connection)
    put = broker.store.appender.put(
        target.topic,
        target.queue_id,
        call.body,
        properties,
        flag=ask.flag,
        sys_flag=ask.sys_flag & client_bits | target.sys_flag | host_bits,
        born_timestamp=ask.born_timestamp,
        born_host=host,
        store_host=broker.store_host,
        reconsume_times=ask.reconsume_times or 0,
    )
    if put.status:
        raise _not_stored(broker, put.status)
    if half is not None:
        broker.halves.sent(sent_of(put, half, ask.born_timestamp, call.body), broker.monotonic())
    broker.statistics.put(target.topic, target.queue_id, 1, put.size)
    if target is not to and names.is_dead_letter_topic(target.topic):
        broker.statistics.became_dead(target.topic.removeprefix(names.DLQ_PREFIX), ask.topic)
    connection = call.connection
    if not (broker.waits or broker.topics.dirty or connection.negotiating):
        template = admission.reply_templates.get((call.serialization, to.queue_id)) or template_of_replies(
            broker, call.serialization, to.queue_id
        )
        if template is not None:
            if not call.head.flag & frame.ONEWAY_FLAG:
                offset = b"%d" % put.queue_offset
                connection.send(template.fill(call.head.opaque, b"%016X" % put.physical_offset, offset, 0))
            return None
    reply = Reply(
        0,
        SendReply(
            msg_id="%s%016X" % (broker.store_host_hex, put.physical_offset),  # noqa: UP031 (twice as fast)
            queue_id=to.queue_id,
            queue_offset=put.queue_offset,
            region=broker.config.region_id,
            trace_on=broker.config.trace_on,
        ),
    )
    if broker.waits or broker.topics.dirty:
        return _when_safe(broker, call, reply, put.end_offset if wait else 0)
    return reply


def _special(
    broker: Broker, ask: Send, to: Destination, *, dead: bool
) -> tuple[Destination, bytes, bool, dict[str, str] | None]:
    """Where a message goes whose properties need a closer look, what is stored of them, and whether it waits; of a half
    message also the properties.

    The place where delayed messages and halves of transactions turn off. A ``dead`` letter is not delayed any more.
    """
    if not dead and HALF in broker.topics and not broker.config.reject_transaction_message:
        half = prepared(ask.properties or "", broker.admission.half_places[to.topic, to.queue_id])
        if half is not None:
            return Destination(HALF, 0, to.sys_flag), half.text, half.wait, half.values
    found = broker.admission.properties(ask.properties or "")
    if found.half and not dead and not (ask.reconsume_times and found.delay_level > 0):
        return _half(broker, found, to)
    kind = ask.sys_flag & TRANSACTION_MASK
    later = None
    if dead:
        if found.delay_level:
            found.values[names.DELAY] = "0"
    elif kind in (TRANSACTION_NONE, TRANSACTION_COMMIT):
        later = broker.delays.route(found.values, to, found.delay_level, broker.clock())
    try:
        text = found.text() if later is None else found.whole_text()
    except ProtocolError:
        raise _illegal(broker) from None
    return later or to, text, found.wait, None


def _half(broker: Broker, found: Properties, to: Destination) -> tuple[Destination, bytes, bool, dict[str, str] | None]:
    """As ``_special``, of the first half of a transaction."""
    if broker.config.reject_transaction_message:
        raise Refused(
            ResponseCode.NO_PERMISSION,
            f"the broker[{broker.config.broker_ip1}] sending transaction message is forbidden",
        )
    try:
        text = broker.halves.prepare(found.values, to.topic, to.queue_id)
    except ProtocolError:
        raise _illegal(broker) from None
    return Destination(names.TRANS_HALF_TOPIC, 0, to.sys_flag), text, found.wait, found.values


def _store_batch(broker: Broker, call: Call[Any], ask: Send, to: Destination) -> Result:
    try:
        extra, wait, later = broker.admission.of_batch(ask.properties or "")
    except ProtocolError:
        raise _illegal(broker) from None
    if later:
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, "a batch cannot be delayed: send its messages one by one")
    host, host_bits = broker.hosts.get(call.connection) or broker.host_of(call.connection)
    put = broker.store.appender.put_batch(
        to.topic,
        to.queue_id,
        call.body,
        extra_properties=extra,
        flag=ask.flag,
        sys_flag=ask.sys_flag & _CLIENT_BITS | to.sys_flag | host_bits,
        born_timestamp=ask.born_timestamp,
        born_host=host,
        store_host=broker.store_host,
        reconsume_times=ask.reconsume_times or 0,
    )
    if put.status:
        raise _not_stored(broker, put.status)
    broker.statistics.put(to.topic, to.queue_id, len(put.physical_offsets), put.size)
    reply = Reply(
        0,
        SendReply(
            msg_id=_ids(broker.store_host_hex, put.physical_offsets),
            queue_id=to.queue_id,
            queue_offset=put.queue_offset,
            region=broker.config.region_id,
            trace_on=broker.config.trace_on,
        ),
    )
    if broker.waits or broker.topics.dirty:
        return _when_safe(broker, call, reply, put.end_offset if wait else 0)
    return reply


def _ids(host: str, offsets: tuple[int, ...]) -> str:
    """The ids of messages at these commit log offsets, joined by commas; ``host`` as ids begin with it."""
    digits = struct.pack(f">{len(offsets)}Q", *offsets).hex(",", 8).upper()
    return host + digits.replace(",", "," + host)


# ---------------------------------------------------------------------- waiting


def _when_safe(broker: Broker, call: Call[Any], reply: Reply, end_offset: int) -> Result:
    """Answer when the message up to ``end_offset`` is as safe as is promised, and a topic made for it on disk."""
    call.body = b""  # it is stored, and thousands of calls may wait
    waiter = broker.durable(end_offset)
    if broker.topics.dirty:
        return _after_saving(broker, reply, waiter)
    if waiter is None:
        return reply
    if isinstance(waiter, asyncio.Future):  # as a callback: a task for each send would double its cost
        broker.waiting_sends += 1
        waiter.add_done_callback(partial(_flushed, broker, call, reply, monotonic()))
        return None
    return _after_flush(broker, reply, waiter)


def _flushed(broker: Broker, call: Call[Any], reply: Reply, since: float, waiter: asyncio.Future[Durability]) -> None:
    broker.waiting_sends -= 1
    broker.statistics.put_took(int((monotonic() - since) * 1000))
    if not waiter.cancelled():
        call.connection.reply(call, judge(broker, reply, waiter.result()))


async def _after_flush(broker: Broker, reply: Reply, waiter: Awaitable[Durability]) -> Reply:
    return judge(broker, reply, await waiter)


async def _after_saving(broker: Broker, reply: Reply, waiter: Awaitable[Durability] | None) -> Reply:
    try:
        await new_topic_saved(broker)
    except Refused as refused:
        refused.header = refused_header(broker)
        raise
    return reply if waiter is None else await _after_flush(broker, reply, waiter)


def judge(broker: Broker, reply: Reply, durability: Durability) -> Reply:
    """The answer to a stored message, given what became of it on the disk and on slaves."""
    if durability is Durability.FLUSH_DISK_TIMEOUT and broker.store.refusal is not None:
        refused = _unavailable(broker)  # the flush failed: nothing is acknowledged any more
        return Reply(refused.code, refused_header(broker), b"", refused.remark)
    if durability is Durability.NOT_CONFIRMED:
        return Reply(durability.value, refused_header(broker), b"", NOT_CONFIRMED)
    if durability is not Durability.DURABLE:
        reply.code = durability.value
    return reply


# ---------------------------------------------------------------------- refusals

NOT_CONFIRMED = "the message may be stored, and not all of the syncStateSet have it yet: send it again"


def refused_header(broker: Broker) -> SendRefused:
    """What every refusal of a send carries."""
    return SendRefused(region=broker.config.region_id, trace_on=broker.config.trace_on)


def _check_load(broker: Broker) -> None:
    """Refuse while the broker does not serve, or when what it has to do already takes too long."""
    if not broker.accepting:
        raise _unavailable(broker)
    config = broker.config
    waiting = broker.waiting_sends
    if waiting >= config.send_thread_pool_queue_capacity:
        raise Refused(ResponseCode.SYSTEM_BUSY, "[OVERLOAD]system busy, start flow control for a while")
    if (waited := too_late(broker)) > 0:
        raise busy(broker, waited)


def busy(broker: Broker, waited: float) -> Refused:
    """The refusal of a send; ``waited`` in seconds."""
    return Refused(
        ResponseCode.SYSTEM_BUSY,
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
        f"period in queue: {int(waited * 1000)}ms, size of queue: {broker.waiting_sends}",
    )


def too_late(broker: Broker) -> float:
    """Seconds that a send has waited if it is refused for that, else 0."""
    if not broker.config.broker_fast_failure_enable or monotonic() <= broker.loop_monitor.overdue:
        return 0.0
    return broker.late_sends.waited()


def _not_stored(broker: Broker, status: PutStatus) -> Refused:
    if status in (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED, PutStatus.BATCH_ILLEGAL):
        return _illegal(broker)
    if status is PutStatus.SERVICE_NOT_AVAILABLE:
        return _unavailable(broker)
    return Refused(ResponseCode.SYSTEM_ERROR, "create mapped file failed, server is busy or broken.")


def _illegal(broker: Broker) -> Refused:
    return Refused(
        ResponseCode.MESSAGE_ILLEGAL,
        "the message is illegal, maybe msg body or properties length not matched. msg body length limit "
        f"{broker.config.store.max_message_size}B, msg properties length limit 32KB.",
    )


def _unavailable(broker: Broker) -> Refused:
    if broker.store.exhausted:
        return Refused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {broker.store.refusal}")
    ratio = broker.store.figures().disk_ratio
    return Refused(
        ResponseCode.SERVICE_NOT_AVAILABLE,
        "service not available now. It may be caused by one of the following reasons: the broker's disk is full "
        f"[CL: {ratio:5.2f} CQ: {ratio:5.2f} INDEX: {ratio:5.2f}], messages are put to the slave, "
        "message store has been shut down, etc.",
    )
