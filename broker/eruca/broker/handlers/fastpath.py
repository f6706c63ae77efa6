"""The short way of a plain send (310) or batch (320) that a producer sends again and again in the same form, and of a
half message; that of a commit (37) is in ``transactions``.

Owns what was learned of such forms: where their messages go and how they are answered. Everything out of the ordinary
takes the way of ``send``, which is also where every form is learned: only one that was admitted there, and whose
header was read whole, is remembered, and it is forgotten when anything changes that decided it (``Admission.forget``).
Invariant: what is stored and answered is, byte for byte, what ``send`` would have stored and answered, and where the
disk is waited for, not before it is there. Where the native step is there (``store.native``) it takes the forms that
are known, many messages at once, and leaves the others. Batches have no other short way than that one.
"""

from __future__ import annotations

import asyncio
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

from eruca.broker.broker import Broker
from eruca.broker.handlers.send import judge
from eruca.broker.handlers.transactions import short_end
from eruca.broker.services.half_records import Places, prepared
from eruca.broker.services.halves import HALF
from eruca.broker.store import native
from eruca.broker.store.results import Durability
from eruca.protocol import frame
from eruca.protocol.codes import RequestCode
from eruca.protocol.errors import ProtocolError
from eruca.protocol.header import Empty
from eruca.protocol.headers.send import SendMessageV2, SendReply
from eruca.protocol.message import BORN_HOST_V6, STORE_HOST_V6, TRANSACTION_MASK
from eruca.protocol.templates import (
    BORN_FIELD,
    BORN_LENGTH,
    PROPERTIES_FIELD,
    Template,
    Values,
    binary_send_key,
    json_send_key,
    template_of,
)
from eruca.remoting import Call, Connection, Express, Reply

_CODES = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE
_JSON_CODES = frozenset(b"%d" % code for code in _CODES)
_BINARY_CODES = frozenset(code.to_bytes(2, "big") for code in _CODES)
_HALF_QUEUE = HALF, 0
_REMEMBERED = 4096
_CLIENT_BITS = ~(BORN_HOST_V6 | STORE_HOST_V6)


class Form(NamedTuple):
    """What all headers of one form have in common; ``native.sends`` knows the fields by their places."""

    request: Template
    queue: tuple[str, int]
    """Topic and queue id."""
    flag: int
    sys_flag: int
    reconsume_times: int
    oneway: bool
    replies: Replies
    text: bytes = b""
    """The properties that batches of this form have, all the same."""
    extra: bytes = b""
    """What these add to the properties of each message; empty for a form of single messages."""


class ReplyTemplate(NamedTuple):
    """A whole answer but for opaque, commit log offset and queue offset: once to be filled by ``%``, once with anything
    in their places. ``native.sends`` knows the fields by their places."""

    form: bytes
    """Takes the three in the order in which they stand in the frame: in a binary one the opaque comes first."""
    whole: bytes
    opaque_at: int
    id_at: int
    digits_at: int


class Replies(dict[tuple[int, int], ReplyTemplate]):
    """Answers to sends to one queue, as the ordinary encoder writes them, by the lengths of opaque and queue offset."""

    def __init__(self, serialization: int, prefix: str, queue_id: int, region: str, trace_on: bool) -> None:
        super().__init__()
        self._serialization = serialization
        self._reply = SendReply(
            msg_id=prefix + _MARK, queue_id=queue_id, queue_offset=0, region=region, trace_on=trace_on
        )

    def __missing__(self, lengths: tuple[int, int]) -> ReplyTemplate:
        self._reply.queue_offset = offset = int("7" * lengths[1])
        digits = b"%d" % offset
        if self._serialization == frame.JSON:
            opaque = int("8" * lengths[0])
            whole = frame.encode_reply(frame.JSON, opaque, self._reply, 0)
            opaque_at = whole.index(b'"opaque":%d,' % opaque) + 9
            digits_at = whole.index(b'"queueOffset":"%b"' % digits) + 15
        else:
            whole = frame.encode_reply(frame.ROCKETMQ, 0, self._reply, 0)
            opaque_at = 13
            digits_at = whole.index(b"queueOffset" + len(digits).to_bytes(4, "big") + digits) + 15
        id_at = whole.index(_MARK.encode())
        form, done = b"", 0
        for at, length, place in sorted(
            ((opaque_at, lengths[0], b"%b"), (id_at, 16, b"%016X"), (digits_at, len(digits), b"%b"))
        ):
            form += whole[done:at].replace(b"%", b"%%") + place
            done = at + length
        form += whole[done:].replace(b"%", b"%%")
        template = self[lengths] = ReplyTemplate(form, whole, opaque_at, id_at, digits_at)
        return template


_MARK = "MMMMMMMMMMMMMMMM"


def express(broker: Broker) -> Express:
    """The short way, to be tried before the ordinary one (see ``Router``)."""
    forms: dict[bytes, Form] = broker.admission.forms
    plain = broker.admission.plain
    pulse, hosts = broker.loop_monitor, broker.hosts
    put, count = broker.store.put, broker.statistics.put
    waiting = Waiting(broker) if broker.waits else None
    after_half = 0, 0
    came, places, end_of = broker.halves.came, Places(broker.config.broker_cluster_name), short_end(broker)
    tip, wrote, cluster = broker.store.tip, broker.store.wrote, broker.admission.cluster

    def one(
        connection: Connection, serialization: int, header: bytes, data: bytes, body_at: int, end: int
    ) -> bytes | frame.Head[Any] | None:
        nonlocal after_half
        if serialization == 0:
            if header[8:11] not in _JSON_CODES:
                return end_of(connection, 0, connection.reader.read(0, header)) if header[8:11] == b"37," else None
            form = forms.get(json_send_key(header))
        elif serialization == 1:
            if header[:2] not in _BINARY_CODES:
                return end_of(connection, 1, connection.reader.read(1, header)) if header[:2] == b"\0\x25" else None
            form = forms.get(binary_send_key(header))
        else:
            return end_of(connection, serialization, connection.reader.read(serialization, header))
        values = form.request.match(header) if form is not None else None
        if form is None or values is None or form.extra or not values.first.isdigit():
            return _learn(broker, connection, serialization, header)
        born = values.first
        try:
            text = form.request.unquote(values.second)
        except frame.UNREADABLE:
            return None
        number = values.opaque
        opaque = number.to_bytes(4, "big", signed=True) if serialization else b"%d" % number
        host = hosts.get(connection)
        if host is None or monotonic() > pulse.overdue or (waiting is not None and not waiting.room):
            return None
        _, queue, flag, sys_flag, reconsume_times, oneway, replies, _, _ = form
        stored = plain(text)
        half = None
        if stored is None:
            half = prepared(text, places[queue])
            if half is None or HALF not in broker.topics or broker.config.reject_transaction_message:
                return None
            stored = half.text, half.wait
            queue, sys_flag = _HALF_QUEUE, sys_flag & ~TRANSACTION_MASK
        body = data[body_at:end]
        status, physical_offset, queue_offset, size, _, end_offset = done = put(
            *queue,
            body,
            stored[0],
            flag=flag,
            sys_flag=sys_flag | host[1],
            born_timestamp=int(born),
            born_host=host[0],
            store_host=broker.store_host,
            reconsume_times=reconsume_times,
        )
        if status:
            return None  # nothing was stored; the ordinary way finds the same and says it
        if half is not None:
            after_half = id(data), end
            came(done, half.values, int(born), body)
        count(*queue, 1, size)
        if oneway:
            return b""
        digits = b"%d" % queue_offset
        template = replies[len(opaque), len(digits)]
        if serialization:
            answer = template.form % (opaque, physical_offset, digits)
        else:
            answer = template.form % (physical_offset, digits, opaque)
        if waiting is None or not stored[1]:
            return answer
        waiting.add(connection, answer, end_offset)
        return b""

    def many(connection: Connection, data: bytes, at: int) -> int:
        if data[at + 8 : at + 10] not in _BINARY_CODES and data[at + 16 : at + 19] not in _JSON_CODES:
            return at
        if after_half == (id(data), at):  # another one, very likely, which is not native's
            return at
        host = hosts.get(connection)
        log = tip()
        if host is None or log is None or monotonic() > pulse.overdue:
            return at
        most = len(data) if waiting is None else waiting.room
        stop, answers, end, tallies = native.sends(
            data,
            at,
            forms,
            log.queues,
            log.pending,
            log.memory,
            log.at,
            log.position,
            log.limit,
            log.now,
            log.max_body,
            log.max_record,
            most,
            *host,
            broker.store_host,
            cluster,
        )
        if stop > at:
            wrote(log, end, sum([tally[2] for tally in tallies]))
            for queue, times, messages, size in tallies:
                count(*queue, messages, size, times)
            if waiting is None:
                connection.send(answers)
            else:
                waiting.add(connection, answers, end, sum([tally[1] for tally in tallies]))
        return stop

    return Express(one, many if native.on else None)


class Waiting:
    """Answers that wait for the disk or a slave: all of one round of the loop for the same."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._answers: list[tuple[Connection, bytes, int]] = []
        self._end = 0

    @property
    def room(self) -> int:
        """How many more sends may wait; the next but those is refused (by the ordinary way)."""
        return max(self._broker.config.send_thread_pool_queue_capacity - self._broker.waiting_sends, 0)

    def add(self, connection: Connection, answers: bytes, end: int, count: int = 1) -> None:
        """Send the ``answers`` to so many messages once the log is as safe as is promised up to ``end``."""
        if not self._answers:
            asyncio.get_running_loop().call_soon(self._ask)
        self._answers.append((connection, answers, count))
        self._end = end
        self._broker.waiting_sends += count

    def _ask(self) -> None:
        answers, self._answers = self._answers, []
        done = partial(self._done, answers, monotonic())
        waiter = self._broker.durable(self._end)
        if waiter is None:  # flushed meanwhile: after those who are just being told of it
            asyncio.get_running_loop().call_soon(done, None)
        else:
            asyncio.ensure_future(waiter).add_done_callback(done)

    def _done(
        self, answers: list[tuple[Connection, bytes, int]], since: float, waiter: asyncio.Future[Durability] | None
    ) -> None:
        broker = self._broker
        broker.waiting_sends -= sum([count for _, _, count in answers])
        if waiter is not None and waiter.cancelled():
            return
        durability = Durability.DURABLE if waiter is None else waiter.result()
        took = int((monotonic() - since) * 1000)
        for connection, whole, count in answers:
            broker.statistics.put_took(took, count)
            if durability is Durability.DURABLE:
                connection.send(whole)
            else:
                _answer_otherwise(broker, connection, whole, durability)


def _answer_otherwise(broker: Broker, connection: Connection, answers: bytes, durability: Durability) -> None:
    """What ``send`` would answer: the same with another code, or a refusal."""
    at = 0
    while (found := frame.split(answers, at)) is not None:
        serialization, start, end, at = found
        head = frame.read(serialization, answers[start:end])
        reply = judge(broker, Reply(0, frame.typed(SendReply, head)), durability)
        head.flag = 0
        connection.reply(Call(Empty(), b"", connection, head, serialization, b""), reply)


def _learn(broker: Broker, connection: Connection, serialization: int, header: bytes) -> frame.Head[Any]:
    """Read a header whole, for the ordinary way, and remember its form when that way has admitted its like before."""
    head = connection.reader.read(serialization, header)
    ask = head.ext
    if not isinstance(ask, SendMessageV2) or head.flag not in (0, frame.ONEWAY_FLAG):
        return head
    to = broker.admission.admitted.get((ask.topic, ask.queue_id))
    if to is None or not broker.accepting or ask.batch != (head.code == RequestCode.SEND_BATCH_MESSAGE):
        return head
    text, extra = ask.properties or "", b""
    if ask.batch:
        try:
            extra, wait, later = broker.admission.of_batch(text)
        except ProtocolError:  # the ordinary way says so
            return head
        if not native.on or not wait or later:
            return head
    template = template_of(serialization, header, BORN_FIELD, PROPERTIES_FIELD)
    values = None if template is None else template.match(header)
    if template is None or values is None or not _agree(template, values, ask, head.opaque):
        return head
    forms, config = broker.admission.forms, broker.config
    if len(forms) >= _REMEMBERED:
        forms.clear()
    key = json_send_key(header) if serialization == frame.JSON else binary_send_key(header)
    forms[key] = Form(
        template,
        (to.topic, to.queue_id),
        ask.flag,
        ask.sys_flag & _CLIENT_BITS | to.sys_flag,
        ask.reconsume_times or 0,
        head.flag == frame.ONEWAY_FLAG,
        Replies(serialization, broker.store_host_hex, to.queue_id, config.region_id, config.trace_on),
        text.encode() if extra else b"",
        extra,
    )
    return head


def _agree(template: Template, values: Values, ask: SendMessageV2, opaque: int) -> bool:
    """Whether a header that was read whole says the same where it was cut."""
    try:
        text = template.unquote(values.second)
    except frame.UNREADABLE:
        return False
    born = b"%d" % ask.born_timestamp
    return values.first == born and len(born) == BORN_LENGTH and text == ask.properties and values.opaque == opaque
