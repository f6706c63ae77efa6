"""Commands about single messages: send them, look them up."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

from eruca.admin.client import HEAVY
from eruca.admin.command import TOPIC, WATCH, Job, Shown, command
from eruca.admin.errors import AdminError, BadValue, NoAnswer, NotFound
from eruca.admin.lookups import MISSING_GROUPS, ask_each, queue_at, topics_in
from eruca.admin.messages import (
    body_of,
    choose_queue,
    find,
    message_id,
    message_properties,
    pull,
    pulled_properties,
    records_of,
    send,
    view,
)
from eruca.admin.posix import INT64, Option
from eruca.admin.results import messages as results
from eruca.admin.results.answer import errors_of
from eruca.admin.results.message_tracks import tracks
from eruca.admin.text import map_text, millis_text, shown
from eruca.protocol import api, fastjson
from eruca.protocol.bodies import ConsumeMessageDirectlyResult, QueryConsumeQueueResponseBody
from eruca.protocol.fastjson import Style
from eruca.protocol.headers import clients
from eruca.protocol.headers import pull as pulling
from eruca.protocol.record import Record, host_text
from eruca.remoting.operating_system import open_file

BODY_DIRECTORY = Path("/tmp/rocketmq/msgbodys")  # noqa: S108 - as in 4.9.7
"""The folder for the bodies of messages that were looked up."""
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)

_SENT = "%-32s  %-4s  %-20s    %s"
_CONSUMER = Option("g", "consumerGroup", "with -d: let this group consume it now", kind="group")
_MEMBER = Option("d", "clientId", "with -g: the member that consumes it", kind="member")

# ------------------------------------------------------------------ sending


@command(
    "sendMessage",
    TOPIC,
    Option("p", "body", "the message, as text", required=True),
    Option("k", "key", "its keys, separated by blanks"),
    Option("c", "tags", "its tag"),
    Option("b", "broker", "the broker's name; default: any", kind="broker"),
    Option("i", "qid", "the queue id; only together with -b", kind="number"),
    Option("m", "msgTraceEnable", "accepted without effect: messages of mqadmin are not traced", kind="boolean"),
    results=(results.SentMessage,),
    reads=False,
)
async def send_message(job: Job) -> Shown:
    """310 to the queue named, or to any of the topic."""
    if job.has("i") and not job.has("b"):
        raise BadValue("Broker name must be set if the queue is chosen!")
    queue_id = job.number("i") if job.has("i") else None
    queue, address = await choose_queue(job.admin, job.text("t"), job.maybe("b"), queue_id)
    properties = message_properties(job.maybe("c"), job.maybe("k"))
    sent = await send(job.admin, queue, address, job.text("p").encode(), properties)

    def apache() -> None:
        job.row(_SENT, "#Broker Name", "#QID", "#Send Result", "#MsgId")
        job.row(_SENT, sent.queue.broker_name, sent.queue.queue_id, sent.status, sent.unique_key)

    return Shown(results.sent_message(sent), apache)


# ------------------------------------------------------------------ looking up


@command(
    "queryMsgById",
    Option(
        "i",
        "msgId",
        "the broker's id (offsetMsgId), or with a topic the producer's; several separated by commas",
        required=True,
    ),
    Option("t", "topic", "for a producer's id: its topic", kind="topic", added=True),
    Option(
        "c", "clusterName", "for a producer's id of an unknown topic: look in this cluster", kind="cluster", added=True
    ),
    _CONSUMER,
    _MEMBER,
    Option("s", "sendMessage", "true: send it again", kind="boolean"),
    Option("u", "unitName", "accepted without effect"),
    results=(results.Found, results.Consumed, results.SentMessage),
    reads=True,
)
async def query_by_id(job: Job) -> AsyncIterator[Shown]:
    """33 at the broker that the id names; 309 with -g and -d, 310 with -s true."""
    resend = job.truth("s", False)
    _only_looks(job, resend or _consumes(job))
    ids = [part.strip() for part in job.text("i").split(",") if part.strip()]
    if not ids:
        raise BadValue("option -i (--msgId) names no message: give its id, or several separated by commas")
    for each in ids:
        record = await _by_either_id(job, each)
        if _consumes(job):
            yield await _consume_directly(job, record)
        elif resend:
            yield Shown(None, partial(job.write, f"prepare resend msg. originalMsgId={each}"))
            queue, address = await choose_queue(job.admin, record.topic, None, None)
            sent = await send(job.admin, queue, address, body_of(record), record.properties)
            yield Shown(results.sent_message(sent), partial(job.write, str(sent)))
        elif not job.has("s"):
            yield await _looked_up(job, record, each)


def _consumes(job: Job) -> bool:
    """Whether a member is to consume the message now."""
    return job.has("g") and job.has("d")


def _only_looks(job: Job, acts: bool) -> None:
    """Raise BadValue for a look again and again that would do something each time."""
    if acts and job.has(WATCH.key):
        raise BadValue(f"option {WATCH} looks again and again: it goes with no message that is sent or consumed")


async def _by_either_id(job: Job, id: str) -> Record:
    """A message by the broker's id, if a broker listens at the address in it, else by the producer's."""
    try:
        return await view(job.admin, id)
    except NoAnswer as no_answer:
        unreachable = no_answer
    topics = [job.text("t")] if job.has("t") else []
    if job.has("c"):
        topics = await topics_in(job.admin, job.text("c"))
    asked = await ask_each({topic: find(job.admin, topic, id, unique=True, most=32) for topic in topics})
    found = [record for each in asked.answers.values() for record in records_of(each)]
    errors = asked.errors | {name: error for each in asked.answers.values() for name, error in each.errors.items()}
    if found:
        job.missing(errors, "its messages are missing")
        return min(found, key=lambda record: record.store_timestamp)
    if topics:
        if errors:
            raise next(iter(errors.values()))
        raise NotFound(f"no message of {', '.join(topics) if job.has('t') else 'any topic'} has the id {id}")
    raise type(unreachable)(
        f"{id} names no broker that answers ({unreachable}); if it is the producer's id, give the topic with -t, or "
        "the cluster with -c to look in all of its topics"
    )


async def _consume_directly(job: Job, record: Record) -> Shown:
    request = clients.ConsumeMessageDirectly(
        consumer_group=job.text("g"), client_id=job.text("d"), msg_id=record.offset_message_id
    )
    address = host_text(record.store_host)
    answer = await job.admin.call(address, api.CONSUME_MESSAGE_DIRECTLY, request, timeout=HEAVY)
    result = ConsumeMessageDirectlyResult.decode(answer.body)
    consumed = results.Consumed(
        id=message_id(record),
        group=job.text("g"),
        client_id=job.text("d"),
        consume_result=result.consume_result,
        remark=result.remark,
        order=result.order,
        auto_commit=result.auto_commit,
        ms=result.spent_time_mills,
    )
    if result.consume_result not in _CONSUMED:
        why = f": {result.remark}" if result.remark else ""
        job.report(f"{job.text('d')} did not consume {message_id(record)}: {shown(result.consume_result)}{why}")
    text = (
        f"ConsumeMessageDirectlyResult [order={shown(result.order)}, autoCommit={shown(result.auto_commit)}, "
        f"consumeResult={shown(result.consume_result)}, remark={shown(result.remark)}, "
        f"spentTimeMills={result.spent_time_mills}]"
    )
    return Shown(consumed, partial(job.write, text))


async def _looked_up(
    job: Job, record: Record, offset_id: str | None, suffix: str = "", properties: dict[str, str] | None = None
) -> Shown:
    path = _keep_body(record, suffix)
    asked = await tracks(job.admin, record)
    job.missing(asked.errors, MISSING_GROUPS)
    found = results.found(record, str(path), list(asked.answers.values()), properties)
    nobody = "" if asked.errors else "WARN: No Consumer"
    return Shown(found, partial(_print_message, job, record, offset_id, found, nobody))


def _print_message(job: Job, record: Record, offset_id: str | None, found: results.Found, nobody: str) -> None:
    fields: list[tuple[str, object]] = [] if offset_id is None else [("OffsetID:", offset_id)]
    fields += [
        ("Topic:", record.topic),
        ("Tags:", f"[{shown(record.tags)}]"),
        ("Keys:", f"[{shown(record.properties.get('KEYS'))}]"),
        ("Queue ID:", record.queue_id),
        ("Queue Offset:", record.queue_offset),
        ("CommitLog Offset:", record.physical_offset),
        ("Reconsume Times:", record.reconsume_times),
        ("Born Timestamp:", millis_text(record.born_timestamp)),
        ("Store Timestamp:", millis_text(record.store_timestamp)),
        ("Born Host:", host_text(record.born_host)),
        ("Store Host:", host_text(record.store_host)),
        ("System Flag:", record.sys_flag),
        ("Properties:", map_text(found.message.properties)),
        ("Message Body Path:", found.body_path),
    ]
    for title, value in fields:
        job.row("%-20s %s", title, value)
    job.write("\n\n" + ("\n".join(map(str, found.tracks)) or nobody))
    job.finish()


def _keep_body(record: Record, suffix: str) -> Path:
    """Write the body to its own file; an id that is not a plain name does not become a file name."""
    name = message_id(record)
    if not re.fullmatch(r"[0-9A-Za-z_-]{1,128}", name):
        name = record.offset_message_id
    path = BODY_DIRECTORY / (name + suffix)
    try:
        BODY_DIRECTORY.mkdir(parents=True, exist_ok=True)
        descriptor = open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _NO_LINK, 0o600)
    except OSError as error:
        raise AdminError(f"the body cannot be written to {path}: {error.strerror}") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(body_of(record))
    return path


_CONSUMED = ("CR_SUCCESS", "CR_COMMIT")
"""What a member says of a message that it has consumed."""
_KEYS = "%-50s %4s %40s"


@command(
    "queryMsgByKey",
    TOPIC,
    Option("k", "msgKey", "the key", required=True),
    results=(results.Messages,),
)
async def query_by_key(job: Job) -> Shown:
    """12 at every broker of the topic."""
    asked = await find(job.admin, job.text("t"), job.text("k"))
    found = records_of(asked)
    if not found and not asked.errors:
        raise NotFound(f"no message of topic {job.text('t')} has the key {job.text('k')}")
    items = [results.message_of(record, body=body_of(record)) for record in found]
    result = results.Messages(items=items, errors=errors_of(asked.errors, "its messages are missing"))

    def apache() -> None:
        job.row(_KEYS, "#Message ID", "#QID", "#Offset")
        for each in result.items:
            job.row(_KEYS, each.id, each.queue_id, each.queue_offset)

    return Shown(result, apache)


@command(
    "queryMsgByUniqueKey",
    Option("i", "msgId", "the producer's id (msgId)", required=True),
    TOPIC,
    Option("a", "showAll", "all messages with this id, not only the first", takes_value=False),
    _CONSUMER,
    _MEMBER,
    results=(results.Found, results.Consumed),
    reads=True,
)
async def query_by_unique_key(job: Job) -> AsyncIterator[Shown]:
    """12 for a producer's id at every broker of the topic; 309 with -g and -d."""
    _only_looks(job, _consumes(job))
    asked = await find(job.admin, job.text("t"), job.text("i"), unique=True, most=32)
    found = sorted(records_of(asked), key=lambda each: each.store_timestamp)
    job.missing(asked.errors, "its messages are missing")
    if not found:
        if not asked.errors:
            raise NotFound(f"no message of topic {job.text('t')} has the id {job.text('i')}")
        return
    if _consumes(job):
        yield await _consume_directly(job, found[0])
        return
    for number, record in enumerate(found if job.has("a") else found[:1]):
        yield await _looked_up(job, record, None, f"_{number}" if number else "")


@command(
    "queryMsgByOffset",
    TOPIC,
    Option("b", "brokerName", "the broker's name", required=True, kind="broker"),
    Option("i", "queueId", "the queue id", required=True, kind="number"),
    Option("o", "offset", "the offset", required=True, kind="number", most=INT64),
    results=(results.Found,),
)
async def query_by_offset(job: Job) -> Shown:
    """11 for one message."""
    topic, offset = job.text("t"), job.number("o")
    queue, address = await queue_at(job.admin, topic, job.text("b"), job.number("i"))
    pulled = await pull(job.admin, address, queue, offset, 1)
    if not pulled.records:
        raise NotFound(
            f"{queue} has no message at offset {offset}: its offsets are {pulled.min_offset} to {pulled.max_offset - 1}"
        )
    record = pulled.records[0]
    return await _looked_up(job, record, record.offset_message_id, properties=pulled_properties(record, pulled))


@command(
    "queryCq",
    TOPIC,
    Option("q", "queue", "the queue id", required=True, kind="number"),
    Option("i", "index", "the first unit", required=True, kind="number", most=INT64),
    Option("c", "count", "number of units; default 10", kind="number"),
    Option("b", "broker", "the broker, as host:port; default: the first of the topic", kind="address"),
    Option("g", "consumer", "a consumer group, whose filter is applied to each", kind="group"),
    results=(results.Units,),
)
async def query_consume_queue(job: Job) -> Shown:
    """321."""
    topic, index = job.text("t"), job.number("i")
    address = job.text("b") or (await job.admin.brokers_of(topic))[0][1]
    request = pulling.QueryConsumeQueue(
        topic=topic,
        queue_id=job.number("q"),
        index=index,
        count=job.number("c", 10),
        consumer_group=job.maybe("g"),
    )
    answer = await job.admin.call(address, api.QUERY_CONSUME_QUEUE, request)
    if not answer.body:
        raise NotFound(answer.remark or f"the queue has no unit {index}")
    found = QueryConsumeQueueResponseBody.decode(answer.body)
    return Shown(_units(found, index), partial(_print_units, job, found, index))


def _units(found: QueryConsumeQueueResponseBody, index: int) -> results.Units:
    return results.Units(
        min_index=found.min_queue_index,
        max_index=found.max_queue_index,
        filter=found.filter_data,
        items=[
            results.Unit(
                index=number,
                physic_offset=unit.physic_offset,
                physic_size=unit.physic_size,
                tags_code=unit.tags_code,
                extend_data_json=unit.extend_data_json,
                bit_map=unit.bit_map,
                eval=unit.eval,
                msg=unit.msg,
            )
            for number, unit in enumerate(found.queue_data, index)
        ],
    )


def _print_units(job: Job, found: QueryConsumeQueueResponseBody, index: int) -> None:
    rule = "=" * 38
    if found.subscription_data is not None:
        job.line(f"Subscription data: \n{fastjson.dumps(found.subscription_data, Style.PRETTY).decode()}\n{rule}")
    if found.filter_data is not None:
        job.line(f"Filter data: \n{found.filter_data}\n{rule}")
    job.line(f"Queue data: \nmax: {found.max_queue_index}, min: {found.min_queue_index}\n{rule}")
    for number, unit in enumerate(found.queue_data, index):
        job.line(
            f"idx: {number}\nConsumeQueueData{{physicOffset={unit.physic_offset}, physicSize={unit.physic_size}, "
            f"tagsCode={unit.tags_code}, extendDataJson='{shown(unit.extend_data_json)}', "
            f"bitMap='{shown(unit.bit_map)}', eval={shown(unit.eval)}, msg='{shown(unit.msg)}'}}\n{rule}"
        )
