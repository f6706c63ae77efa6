"""Commands that carry messages between a cluster and a pipe: print those of a topic, send those of the input; and send
dead letters to their topic again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from itertools import chain

from eruca.admin.client import TIMEOUT, Admin
from eruca.admin.command import Job, Shown, command
from eruca.admin.commands.templates import template
from eruca.admin.errors import AdminError, BadValue, Partial, PeerRefused, Status, TimedOut
from eruca.admin.expressions import sql_condition, tag_expression
from eruca.admin.lookups import kept_place, queues_and_brokers
from eruca.admin.posix import Operand, Option
from eruca.admin.resets.places import place
from eruca.admin.resets.targets import First, Shift
from eruca.admin.results.answer import Answer
from eruca.admin.results.deliveries import Delivered, Delivery, Outgoing, from_json, is_message
from eruca.admin.results.messages import Message, message_of
from eruca.admin.results.stream import Stream, Wish
from eruca.admin.standard_input import lines_of
from eruca.admin.text import counted, point_of_time
from eruca.protocol.codes import ResponseCode
from eruca.protocol.names import KEYS, TAGS, dead_letter_topic
from eruca.protocol.queues import MessageQueue
from eruca.protocol.subscription import ALL, SQL92, TAG
from eruca.remoting.clock import now_ms

_TOPIC = Option("t", "topic", "name of the topic", required=True, kind="topic")
LAST = 10
"""Messages that ``tail`` prints if no other start is given."""


@command(
    "tail",
    Option("", "from", f"first, last, a time, an offset, group:OTHER; default: the last {LAST} messages", kind="place"),
    Option("", "until", "up to this time, which may be to come", kind="time"),
    Option("", "follow", "go on with what comes", takes_value=False),
    Option("c", "count", f"messages at most; without --from the last N, default {LAST}", kind="number", least=1),
    Option("s", "tags", "only these tags: TagA || TagB"),
    Option("", "sql", "only what fits this condition in SQL92, where the brokers allow it"),
    Option("k", "key", "only messages with this key"),
    Option("f", "format", "the form of a message: %t topic, %b broker, %q queue, %o offset, %k keys, %v body, ..."),
    results=(Message,),
    reads=False,
    operand=Operand(_TOPIC),
)
async def tail(job: Job) -> AsyncIterator[Shown]:
    """11 at all queues; stores no offset. Interrupted, it says on standard error how many messages it printed."""
    shown = template(job.text("f") if job.has("f") else "%d %b:%q@%o [%g] [%k] %v\\n")
    stream = Stream(job.admin, await _wish(job), job.say)
    printed = 0
    try:
        async for batch in stream.messages():
            for each in batch:
                result = message_of(each.record, broker=each.broker, body=each.body)
                yield Shown(result, partial(_print, job, shown(each)))
                printed += 1
            job.flush()
    except asyncio.CancelledError:
        job.say(counted(printed, "message"))
        raise
    except Partial as error:
        job.report(error, Status.PARTIAL)


def _print(job: Job, text: str) -> None:
    job.write(text)


async def _wish(job: Job) -> Wish:
    topic, until = job.text("t"), job.maybe("until")
    most = job.number("c") if job.has("c") else None
    if job.has("s") and job.has("sql"):
        raise BadValue("give one of -s and --sql")
    kind = SQL92 if job.has("sql") else TAG
    expression = sql_condition(job.text("sql")) if job.has("sql") else tag_expression(job.text("s", ALL))
    end = None if until is None else point_of_time(until)
    if end is not None and job.has("follow"):
        raise BadValue("give one of --follow and --until")
    start = await place(job.admin, topic, job.text("from")) if job.has("from") else None
    if isinstance(start, Shift):
        raise BadValue(
            f"--from {job.text('from')} counts from where a group stands, and none takes part: -c N is the last N"
        )
    if start is None and end is not None and end <= now_ms():
        start = First()
    if start is None and most is None:
        most = LAST
    return Wish(
        topic=topic,
        expression=expression,
        expression_type=kind,
        key=job.maybe("k"),
        start=start,
        until=end,
        follow=job.has("follow"),
        count=most,
    )


# ------------------------------------------------------------------ sending


@command(
    "send",
    Option("k", "key", "keys of each message, separated by blanks"),
    Option("g", "tag", "the tag of each message"),
    Option("c", "count", "send each message N times; default 1", kind="number", least=1),
    Option("", "rate", "messages a second at most", kind="number", least=1),
    Option(
        "", "json", "each line is a message in JSON; those of 'tail -o jsonl' are known without it", takes_value=False
    ),
    Option("", "lines", "each line is a body, also where it looks like a message of tail", takes_value=False),
    results=(Delivered,),
    reads=False,
    operand=Operand(_TOPIC),
)
async def send_lines(job: Job) -> Shown:
    """310 to the queues of the topic in turn; a copied message goes to the queue of its number."""
    times, rate = job.number("c", 1), job.number("rate")
    if job.has("json") and job.has("lines"):
        raise BadValue("give one of --json and --lines")
    if job.source is None:
        raise AdminError("the standard input is closed: messages are read from there, a line each")
    own = {name: value for name, value in ((KEYS, job.text("k")), (TAGS, job.text("g"))) if value}
    delivery = Delivery(job.admin, job.text("t"), rate or None)
    number, as_json = 0, job.has("json")
    try:
        async for lines in lines_of(job.source):
            if number == 0 and not job.has("lines"):
                as_json = as_json or is_message(lines[0])
            read = [from_json(line, at) if as_json else Outgoing(at, line) for at, line in enumerate(lines, number + 1)]
            read = [
                Outgoing(each.number, each.body, {**each.properties, **own}, each.flag, each.place) for each in read
            ]
            number += len(lines)
            await delivery.send(list(chain.from_iterable([each] * times for each in read)))
    except asyncio.CancelledError:
        job.say(f"{counted(delivery.sent, 'message')} sent")
        raise
    except AdminError as error:
        if not delivery.sent:
            raise
        job.report(f"mqadmin send: {error}", Status.PARTIAL)
    result = delivery.result()
    return Shown(result, lambda: job.line(f"{counted(result.messages, 'message')} sent to {result.topic}"))


# ------------------------------------------------------------------ dead letters


class Moved(Answer, frozen=True, kw_only=True, rename="camel"):
    """Dead letters that were sent again, or would be."""

    group: str
    letters: int
    dry_run: bool


@command(
    "move",
    Option("t", "topic", "only those that were sent to this topic", kind="topic"),
    Option("", "from", "only those that were given up at this time or later", kind="time"),
    Option("", "until", "only those that were given up at this time or earlier", kind="time"),
    Option("", "to", "topic: all groups of the topic get them; retry: only this group", choices=("topic", "retry")),
    Option("", "count", "messages at most; the next call goes on behind them", kind="number", least=1),
    Option("", "rate", "messages a second at most", kind="number", least=1),
    Option("", "dry-run", "count them, and end with 3 (0: there are none)", takes_value=False),
    Option("", "yes", "ask nothing", takes_value=False),
    results=(Moved,),
    reads=False,
    operand=Operand(Option("g", "group", "name of the consumer group", required=True, kind="group")),
)
async def move(job: Job) -> Shown:
    """11 at the queues of %DLQ%GROUP, 310 to the topics; without -t and times 14 and 15, by which it goes on later."""
    from eruca.client import ClientSettings, dead_letters, redrive
    from eruca.client.errors import CallTimeout, ClientError

    group, to = job.text("g"), job.text("to", "topic")
    most = job.number("count") if job.has("count") else None
    begin = point_of_time(job.text("from")) if job.has("from") else 0
    end = point_of_time(job.text("until")) if job.has("until") else 2**63 - 1
    admin: Admin = job.admin
    within = admin.timeout or TIMEOUT
    settings = ClientSettings(
        nameserver=tuple(admin.nameservers),
        credentials=admin.credentials,
        tls=admin.tls,
        connect_timeout=within,
        request_timeout=within,
    )
    letters = 0
    if dead_letter_topic(group) not in await admin.all_topics():
        await admin.route_of_group(group)  # which says what is true of a group that nobody knows
    try:
        if job.has("dry-run"):
            chosen = dead_letters(group, topic=job.maybe("t"), begin=begin, end=end, settings=settings)
            places = {} if any(map(job.has, ("t", "from", "until"))) else await _places(admin, group)
            async for letter in chosen:
                letters += letter.message.queue_offset >= places.get(letter.message.queue, 0)
                if letters == most:
                    break
            job.status = Status.WOULD_CHANGE if letters else Status.DONE
        else:
            if job.agreed(f"Send the dead letters of {group} again?") is False:
                raise AdminError("nothing was sent")
            done = await redrive(
                group,
                to="retry" if to == "retry" else "topic",
                topic=job.maybe("t"),
                begin=begin,
                end=end,
                most=most,
                rate=job.number("rate") or None,
                settings=settings,
            )
            letters = done.sent
    except CallTimeout as error:
        raise TimedOut(str(error)) from None
    except ClientError as error:
        raise AdminError(str(error)) from None
    if not letters and job.has("t") and job.text("t") not in await admin.all_topics():
        await admin.route(job.text("t"))  # which names topics that are like it
    result = Moved(group=group, letters=letters, dry_run=job.has("dry-run"))
    there = "is there" if letters == 1 else "are there"
    whose = "its" if letters == 1 else "their"
    words = there if result.dry_run else f"sent to {whose} {to} again"
    return Shown(result, lambda: job.line(f"{counted(letters, 'dead letter')} {words}"))


async def _places(admin: Admin, group: str) -> dict[MessageQueue, int]:
    """Where the next call goes on in each queue of the letters; nothing where the group never had one."""
    topic = dead_letter_topic(group)
    try:
        queues, addresses = await queues_and_brokers(admin, topic)
    except PeerRefused as refused:
        if refused.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        return {}
    return {queue: await kept_place(admin, addresses[queue.broker_name], group, queue) for queue in queues}
