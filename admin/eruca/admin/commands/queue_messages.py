"""Commands that print the messages of queues between offsets or times. No offset of a group moves."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from functools import partial

from eruca.admin.command import TOPIC, Job, Shown, command
from eruca.admin.errors import AdminError, BadValue, NoAnswer, Status
from eruca.admin.expressions import tag_expression
from eruca.admin.lookups import END, broker_address, offset_at, queue_at, queues_and_brokers
from eruca.admin.messages import Pulled, body_of, first_since, message_id, pull, pulled_properties
from eruca.admin.posix import INT32, INT64, Option
from eruca.admin.results.messages import Message, TagCount, message_of
from eruca.admin.text import map_text, point_of_time, shown
from eruca.protocol import api
from eruca.protocol.headers import offsets
from eruca.protocol.names import TOOLS_GROUP
from eruca.protocol.queues import MessageQueue
from eruca.protocol.record import Record, host_text


async def _interval(job: Job, address: str, queue: MessageQueue, begin: int, end: int) -> tuple[int, int]:
    """The offset of the first message between two times, both included, and the one behind the last; 0 is no bound.

    Apache's mqadmin takes those nearest to the times: a message that is older may be the first one, and the last ones
    be left out.
    """
    request = offsets.QueueOf(topic=queue.topic, queue_id=queue.queue_id)
    first = (await job.admin.call(address, api.GET_MIN_OFFSET, request)).header.offset
    last = await offset_at(job.admin, address, queue, END)
    bounds = first, last
    if begin:
        first = await first_since(job.admin, address, queue, bounds, begin)
    if end:
        last = await first_since(job.admin, address, queue, bounds, end + 1)
    return first, last


def _times(job: Job, first: str, second: str) -> tuple[int, int]:
    begin = point_of_time(job.text(first)) if job.has(first) else 0
    end = point_of_time(job.text(second)) if job.has(second) else 0
    if end and begin > end:
        raise BadValue("Please make sure that the beginTimestamp is less than or equal to the endTimestamp")
    return begin, end


@command(
    "consumeMessage",
    TOPIC,
    Option("b", "brokerName", "the broker's name", kind="broker"),
    Option("i", "queueId", "the queue id; needs -b", kind="number"),
    Option("o", "offset", "the first offset; needs -i", kind="number", least=-INT64, most=INT64),
    Option("g", "consumerGroup", "the group to consume as; its offsets are not moved", kind="group"),
    Option(
        "s",
        "beginTimestamp ",
        "from here on: ms since 1970, yyyy-MM-dd#HH:mm:ss:SSS or another form of time",
        kind="time",
    ),
    Option(
        "e", "endTimestamp ", "up to here: ms since 1970, yyyy-MM-dd#HH:mm:ss:SSS or another form of time", kind="time"
    ),
    Option("c", "MessageNumber", "maximum number of messages; default 128", kind="number", least=-INT32),
    results=(Message,),
    reads=True,
)
async def consume_message(job: Job) -> AsyncIterator[Shown]:
    """11 at one queue or at all queues of the topic, without a subscription of a group."""
    most = job.number("c", 128)
    if most <= 0:
        raise BadValue("Please input a positive messageNumber!")
    if job.has("i") and not job.has("b"):
        raise BadValue("Please set the brokerName before queueId!")
    if job.has("o") and not job.has("i"):
        raise BadValue("Please set queueId before offset!")
    begin, end = _times(job, "s", "e")
    now = time.time_ns() // 1_000_000
    if begin > now or end > now:
        raise BadValue(f"Please set the {'beginTimestamp' if begin > now else 'endTimestamp'} before now!")
    consume = _consume_queue if job.has("i") else _consume_all
    found = False
    async for each in consume(job, most, begin, end):
        found = found or each.result is not None
        yield each
    if (begin or end) and not found and not job.status:
        job.report(f"topic {job.text('t')} has no message of that time there", Status.NOT_FOUND)


def _said(job: Job, text: str) -> Shown:
    return Shown(None, partial(job.line, text))


async def _consume_queue(job: Job, most: int, begin: int, end: int) -> AsyncIterator[Shown]:
    topic, name = job.text("t"), job.text("b")
    queue, address = await queue_at(job.admin, topic, name, job.number("i"))
    first, last = await _interval(job, address, queue, begin, end)
    wanted = job.number("o")
    if wanted > last:
        yield _said(job, f"{queue} no matched msg, offset={wanted}")
        return
    first = max(first, wanted)
    if last - first > most:
        yield _said(job, f"The oldler {most} message will be provided")
    async for each in _range(job, address, queue, first, _last(first, last, most, is_open=not end)):
        yield each


def _last(first: int, end: int, most: int, *, is_open: bool) -> int:
    """The last offset to ask for; of an interval without an end, the one behind the last message too, as Apache's."""
    return first + most - 1 if end - first > most else end if is_open else end - 1


Read = Callable[[str, MessageQueue], AsyncIterator[Shown]]
"""Reads a queue at the broker of an address."""


async def _each_queue(job: Job, read: Read, broker: str | None = None) -> AsyncIterator[Shown]:
    """All queues of the topic, or those of one ``broker``; what does not answer is left out, and named at the end."""
    queues, addresses = await queues_and_brokers(job.admin, job.text("t"))
    if broker is not None:
        broker_address(addresses, job.text("t"), broker)
        queues = [queue for queue in queues if queue.broker_name == broker]
    silent: dict[str, AdminError] = {}
    for queue in queues:
        name = queue.broker_name
        try:
            if name not in silent:
                async for each in read(addresses[name], queue):
                    yield each
        except NoAnswer as error:
            silent[name] = error
    if silent and silent.keys() == {queue.broker_name for queue in queues}:
        raise next(iter(silent.values()))
    job.missing(silent, "its messages are missing")


def _consume_all(job: Job, most: int, begin: int, end: int) -> AsyncIterator[Shown]:
    left = most

    async def consume(address: str, queue: MessageQueue) -> AsyncIterator[Shown]:
        nonlocal left
        if left <= 0:
            return
        first, last = await _interval(job, address, queue, begin, end)
        count = max(0, last - first)
        if count > left:
            yield _said(job, f"The older {left} message of the {queue.queue_id} queue will be provided")
        stop = _last(first, last, left, is_open=not end)
        left -= count
        async for each in _range(job, address, queue, first, stop):
            yield each

    return _each_queue(job, consume, job.maybe("b"))


async def _range(job: Job, address: str, queue: MessageQueue, first: int, last: int) -> AsyncIterator[Shown]:
    """The messages between two offsets, both included; says so where the queue ends before."""
    group = job.text("g") or TOOLS_GROUP
    while first <= last:
        pulled = await pull(job.admin, address, queue, first, last - first + 1, group=group)
        first = pulled.next_offset
        if pulled.status == "FOUND":
            yield _said(job, "Consume ok")
            for each in _messages(job, queue, pulled, "UTF-8", True):
                yield each
        elif pulled.status == "NO_MATCHED_MSG":
            yield _said(job, f"{queue} no matched msg. status={pulled.status}, offset={first}")
        else:
            yield _said(job, f"{queue} print msg finished. status={pulled.status}, offset={first}")
            return


async def _batches(
    job: Job, address: str, queue: MessageQueue, offsets: tuple[int, int], expression: str
) -> AsyncIterator[Pulled]:
    """The messages from one offset to before another one that match an expression, batch by batch.

    A batch without a match is no end; a queue that ends before is.
    """
    offset, last = offsets
    while offset < last:
        pulled = await pull(job.admin, address, queue, offset, min(32, last - offset), expression=expression)
        offset = pulled.next_offset
        yield replace(pulled, records=[each for each in pulled.records if each.queue_offset < last])
        if pulled.status not in ("FOUND", "NO_MATCHED_MSG"):
            return


def _messages(job: Job, queue: MessageQueue, pulled: Pulled, charset: str, with_body: bool) -> Iterator[Shown]:
    for record in pulled.records:
        body = body_of(record)
        text = _decoded(body, charset) if with_body else "NOT PRINT BODY"
        shown = text.encode() if with_body and charset.upper() != "UTF-8" else body
        yield Shown(
            message_of(
                record,
                broker=queue.broker_name,
                body=shown if with_body else None,
                properties=pulled_properties(record, pulled),
            ),
            partial(_print_message, job, record, body, queue, pulled, text),
        )


def _print_message(job: Job, record: Record, body: bytes, queue: MessageQueue, pulled: Pulled, text: str) -> None:
    job.line(f"MSGID: {message_id(record)} {message_text(record, body, queue, pulled)} BODY: {text}")


def _decoded(body: bytes, charset: str) -> str:
    try:
        return body.decode(charset, "replace")
    except LookupError:
        raise BadValue(f"there is no charset {charset}") from None


def message_text(record: Record, body: bytes, queue: MessageQueue, pulled: Pulled) -> str:
    """A pulled message in Java's words (MessageExt.toString in 4.9.7)."""
    properties = pulled_properties(record, pulled)
    signed = ", ".join(str(byte - 256 if byte > 127 else byte) for byte in body)
    prepared = properties.get("TRAN_MSG", "").lower() == "true"
    return (
        f"MessageExt [brokerName={queue.broker_name}, queueId={record.queue_id}, storeSize={record.size}, "
        f"queueOffset={record.queue_offset}, sysFlag={record.sys_flag}, bornTimestamp={record.born_timestamp}, "
        f"bornHost=/{host_text(record.born_host)}, storeTimestamp={record.store_timestamp}, "
        f"storeHost=/{host_text(record.store_host)}, msgId={record.offset_message_id}, "
        f"commitLogOffset={record.physical_offset}, bodyCRC={record.body_crc}, "
        f"reconsumeTimes={record.reconsume_times}, "
        f"preparedTransactionOffset={record.prepared_transaction_offset}, toString()=Message{{topic='{record.topic}', "
        f"flag={record.flag}, properties={map_text(properties)}, body=[{signed}], "
        f"transactionId='{shown(record.unique_key if prepared else None)}'}}]"
    )


_CHARSET = Option("c", "charsetName ", "charset of the bodies; default UTF-8")
_TAGS = Option("s", "subExpression ", "only these tags: TagA || TagB; default *")
_BEGIN = Option(
    "b", "beginTimestamp ", "from here on: ms since 1970, yyyy-MM-dd#HH:mm:ss:SSS or another form of time", kind="time"
)
_END = Option(
    "e", "endTimestamp ", "up to here: ms since 1970, yyyy-MM-dd#HH:mm:ss:SSS or another form of time", kind="time"
)


@command(
    "printMsg",
    TOPIC,
    _CHARSET,
    _TAGS,
    _BEGIN,
    _END,
    Option("d", "printBody ", "false: without bodies; default true", kind="boolean"),
    results=(Message,),
    reads=True,
)
async def print_messages(job: Job) -> AsyncIterator[Shown]:
    """11 at all queues of the topic."""
    begin, end = _times(job, "b", "e")
    charset, with_body = job.text("c", "UTF-8"), job.truth("d", True)
    expression = tag_expression(job.text("s", "*"))

    async def print_all(address: str, queue: MessageQueue) -> AsyncIterator[Shown]:
        offset, last = await _interval(job, address, queue, begin, end)
        yield _said(job, f"minOffset={offset}, maxOffset={last}, {queue}")
        async for pulled in _batches(job, address, queue, (offset, last), expression):
            if pulled.status == "FOUND":
                for each in _messages(job, queue, pulled, charset, with_body):
                    yield each
            else:
                words = "no matched msg" if pulled.status == "NO_MATCHED_MSG" else "print msg finished"
                yield _said(job, f"{queue} {words}. status={pulled.status}, offset={pulled.next_offset}")
        yield _said(job, "-" * 56)

    async for each in _each_queue(job, print_all):
        yield each


@command(
    "printMsgByQueue",
    TOPIC,
    Option("a", "brokerName ", "the broker's name", required=True, kind="broker"),
    Option("i", "queueId ", "the queue id", required=True, kind="number"),
    _CHARSET,
    _TAGS,
    _BEGIN,
    _END,
    Option("p", "print msg", "true: print the messages; default false", kind="boolean"),
    Option("d", "printBody ", "true: with bodies; default false", kind="boolean"),
    Option("f", "calculate", "true: count them by tag; default false", kind="boolean"),
    results=(Message, TagCount),
    reads=True,
)
async def print_queue(job: Job) -> AsyncIterator[Shown]:
    """11 at one queue."""
    begin, end = _times(job, "b", "e")
    expression = tag_expression(job.text("s", "*"))
    queue, address = await queue_at(job.admin, job.text("t"), job.text("a"), job.number("i"))
    offset, last = await _interval(job, address, queue, begin, end)
    counts: Counter[str] = Counter()
    async for pulled in _batches(job, address, queue, (offset, last), expression):
        counts.update(record.tags for record in pulled.records if record.tags)
        if job.truth("p", False):
            for each in _messages(job, queue, pulled, job.text("c", "UTF-8"), job.truth("d", False)):
                yield each
    if job.truth("f", False):
        for tag, messages in counts.most_common():
            yield Shown(TagCount(tag=tag, messages=messages), partial(job.row, "Tag: %-30s Count: %s", tag, messages))
