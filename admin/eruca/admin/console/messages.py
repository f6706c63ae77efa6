"""Messages: find them by id, key, place or time; one message with its body, what groups did with it, and its trace.

A body is only ever shown as text, or as a file to be kept. A message may be given to a member, or be sent again.
"""

from __future__ import annotations

import asyncio
import re

import msgspec

from eruca.admin.client import HEAVY, Admin, broker_addresses
from eruca.admin.console.forms import Field, Filled, form, search
from eruca.admin.console.shapes import beginning, place_of
from eruca.admin.console.visit import Visit, act, download, page, part
from eruca.admin.errors import AdminError, BadValue, NoAnswer, NotFound
from eruca.admin.lookups import MISSING_GROUPS, ask_each, broker_address, members_of, offset_at, topic_stats
from eruca.admin.messages import body_of, choose_queue, find, first_since, pull, send, view
from eruca.admin.results.answer import Answer, PeerError, Result, Table, errors_of
from eruca.admin.results.message_tracks import tracks
from eruca.admin.results.messages import Message, Step, Track, message_of
from eruca.admin.results.traces import trace
from eruca.admin.text import point_of_time
from eruca.protocol import api
from eruca.protocol.bodies import ConsumeMessageDirectlyResult, TopicOffset
from eruca.protocol.headers import clients
from eruca.protocol.names import TRACE_TOPIC
from eruca.protocol.queues import MessageQueue
from eruca.protocol.record import Record, host_text

MOST = 50
"""Messages in a list."""
SAMPLE = 200
"""Bytes of a body in a list."""
SHOWN = 64 << 10
"""Bytes of a body that a page has; the rest is in the download."""
_QUEUE_ID, _OFFSET = re.compile(r"[0-9]{1,9}"), re.compile(r"[0-9]{1,18}")
HEX = 2 << 10
"""Bytes that are shown as hex."""


_SEARCH = search(
    form("queryMsgByKey", "topic", "msgKey"),
    form("queryMsgById", "msgId"),
    form("printMsg", "beginTimestamp"),
    form("queryMsgByOffset", "brokerName", "queueId", "offset"),
)


Found = list[tuple[str, Record]]
"""Messages with the names of their brokers."""


class MessagesPage(Table[Message], frozen=True, kw_only=True, rename="camel"):
    """Messages that were found."""

    topic: str
    by: str
    """How they were found, in words; empty where nothing was asked."""
    fields: list[Field]
    refusal: str
    """Why nothing was looked for."""


@page("/messages", "messages.html")
async def messages(visit: Visit) -> MessagesPage:
    """The form; filled in, what is found. Without id, key, queue and time: the last messages of a topic."""
    by, refusal = "", ""
    found: Found = []
    errors: list[PeerError] = []
    try:
        by, found = await _found(visit.admin, visit.filled(_SEARCH), errors)
    except BadValue as error:
        refusal = str(error)
    return MessagesPage(
        items=[
            message_of(record, broker=broker, body=beginning(body_of(record), SAMPLE))
            for broker, record in found[:MOST]
        ],
        topic=visit.given.get("topic", "").strip(),
        by=by,
        fields=visit.fields(_SEARCH),
        refusal=refusal,
        errors=errors,
    )


async def _found(admin: Admin, filled: Filled, errors: list[PeerError]) -> tuple[str, Found]:
    """How messages were found, in words, and which. Raises BadValue for what names none."""
    topic = filled.text("topic")
    if filled.has("msgId"):
        ids = [each.strip() for each in filled.text("msgId").split(",") if each.strip()]
        found = [await _by_id(admin, topic, each, errors) for each in ids[:MOST]]
        return f"id {', '.join(ids)}", [each for of_id in found for each in of_id]
    if not topic:
        if filled.given:
            raise BadValue("give the topic, too: only a broker's id needs none")
        return "", []
    if key := filled.text("msgKey"):
        asked = await find(admin, topic, key, most=MOST)
        errors += errors_of(asked.errors, "its messages are missing")
        return f"key {key}", [(name, each) for name, each_of in asked.answers.items() for each in each_of]
    if filled.has("brokerName"):
        return await _by_place(admin, topic, filled)
    if filled.has("queueId") or filled.has("offset"):
        raise BadValue("a queue and an offset are those of a broker: give its name, too")
    if time := filled.text("beginTimestamp"):
        return f"time {time}", await _since(admin, topic, point_of_time(time), errors)
    return "place: the last ones of each queue", await _last(admin, topic, errors)


async def _by_id(admin: Admin, topic: str, identity: str, errors: list[PeerError]) -> Found:
    """By the producer's id in a topic; without a topic by the broker's id."""
    if not topic:
        try:
            record = await view(admin, identity)
        except NoAnswer as error:
            raise NotFound(
                f"{identity} names no broker that answers ({error}); a producer's id needs a topic"
            ) from None
        return [(await admin.broker_name_at(host_text(record.store_host)), record)]
    asked = await find(admin, topic, identity, unique=True)
    errors += errors_of(asked.errors, "its messages are missing")
    found = [(name, each) for name, each_of in asked.answers.items() for each in each_of]
    if not found and not errors:
        raise NotFound(f"no message of topic {topic} has the id {identity}; a broker's id is found without a topic")
    return sorted(found, key=lambda each: each[1].store_timestamp)


async def _by_place(admin: Admin, topic: str, filled: Filled) -> tuple[str, Found]:
    """From an offset of a queue on; without an offset the last ones."""
    broker = filled.text("brokerName")
    if not filled.has("queueId"):
        raise BadValue("give the number of the queue, too")
    address = await _address(admin, topic, broker)
    queue = MessageQueue(topic, broker, filled.number("queueId", 0))
    if filled.has("offset"):
        offset = filled.number("offset", 0)
    else:
        offset = max(0, await offset_at(admin, address, queue, -1) - MOST)
    pulled = await pull(admin, address, queue, offset, MOST)
    if not pulled.records and pulled.next_offset > offset:
        pulled = await pull(admin, address, queue, pulled.next_offset, MOST)
    return f"{broker}:{queue.queue_id} from offset {offset}", [(broker, each) for each in pulled.records]


async def _since(admin: Admin, topic: str, time: int, errors: list[PeerError]) -> Found:
    """The first messages at a time or after it, of all queues."""
    addresses = dict(broker_addresses(await admin.route(topic)))
    stats = await topic_stats(admin, topic)
    errors += errors_of(stats.errors, "its messages are missing")

    async def first(queue: MessageQueue, at: TopicOffset) -> Found:
        address = addresses[queue.broker_name]
        offset = await first_since(admin, address, queue, (at.min_offset, at.max_offset), time)
        if offset == at.max_offset:
            return []
        pulled = await pull(admin, address, queue, offset, 32)
        return [(queue.broker_name, each) for each in pulled.records]

    queues = {
        queue: at for table in stats.answers.values() for queue, at in table.items() if queue.broker_name in addresses
    }
    asked = await ask_each({str(queue): first(queue, at) for queue, at in queues.items()})
    errors += errors_of(asked.errors, "its messages are missing")
    return sorted(
        (each for found in asked.answers.values() for each in found), key=lambda each: each[1].store_timestamp
    )


async def _last(admin: Admin, topic: str, errors: list[PeerError]) -> Found:
    """The last messages of each queue, the latest first."""
    addresses = dict(broker_addresses(await admin.route(topic)))
    stats = await topic_stats(admin, topic)
    errors += errors_of(stats.errors, "its messages are missing")
    ends = {
        queue: at for table in stats.answers.values() for queue, at in table.items() if at.max_offset > at.min_offset
    }
    each_of = max(1, MOST // max(1, len(ends)))

    async def last(queue: MessageQueue) -> Found:
        start = max(ends[queue].min_offset, ends[queue].max_offset - each_of)
        pulled = await pull(admin, addresses[queue.broker_name], queue, start, each_of)
        return [(queue.broker_name, each) for each in pulled.records]

    asked = await ask_each({str(queue): last(queue) for queue in ends if queue.broker_name in addresses})
    errors += errors_of(asked.errors, "its messages are missing")
    found = [each for found in asked.answers.values() for each in found]
    return sorted(found, key=lambda each: each[1].store_timestamp, reverse=True)


async def _address(admin: Admin, topic: str, broker: str) -> str:
    return broker_address(dict(broker_addresses(await admin.route(topic))), topic, broker)


# ------------------------------------------------------------------ one message


class OnlineAt(Result, frozen=True, kw_only=True, rename="camel"):
    """A member that a message can be given to."""

    group: str
    client_id: str


class MessagePage(Answer, frozen=True, kw_only=True, rename="camel"):
    """All of one message; None for a part that could not be had."""

    message: Message
    body_size: int
    """Bytes, uncompressed."""
    json: str | None
    """The body, where it is JSON, line by line; its numbers as they stand there."""
    hex: str
    tracks: list[Track] | None
    steps: list[Step]
    members: list[OnlineAt]


_PLACE = "/messages/{topic}/at/{broker}/{queue}/{offset}"


@page(_PLACE, "message.html")
async def message(visit: Visit) -> MessagePage:
    """The message at a place."""
    record, broker = await _record(visit)
    body, admin = body_of(record), visit.admin
    errors: list[PeerError] = []
    found, steps = await asyncio.gather(
        part(errors, "groups", tracks(admin, record)), part(errors, "trace", _trace(admin, record))
    )
    errors += errors_of(found.errors, MISSING_GROUPS) if found else []
    told = list(found.answers.values()) if found else None
    asked = await ask_each({each.group: members_of(admin, each.group) for each in told or []})
    return MessagePage(
        message=message_of(record, broker=broker, body=beginning(body, SHOWN)),
        body_size=len(body),
        json=_json(body),
        hex=_hex(body[:HEX]),
        tracks=told,
        steps=sorted(steps or [], key=lambda each: each.at.ms),
        members=[
            OnlineAt(group=group, client_id=each.client_id)
            for group, online in asked.answers.items()
            for each in online.connection_set
        ],
        errors=errors,
    )


async def _record(visit: Visit) -> tuple[Record, str]:
    topic, broker = visit.names["topic"], visit.names["broker"]
    queue, offset = numbers_of(topic, broker, visit.names["queue"], visit.names["offset"])
    pulled = await pull(visit.admin, await _address(visit.admin, topic, broker), queue, offset, 1)
    record = next((each for each in pulled.records if each.queue_offset == offset), None)
    if record is None:
        raise NotFound(
            f"{broker}:{queue.queue_id} has no message of {topic} at offset {offset}: its offsets are "
            f"{pulled.min_offset} to {pulled.max_offset - 1}"
        )
    return record, broker


def numbers_of(topic: str, broker: str, queue_id: str, offset: str) -> tuple[MessageQueue, int]:
    """A queue and an offset by their digits. Raises NotFound for what can be none."""
    if not (_QUEUE_ID.fullmatch(queue_id) and _OFFSET.fullmatch(offset)):
        raise NotFound(f"there is no message at {broker}:{queue_id}, offset {offset}")
    return MessageQueue(topic, broker, int(queue_id)), int(offset)


async def _trace(admin: Admin, record: Record) -> list[Step]:
    """What clients recorded; nothing where no client ever did."""
    if record.unique_key is None or TRACE_TOPIC not in await admin.all_topics():
        return []
    steps, _ = await trace(admin, TRACE_TOPIC, record.unique_key)
    return steps


def _json(body: bytes) -> str | None:
    if len(body) > SHOWN or body.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        return msgspec.json.format(body.decode(), indent=2)
    except (ValueError, RecursionError):
        return None


def _hex(body: bytes) -> str:
    def row(at: int) -> str:
        piece = body[at : at + 16]
        letters = "".join(chr(each) if 32 <= each < 127 else "." for each in piece)
        return f"{at:06x}  {piece[:8].hex(' '):<23}  {piece[8:].hex(' '):<23}  {letters}"

    return "\n".join(row(at) for at in range(0, len(body), 16))


@download(f"{_PLACE}/body")
async def body(visit: Visit) -> bytes:
    """The body, uncompressed."""
    record, _ = await _record(visit)
    return body_of(record)


@act(f"{_PLACE}/again")
async def send_again(visit: Visit) -> str:
    """Send a copy to any queue of the topic (310)."""
    record, _ = await _record(visit)
    queue, address = await choose_queue(visit.admin, record.topic, None, None)
    sent = await send(visit.admin, queue, address, body_of(record), record.properties)
    place = f"{queue.broker_name}:{sent.queue.queue_id}:{sent.queue_offset}"
    visit.changed(f"message {sent.unique_key} of {record.topic} sent again", "none", place)
    return place_of(sent.queue, sent.queue_offset)


@act(f"{_PLACE}/consume")
async def consume(visit: Visit) -> str:
    """Give the message to one member now (309)."""
    record, broker = await _record(visit)
    group, blank, client = visit.given.get("member", "").partition(" ")
    if not blank:
        raise BadValue("choose a member")
    request = clients.ConsumeMessageDirectly(consumer_group=group, client_id=client, msg_id=record.offset_message_id)
    address = host_text(record.store_host)
    answer = await visit.admin.call(address, api.CONSUME_MESSAGE_DIRECTLY, request, timeout=HEAVY)
    result = ConsumeMessageDirectlyResult.decode(answer.body)
    visit.changed(f"message {record.offset_message_id} consumed by {client} of {group}", "none", result.consume_result)
    if result.consume_result != "CR_SUCCESS":
        raise AdminError(f"{client} says {result.consume_result} after {result.spent_time_mills} ms: {result.remark}")
    return place_of(MessageQueue(record.topic, broker, record.queue_id), record.queue_offset)
