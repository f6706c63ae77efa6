"""Dead letters: groups that have any, the letters of one group, and the way back to their topics.

A letter stays where it is when a copy is sent back: brokers delete letters with their files. One that was sent back is
marked: this console has sent it, or it lies before the group's place in its queue, which ``mqadmin move`` keeps and the
console moves on as well. All letters that were not sent back are sent in a task of its own, at a rate, one task for a
group at a time; so no letter goes twice but one that a person marks again.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

from eruca.admin.client import Admin, broker_addresses
from eruca.admin.console.forms import Field, form
from eruca.admin.console.messages import SAMPLE, numbers_of
from eruca.admin.console.overview import Freshness, freshness
from eruca.admin.console.shapes import beginning, segment
from eruca.admin.console.visit import Console, Visit, act, now, page
from eruca.admin.errors import AdminError, BadValue, NotFound
from eruca.admin.lookups import ask_each, kept_place, store_offset, topic_stats
from eruca.admin.messages import body_of, choose_queue, pull, send
from eruca.admin.results.answer import Moment, PeerError, Result, Table, errors_of
from eruca.admin.results.messages import Message, message_of
from eruca.admin.results.topics import topic_status
from eruca.client.consuming.last_error import last_error_of
from eruca.client.dead_letter import properties_of_copy
from eruca.protocol.errors import ProtocolError
from eruca.protocol.names import DLQ_PREFIX, RETRY_TOPIC, dead_letter_topic, is_dead_letter_topic
from eruca.protocol.queues import MessageQueue
from eruca.protocol.record import Record

MOST = 100
"""Letters on a page, the latest ones."""
RATE, FASTEST = 100, 10_000
"""Letters per second: where the form says nothing, and at most."""
BATCH = 32
_ALL = form("move", "count", "rate")


class LettersOfGroup(Result, frozen=True, kw_only=True, rename="camel"):
    """How many letters a group has."""

    group: str
    letters: int | None
    """None where a broker did not say it."""
    last: Moment | None


class DeadLettersPage(Table[LettersOfGroup], frozen=True, kw_only=True, rename="camel"):
    """Groups with dead letters."""


@page("/dead-letters", "dead_letters.html")
async def dead_letters(visit: Visit) -> DeadLettersPage:
    """Every group with a topic of dead letters."""
    topics = [each for each in await visit.admin.all_topics() if is_dead_letter_topic(each)]
    asked = await ask_each({topic: topic_status(visit.admin, topic) for topic in topics})
    items = []
    watch = visit.console.watch
    errors = [*watch.gone(), *errors_of(asked.errors, "its letters are not counted")]
    for topic in sorted(topics):
        status = asked.answers.get(topic)
        stamps = [each.last_stored for each in status.items if each.last_stored] if status else []
        counted = sum(each.max_offset - each.min_offset for each in status.items) if status else None
        errors += status.errors if status else []
        items.append(
            LettersOfGroup(
                group=topic.removeprefix(DLQ_PREFIX),
                letters=None if status is None or status.errors or watch.gone() else counted,
                last=max(stamps, key=lambda each: each.ms, default=None),
            )
        )
    return DeadLettersPage(items=[each for each in items if each.letters != 0], errors=errors)


class Letter(Result, frozen=True, kw_only=True, rename="camel"):
    """A dead letter."""

    message: Message
    place: str
    """``broker:queue:offset``."""
    topic: str
    """That it was sent to; empty where it does not say."""
    reason: str
    """Empty where it does not say."""
    traceback: str
    sent_back: bool
    """By this console since it started, or by ``mqadmin move``."""


class SendingBack(Result, frozen=True, kw_only=True, rename="camel"):
    """All letters of a group on their way back."""

    began: Moment
    sent: int
    left_out: int
    """Those that were sent back before."""
    of: int
    state: str
    """going, done or failed."""
    error: str


class LettersPage(Table[Letter], frozen=True, kw_only=True, rename="camel"):
    """The letters of a group, the latest first."""

    group: str
    count: int | None
    waiting: int | None
    """Those that were not sent back."""
    fields: list[Field]
    sending: list[SendingBack]
    seen: Freshness


@dataclass
class Task:
    """All letters of a group on their way back, in a task."""

    group: str
    began: Moment
    of: int = 0
    sent: int = 0
    left_out: int = 0
    most: int = 0
    """Letters to send."""
    state: str = "going"
    error: str = ""
    task: asyncio.Task[None] | None = field(default=None, repr=False)


@page("/dead-letters/{group}", "letters.html")
async def letters(visit: Visit) -> LettersPage:
    """The letters of a group."""
    group = visit.names["group"]
    errors = visit.console.watch.gone()
    spans, addresses = await _spans(visit.admin, group, errors)
    share = max(1, MOST // max(1, len(spans)))

    async def last(queue: MessageQueue) -> tuple[int, list[Letter]]:
        """How many were not sent back, and the last ones."""
        first, end = spans[queue]
        address = addresses[queue.broker_name]
        begin = await kept_place(visit.admin, address, group, queue)
        pulled = await pull(visit.admin, address, queue, max(first, end - share), share)
        start, sent = max(first, begin), visit.console.sent_back[queue]
        waiting = max(0, end - start) - sum(start <= each < end for each in sent)
        return waiting, [_letter(visit.console, queue, each, begin) for each in pulled.records]

    asked = await ask_each({str(queue): last(queue) for queue in spans})
    errors += errors_of(asked.errors, "its letters are missing")
    found = [each for _, of_queue in asked.answers.values() for each in of_queue]
    return LettersPage(
        group=group,
        items=sorted(found, key=lambda each: each.message.stored.ms, reverse=True),
        count=None if errors else sum(end - first for first, end in spans.values()),
        waiting=None if errors else sum(waiting for waiting, _ in asked.answers.values()),
        fields=visit.fields(_ALL, usual={"rate": str(RATE)}),
        sending=[
            SendingBack(
                began=each.began,
                sent=each.sent,
                left_out=each.left_out,
                of=each.of,
                state=each.state,
                error=each.error,
            )
            for each in _tasks(visit.console)
            if each.group == group
        ],
        seen=freshness(0.0, ""),
        errors=errors,
    )


def _place(queue: MessageQueue, record: Record) -> str:
    return f"{queue.broker_name}:{queue.queue_id}:{record.queue_offset}"


def _was_sent(console: Console, queue: MessageQueue, record: Record, begin: int) -> bool:
    """Whether a letter was sent back, where the group's place is ``begin``."""
    return record.queue_offset < begin or record.queue_offset in console.sent_back[queue]


def _letter(console: Console, queue: MessageQueue, record: Record, begin: int) -> Letter:
    place, error = _place(queue, record), last_error_of(record.properties)
    return Letter(
        message=message_of(record, broker=queue.broker_name, body=beginning(body_of(record), SAMPLE)),
        place=place,
        topic=record.properties.get(RETRY_TOPIC, ""),
        reason=str(error) if error.kind else "",
        traceback=error.traceback,
        sent_back=_was_sent(console, queue, record, begin),
    )


async def _spans(
    admin: Admin, group: str, errors: list[PeerError]
) -> tuple[dict[MessageQueue, tuple[int, int]], dict[str, str]]:
    """First and next offset of each queue of letters, and the addresses of their brokers."""
    topic = dead_letter_topic(group)
    if topic not in await admin.all_topics():
        return {}, {}
    addresses = dict(broker_addresses(await admin.route(topic)))
    stats = await topic_stats(admin, topic)
    errors += errors_of(stats.errors, "its letters are missing")
    spans = {
        queue: (at.min_offset, at.max_offset)
        for table in stats.answers.values()
        for queue, at in sorted(table.items())
        if at.max_offset > at.min_offset and queue.broker_name in addresses
    }
    return spans, addresses


# ------------------------------------------------------------------ back to the topic


@act("/dead-letters/{group}/back")
async def back(visit: Visit) -> str:
    """Send marked letters back, or all that are there now and were not sent back."""
    group = visit.names["group"]
    marked = list(dict.fromkeys(visit.given.get("places", "").split()))
    if "all" in visit.given:
        visit.confirmed(group)
        await _begin_all(visit, group)
    elif not marked:
        raise BadValue("mark the letters that are to be sent back")
    else:
        await _send_marked(visit, group, marked)
    return f"/dead-letters/{segment(group)}"


async def _send_marked(visit: Visit, group: str, places: Sequence[str]) -> None:
    errors: list[PeerError] = []
    _, addresses = await _spans(visit.admin, group, errors)
    for place in places:
        broker, _, rest = place.partition(":")
        queue_id, _, offset = rest.partition(":")
        if broker not in addresses:
            raise NotFound(f"{group} has no dead letter at {place}")
        queue, number = numbers_of(dead_letter_topic(group), broker, queue_id, offset)
        pulled = await pull(visit.admin, addresses[broker], queue, number, 1)
        record = next((each for each in pulled.records if each.queue_offset == number), None)
        if record is None:
            raise NotFound(f"{group} has no dead letter at {place} any more")
        await _send_back(visit, queue, record)


async def _begin_all(visit: Visit, group: str) -> None:
    filled = visit.filled(_ALL)
    rate = filled.number("rate", RATE)
    if rate > FASTEST:
        raise BadValue(f"rate takes a whole number, {FASTEST} or less here, not {rate}")
    if any(each.group == group and each.state == "going" for each in _tasks(visit.console)):
        raise AdminError(f"nothing was sent: the letters of {group} are on their way back already")
    sending = Task(group, now())
    key = secrets.token_hex(4)
    visit.console.tasks[key] = sending  # before anybody is asked: another form that comes meanwhile is refused
    errors: list[PeerError] = []
    try:
        spans, addresses = await _spans(visit.admin, group, errors)
        if errors:
            raise AdminError(f"nothing was sent: {errors[0].peer}: {errors[0].text}")
    except BaseException:
        del visit.console.tasks[key]
        raise
    sending.of = sum(end - first for first, end in spans.values())
    sending.most = filled.number("count", sending.of)
    sending.task = asyncio.create_task(_send_all(visit, sending, spans, addresses, 1 / rate))


async def _send_all(
    visit: Visit,
    sending: Task,
    spans: dict[MessageQueue, tuple[int, int]],
    addresses: dict[str, str],
    pause: float,
) -> None:
    try:
        for queue, (first, end) in spans.items():
            if sending.sent == sending.most:
                break
            await _send_queue(visit, sending, queue, (first, end), addresses[queue.broker_name], pause)
        sending.state = "done"
    except (AdminError, ProtocolError) as error:
        sending.state, sending.error = "failed", str(error)
    except asyncio.CancelledError:
        sending.state, sending.error = "failed", "the console has ended"
        raise


async def _send_queue(
    visit: Visit, sending: Task, queue: MessageQueue, span: tuple[int, int], address: str, pause: float
) -> None:
    """Send the letters of a queue back that were not sent, and move the group's place behind them."""
    first, end = span
    begin = await kept_place(visit.admin, address, sending.group, queue)
    offset = min(max(first, begin), end)
    sending.left_out += offset - first
    while offset < end:
        pulled = await pull(visit.admin, address, queue, offset, min(BATCH, end - offset))
        for record in pulled.records:
            if record.queue_offset >= end:
                break
            if _was_sent(visit.console, queue, record, begin):
                sending.left_out += 1
                continue
            await _send_back(visit, queue, record)
            sending.sent += 1
            if sending.sent == sending.most:
                return await store_offset(visit.admin, address, sending.group, queue, record.queue_offset + 1)
            await asyncio.sleep(pause)
        if pulled.next_offset <= offset:
            break
        offset = pulled.next_offset
        await store_offset(visit.admin, address, sending.group, queue, min(offset, end))


async def _send_back(visit: Visit, letters_of: MessageQueue, record: Record) -> None:
    """A copy to the topic that the letter came from."""
    place = _place(letters_of, record)
    topic = record.properties.get(RETRY_TOPIC, "")
    if not topic:
        raise AdminError(f"the dead letter at {place} does not say which topic it came from")
    queue, address = await choose_queue(visit.admin, topic, None, None)
    properties = properties_of_copy(record.properties, place)
    sent = await send(visit.admin, queue, address, body_of(record), properties)
    visit.console.sent_back[letters_of].add(record.queue_offset)
    visit.changed(
        f"dead letter {place} of {record.topic} sent to {topic}",
        "none",
        f"{queue.broker_name}:{sent.queue.queue_id}:{sent.queue_offset}",
    )


def _tasks(console: Console) -> list[Task]:
    return [each for each in console.tasks.values() if isinstance(each, Task)]


async def end_sending(console: Console) -> None:
    """Stop between two letters."""
    tasks = [each.task for each in _tasks(console) if each.task is not None and not each.task.done()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
