"""Single messages: send one, pull some, look one up.

Owns the requests for this (310, 11, 12, 33). Each is made once, to one queue, without a client's retries.
Must not know commands or print.
"""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass
from ipaddress import ip_address

from eruca.admin.client import HEAVY, Admin, some_address
from eruca.admin.errors import AdminError, BadValue, NoAnswer, NotFound, PeerRefused
from eruca.admin.lookups import Asked, ask_each, offset_at
from eruca.protocol import api
from eruca.protocol.bodies import PERM_WRITE, TopicRouteData
from eruca.protocol.codes import ResponseCode
from eruca.protocol.compression import decompress
from eruca.protocol.errors import ProtocolError
from eruca.protocol.headers import pull as pulling
from eruca.protocol.headers import send as sending
from eruca.protocol.message import encode_properties, parse_offset_message_id, unique_key
from eruca.protocol.names import DEFAULT_TOPIC, KEYS, MAX_OFFSET, MIN_OFFSET, TAGS, TOOLS_GROUP, UNIQ_KEY, WAIT
from eruca.protocol.queues import MessageQueue
from eruca.protocol.record import Record, decode_record, decode_records, host_text
from eruca.remoting.addresses import port_number

PRODUCER_GROUP = "admin_ext_group"
_LONGEST = 2**63 - 1
_DEFAULT_QUEUES = 4
_loader = random.getrandbits(31)
_counter = 0


@dataclass(frozen=True, slots=True)
class Sent:
    """The result of a send (SendResult in 4.9.7); ``status`` in Java's words."""

    status: str
    unique_key: str
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int

    def __str__(self) -> str:
        return (
            f"SendResult [sendStatus={self.status}, msgId={self.unique_key}, offsetMsgId={self.offset_message_id}, "
            f"messageQueue={self.queue}, queueOffset={self.queue_offset}]"
        )


@dataclass(frozen=True, slots=True)
class Pulled:
    """The result of a pull (PullResult in 4.9.7): messages and the next offset; ``status`` in Java's words."""

    status: str
    next_offset: int
    min_offset: int
    max_offset: int
    records: list[Record]


_SENT = {
    ResponseCode.SUCCESS: "SEND_OK",
    ResponseCode.FLUSH_DISK_TIMEOUT: "FLUSH_DISK_TIMEOUT",
    ResponseCode.FLUSH_SLAVE_TIMEOUT: "FLUSH_SLAVE_TIMEOUT",
    ResponseCode.SLAVE_NOT_AVAILABLE: "SLAVE_NOT_AVAILABLE",
}
_PULLED = {
    ResponseCode.SUCCESS: "FOUND",
    ResponseCode.PULL_NOT_FOUND: "NO_NEW_MSG",
    ResponseCode.PULL_RETRY_IMMEDIATELY: "NO_MATCHED_MSG",
    ResponseCode.PULL_OFFSET_MOVED: "OFFSET_ILLEGAL",
}


# ------------------------------------------------------------------ sending


async def writable_queues(admin: Admin, topic: str) -> dict[MessageQueue, str]:
    """The queues that a message of a topic may go to, each with its master's address.

    A topic without a route gets the queues of the template topic, from which brokers create it.
    """
    try:
        return _writable(topic, await admin.route(topic), None)
    except PeerRefused as refused:
        if refused.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        missing = refused
    try:
        return _writable(topic, await admin.route(DEFAULT_TOPIC), _DEFAULT_QUEUES)
    except PeerRefused:
        raise missing from None


def _writable(topic: str, route: TopicRouteData, most: int | None) -> dict[MessageQueue, str]:
    masters = {broker.broker_name: master for broker in route.broker_datas if (master := broker.master())}
    found = {}
    for queues in route.queue_datas:
        if queues.perm & PERM_WRITE and queues.broker_name in masters:
            count = queues.write_queue_nums if most is None else min(most, queues.write_queue_nums)
            for queue_id in range(count):
                found[MessageQueue(topic, queues.broker_name, queue_id)] = masters[queues.broker_name]
    if not found:
        raise AdminError(f"topic {topic} has no queue to write now: look at its permission and at the brokers' masters")
    return found


async def choose_queue(admin: Admin, topic: str, broker: str | None, queue_id: int | None) -> tuple[MessageQueue, str]:
    """A queue and its broker's address: the queue that is named, or a random writable one, of a broker if it is named.

    Raises NotFound for a broker on which the topic is not.
    """
    if broker is not None and queue_id is not None:
        route = await admin.route(topic)
        master = next((each.master() for each in route.broker_datas if each.broker_name == broker), None)
        if master is None:
            names = ", ".join(each.broker_name for each in route.broker_datas)
            raise NotFound(f"topic {topic} has no master on broker {broker}; its brokers: {names}")
        return MessageQueue(topic, broker, queue_id), master
    queues = await writable_queues(admin, topic)
    wanted = {queue: at for queue, at in queues.items() if broker in (None, queue.broker_name)}
    if not wanted:
        names = ", ".join(sorted({queue.broker_name for queue in queues}))
        raise NotFound(f"topic {topic} has no queue to write on broker {broker}; its brokers: {names}")
    return random.choice(list(wanted.items()))


async def send(
    admin: Admin, queue: MessageQueue, address: str, body: bytes, properties: dict[str, str], *, flag: int = 0
) -> Sent:
    """Send one message to one queue. The message gets a unique key unless ``properties`` hold one."""
    properties = {WAIT: "true", **properties}
    if UNIQ_KEY not in properties:
        local = (await admin.channels.get(address)).local
        properties[UNIQ_KEY] = _new_key(local.rpartition(":")[0])
    request = sending.SendMessageV2(
        producer_group=PRODUCER_GROUP,
        topic=queue.topic,
        queue_id=queue.queue_id,
        sys_flag=0,
        born_timestamp=time.time_ns() // 1_000_000,
        flag=flag,
        properties=encode_properties(properties).decode(),
        reconsume_times=0,
    )
    answer = await admin.call(address, api.SEND_MESSAGE_V2, request, body)
    stored = answer.header
    placed = MessageQueue(queue.topic, queue.broker_name, stored.queue_id)
    status = _SENT.get(ResponseCode(answer.code), "SEND_OK")
    return Sent(status, properties[UNIQ_KEY], stored.msg_id, placed, stored.queue_offset)


def message_properties(tags: str | None, keys: str | None) -> dict[str, str]:
    """The properties for tags and keys; None adds none."""
    return {name: value for name, value in ((TAGS, tags), (KEYS, keys)) if value}


def _new_key(local: str) -> str:
    global _counter
    _counter += 1
    now = time.time()
    start = time.mktime((*time.localtime(now)[:2], 1, 0, 0, 0, 0, 0, -1))
    return unique_key(ip_address(local).packed, os.getpid(), _loader, int((now - start) * 1000), _counter)


# ------------------------------------------------------------------ pulling


async def pull(
    admin: Admin,
    address: str,
    queue: MessageQueue,
    offset: int,
    count: int,
    *,
    expression: str = "*",
    expression_type: str = "TAG",
    group: str = TOOLS_GROUP,
) -> Pulled:
    """Up to ``count`` messages of a queue from ``offset`` on. The broker does not hold the pull."""
    request = pulling.PullMessage(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=count,
        sys_flag=pulling.SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription=expression,
        sub_version=0,
        expression_type=expression_type,
    )
    answer = await admin.call(address, api.PULL_MESSAGE, request)
    header = answer.header
    records = decode_records(answer.body) if answer.code == ResponseCode.SUCCESS else []
    wanted = {tag.strip() for tag in expression.split("||")} - {"", "*"}
    if wanted and expression_type == "TAG":
        records = [record for record in records if record.tags in wanted]
    status = _PULLED[ResponseCode(answer.code)]
    return Pulled(status, header.next_begin_offset, header.min_offset, header.max_offset, records)


def pulled_properties(record: Record, pulled: Pulled) -> dict[str, str]:
    """The properties of a pulled message, with the two that clients add."""
    return record.properties | {MIN_OFFSET: str(pulled.min_offset), MAX_OFFSET: str(pulled.max_offset)}


def body_of(record: Record) -> bytes:
    """The uncompressed body. Raises AdminError when it cannot be read."""
    try:
        return decompress(record.body, record.sys_flag)
    except ProtocolError as error:
        raise AdminError(f"the body of {record.offset_message_id} cannot be read: {error}") from None


def message_id(record: Record) -> str:
    """The message id that users see: the producer's, else the broker's."""
    return record.unique_key or record.offset_message_id


# ------------------------------------------------------------------ times


async def stored_at(admin: Admin, address: str, queue: MessageQueue, offset: int) -> int | None:
    """The time in ms at which the message at an offset was stored; None where there is none."""
    pulled = await pull(admin, address, queue, offset, 1)
    return next((record.store_timestamp for record in pulled.records if record.queue_offset == offset), None)


async def first_since(admin: Admin, address: str, queue: MessageQueue, bounds: tuple[int, int], timestamp: int) -> int:
    """The offset of the first message of a queue at or after a time in ms; its end if there is none.

    ``bounds`` are its first and its next offset. A broker finds the nearest message (29), which may be an older one, or
    any one of those of the same time: from there on, the times of messages are looked at.
    """
    first, end = bounds

    async def too_old(offset: int) -> bool:
        at = await stored_at(admin, address, queue, offset)
        return at is not None and at < timestamp

    if first == end:
        return end
    nearest_one = min(max(await offset_at(admin, address, queue, timestamp), first), end - 1)
    if await too_old(nearest_one):
        offset = nearest_one + 1
        while offset < end and await too_old(offset):
            offset += 1
        return offset
    low, high, step = first, nearest_one, 1
    while high > low and not await too_old(probe := max(low, high - step)):
        high, step = probe, step * 2
        if probe == low:
            return low
    low = max(low, high - step)
    while high - low > 1:
        middle = (low + high) // 2
        if await too_old(middle):
            low = middle
        else:
            high = middle
    return high


# ------------------------------------------------------------------ looking up


async def view(admin: Admin, offset_id: str) -> Record:
    """The message with an offset message id, from the broker in that id.

    Raises BadValue for what is no id, NoAnswer if no broker is there, and PeerRefused if it has no message there.
    """
    try:
        host, offset = parse_offset_message_id(offset_id)
        address = host_text(host)
    except ProtocolError as error:
        raise BadValue(str(error)) from None
    port = address.rpartition(":")[2]
    try:
        port_number(port)
    except ValueError:
        raise NoAnswer(f"it has no port of a broker, but {port}") from None
    answer = await admin.call(address, api.VIEW_MESSAGE_BY_ID, pulling.ViewMessage(offset=offset))
    return decode_record(answer.body)


async def find(admin: Admin, topic: str, key: str, *, unique: bool = False, most: int = 64) -> Asked[list[Record]]:
    """The messages of a topic with a business key, or with a unique key when ``unique``, by broker."""
    brokers = {each.broker_name: at for each in (await admin.route(topic)).broker_datas if (at := some_address(each))}
    asked = await ask_each({name: _find_at(admin, at, topic, key, unique, most) for name, at in brokers.items()})
    if not asked.answers:
        asked.strict()
    return asked


def records_of(found: Asked[list[Record]]) -> list[Record]:
    """All messages that were found, broker by broker."""
    return [each for broker in sorted(found.answers) for each in found.answers[broker]]


async def _find_at(admin: Admin, address: str, topic: str, key: str, unique: bool, most: int) -> list[Record]:
    request = pulling.QueryMessage(
        topic=topic,
        key=key,
        max_num=most,
        begin_timestamp=0,
        end_timestamp=_LONGEST,
        unique_key_query=True if unique else None,
    )
    try:
        answer = await admin.call(address, api.QUERY_MESSAGE, request, timeout=HEAVY)
    except PeerRefused as refused:
        if refused.code != ResponseCode.QUERY_NOT_FOUND:
            raise
        return []
    found = decode_records(answer.body)
    if unique:
        return [each for each in found if message_id(each) == key]
    return [each for each in found if each.topic == topic and key in each.keys]
