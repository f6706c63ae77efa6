"""Commands that move consumer groups: to a time, to the end, to an offset, to the offsets of another group.

Owns options and columns; `resets` is what they do.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial

from eruca.admin.command import TOPIC, Job, Shown, command
from eruca.admin.errors import AdminError, BadValue, NotFound, Partial, Status
from eruca.admin.lookups import END, ask_each, consume_stats, masters_in, store_offset
from eruca.admin.posix import INT64, Operand, Option
from eruca.admin.resets import ways_back
from eruca.admin.resets.acts import Done
from eruca.admin.resets.choices import NEW_GROUP, SWITCHES, options
from eruca.admin.resets.engine import Reset, check_left_out, of_several, performed, prepare_all, untouched
from eruca.admin.resets.places import checked_time, is_file, place, queues
from eruca.admin.resets.plan import Options, check, restarted, settles_in
from eruca.admin.resets.survey import BrokerSeen, look
from eruca.admin.resets.targets import Exact, Nearest, Only, Table, Target
from eruca.admin.results.answer import indented
from eruca.admin.results.moves import QueueMove, StoredCopy, moves
from eruca.admin.results.stored_offsets import OffsetsOfGroup, stored_offsets, topics_with_offsets
from eruca.admin.text import counted, millis_text, point_of_time, shown, zoned
from eruca.protocol.names import retry_topic
from eruca.protocol.queues import MessageQueue

GROUP = Option("g", "group", "name of the consumer group", required=True, kind="group")
FORCE = Option("f", "force", "false: move only back; default true", kind="boolean")
SAFETY = (
    Option("", "dry-run", "print what would be done, and end with 3 (0: nothing would change)", takes_value=False),
    Option("", "wait", "seconds to look whether the members moved; default 15, 0: do not look", kind="number"),
    *SWITCHES,
    Option("", "with-retries", "reset the messages that wait for another try too", takes_value=False),
    Option("", "yes", "ask nothing", takes_value=False),
)

_RESET = "%-40.32s  %-40s  %-40s"
_ROLLBACK = "%-20.32s  %-20s  %-20s  %-20s  %-20s  %-20s"
_PLAN = "%-11s  %-8s  %-10s  %-10s  %-13s  %-13s  %-23s  %-6s  %-8s  %s"
_WAIT = 15
_SECONDS = re.compile(r"\d{10}")


@command(
    "resetOffsetByTime",
    GROUP,
    TOPIC,
    Option(
        "s",
        "timestamp",
        "ms since 1970, yyyy-MM-dd#HH:mm:ss:SSS or another form of time, or now for the end",
        required=True,
        kind="time",
    ),
    FORCE,
    Option("c", "cplus", "for groups with members in C++", takes_value=False),
    Option("b", "broker", "of 5.x: only queue -q at this broker, as host:port", added=True, kind="address"),
    Option("q", "queue", "of 5.x: the queue", added=True, kind="number"),
    Option("o", "offset", "of 5.x: its new offset", added=True, kind="number", most=INT64),
    *SAFETY,
    results=(QueueMove,),
)
async def reset_by_time(job: Job) -> AsyncIterator[Shown]:
    """222 at each broker of the topic; where nobody consumes, 15 for each queue."""
    text = job.text("s")
    timestamp = END if text == "now" else _timestamp(job, text)
    group, topic = job.text("g"), job.text("t")
    target: Target = Nearest(timestamp, "the end" if timestamp == END else zoned(timestamp))
    if job.has("b") or job.has("q"):
        async for each in _reset_one_queue(job, target, f"timestamp(string)[{text}], timestamp(long)[{timestamp}]"):
            yield each
        return
    what = (
        f"[{group}], topic[{topic}], force[{shown(job.truth('f', True))}], "
        f"timestamp(string)[{text}], timestamp(long)[{timestamp}]"
    )
    online = f"rollback consumer offset by specified group{what}"
    offline = f"rollback consumer offset by specified consumerGroup{what}"
    async for each in _reset(job, group, {topic: target}, online, offline):
        yield each


@command(
    "skipAccumulatedMessage",
    GROUP,
    TOPIC,
    FORCE,
    *SAFETY,
    results=(QueueMove,),
)
async def skip_accumulated(job: Job) -> AsyncIterator[Shown]:
    """As resetOffsetByTime to the end."""
    async for each in _reset(job, job.text("g"), {job.text("t"): Nearest(END, "the end")}, None, None):
        yield each


@command(
    "resetOffset",
    GROUP,
    Option("t", "topic", "the topic, or several with commas", kind="topic"),
    Option("", "all-topics", "all topics in which the group has an offset", takes_value=False),
    Option(
        "",
        "to",
        "first, last, a time, an offset (such as 4100), +N or -N messages, group:OTHER; or a file",
        kind="place",
    ),
    Option(
        "",
        "from-file",
        "the offsets of a file: of a reset before (the way back), or lines 'topic broker:queue offset'",
        kind="file",
    ),
    Option("", "queue", "only these queues, as broker:queue,broker:queue"),
    FORCE,
    *SAFETY,
    results=(QueueMove,),
)
async def reset_offset(job: Job) -> AsyncIterator[Shown]:
    """As resetOffsetByTime; a time means the first message at or after it."""
    if job.has("to") == job.has("from-file"):
        raise BadValue("give one of --to and --from-file")
    path = job.maybe("from-file") or (job.text("to") if is_file(job.text("to")) else None)
    table: dict[MessageQueue, int] = {}
    if path is not None:
        _, table = _offsets_in(path, job.text("g"))
    places: dict[str, Target] = {}
    for topic in await _topics(job, table):
        target = await place(job.admin, topic, job.text("to")) if path is None else Table(table, path)
        places[topic] = Only(target, queues(job.text("queue"))) if job.has("queue") else target
    async for each in _reset(job, job.text("g"), places, None, None):
        yield each


def _offsets_in(path: str, group: str) -> tuple[str, dict[MessageQueue, int]]:
    """The group and the offsets of a file; the group may be given, and must be if the file does not say it."""
    named, table = ways_back.read(path)
    if named is not None and group not in ("", named):
        raise BadValue(f"{path} has the offsets of group {named}, not of {group}")
    if not (named or group):
        raise BadValue(f"{path} names no consumer group: give it with -g")
    return group or str(named), table


_EXPORT, _IMPORT = "export", "import"


@command(
    "offsets",
    Option("g", "group", "the consumer group; for import: that of the file", kind="group"),
    Option("c", "clusterName", "for export: the cluster; default: the only one", kind="cluster"),
    Option("", "file", "for import: the file", kind="file"),
    *SAFETY,
    results=(OffsetsOfGroup, QueueMove),
    operand=Operand(Option("", "what", "export or import", required=True, choices=(_EXPORT, _IMPORT))),
)
async def offsets(job: Job) -> AsyncIterator[Shown]:
    """43 at each master, as JSON if no other form is asked for; import: as resetOffset."""
    if job.text("what") == _EXPORT:
        if not job.has("g"):
            raise BadValue("give the consumer group with -g")
        found = await stored_offsets(job.admin, await masters_in(job.admin, job.maybe("c")), job.text("g"))
        yield Shown(found, lambda: job.line(indented(found)))
        return
    if not job.has("file"):
        raise BadValue("give the file with --file")
    group, table = _offsets_in(job.text("file"), job.text("g"))
    places = {topic: Table(table, job.text("file")) for topic in sorted({queue.topic for queue in table})}
    async for each in _reset(job, group, places, None, None):
        yield each


async def _topics(job: Job, table: dict[MessageQueue, int]) -> Sequence[str]:
    named = [each.strip() for each in job.text("t").split(",") if each.strip()]
    if job.has("all-topics"):
        if named or table:
            raise BadValue("give one of -t, --all-topics and a file, which names its topics")
        return await topics_with_offsets(job.admin, job.text("g"))
    in_file = {queue.topic for queue in table}
    if table and (lacking := [each for each in named if each not in in_file]):
        raise NotFound(f"nothing was moved: the file has no offset of {', '.join(lacking)}")
    topics = named or sorted(in_file)
    if not topics:
        raise BadValue("give a topic with -t, or --all-topics")
    return topics


def _timestamp(job: Job, text: str) -> int:
    """A time, unless it is not meant so."""
    time = checked_time(point_of_time(text), text)
    if _SECONDS.fullmatch(text):
        agreed = job.agreed(f"{text} are seconds? As ms, they are {zoned(time)}, before every message. Go on with ms?")
        if agreed is None:
            raise BadValue(
                f"{text} has 10 digits, as seconds since 1970 have; give ms ({text}000), or --yes to mean ms"
            )
        if not agreed:
            raise AdminError("nothing was moved")
    return time


async def _reset_one_queue(job: Job, target: Target, when: str) -> AsyncIterator[Shown]:
    """``-b -q [-o]`` of RocketMQ 5's mqadmin."""
    if not (job.has("b") and job.has("q")):
        raise BadValue("-b and -q are given together: one queue of one broker")
    broker = await job.admin.broker_name_at(job.text("b"))
    if job.has("o"):
        target = Exact(job.number("o"))
    only = Only(target, frozenset({(broker, job.number("q"))}))
    title = (
        f"start reset consumer offset by specified, group[{job.text('g')}], topic[{job.text('t')}], "
        f"queueId[{job.text('q')}], broker[{job.text('b')}], {when}"
    )
    [reset] = await prepare_all(job.admin, job.text("g"), {job.text("t"): only}, _options(job))
    if job.has("dry-run"):
        for each in _planned(job, reset):
            yield each
        return
    await _explain(job, reset)
    async with performed(reset, job.environment, job.say, job.number("wait", _WAIT)) as done:
        text = title + "".join(f"\nreset consumer offset to {offset}" for offset in done.offsets.values())
        for each in _shown(reset, done, partial(job.line, text)):
            yield each
    check_left_out([reset])


async def _reset(
    job: Job, group: str, places: Mapping[str, Target], online_title: str | None, offline_title: str | None
) -> AsyncIterator[Shown]:
    """Reset topics to their places, and the retry topic too if that was asked for: none moves before all were seen."""
    resets = await prepare_all(job.admin, group, places, _options(job), with_retries=job.has("with-retries"))
    for number, reset in enumerate(resets):
        titles = (None, None) if number else (online_title, offline_title)
        try:
            async for each in _performed(job, reset, *titles):
                yield each
        except AdminError as error:
            raise of_several(resets, number, error) from None
    if not job.has("dry-run"):
        check_left_out(resets)


async def _performed(
    job: Job, reset: Reset, online_title: str | None, offline_title: str | None
) -> AsyncIterator[Shown]:
    if job.has("dry-run"):
        for each in _planned(job, reset):
            yield each
        return
    await _explain(job, reset)
    async with performed(reset, job.environment, job.say, job.number("wait", _WAIT)) as done:
        for each in _shown(reset, done, partial(_print, job, reset, done, online_title, offline_title)):
            yield each


def _shown(reset: Reset, done: Done | None, apache: Callable[[], None]) -> Iterator[Shown]:
    yield Shown(None, apache)
    for move in moves(reset, done):
        yield Shown(move, lambda: None)


def _planned(job: Job, reset: Reset) -> Iterator[Shown]:
    """What a dry run shows, and its exit status."""
    if reset.changes:
        job.status = Status.WOULD_CHANGE
    yield from _shown(reset, None, partial(_print_plan, job, reset))


def _options(job: Job) -> Options:
    given = {switch.name for switch in SWITCHES if job.has(switch.key)}
    return options(given, force=job.truth("f", True))


async def _explain(job: Job, reset: Reset) -> None:
    """Say what a reset means, before it is done."""
    for line in reset.meaning():
        job.say(line)
    group = reset.survey.group
    if not job.has("with-retries") and (waiting := await untouched(job.admin, group)):
        job.say(
            f"not touched: {counted(waiting, 'message')} in {retry_topic(group)}, and delayed ones (see --with-retries)"
        )


def _print(job: Job, reset: Reset, done: Done, online_title: str | None, offline_title: str | None) -> None:
    """The table of Apache's mqadmin: three columns if members were notified, else six."""
    title = online_title if reset.plan.online else offline_title
    if title is not None and done.offsets:
        job.line(title)
    if reset.plan.online:
        job.row(_RESET, "#brokerName", "#queueId", "#offset")
        for queue, offset in sorted(done.offsets.items()):
            job.row(_RESET, queue.broker_name, queue.queue_id, offset)
        return
    titles = ("#brokerName", "#queueId", "#brokerOffset", "#consumerOffset", "#timestampOffset", "#rollbackOffset")
    job.row(_ROLLBACK, *titles)
    for move in reset.plan.moves:
        queue = move.seen.queue
        if queue in done.offsets:
            job.row(_ROLLBACK, queue.broker_name, queue.queue_id, move.seen.end, move.start, move.target, move.new)


def _print_plan(job: Job, reset: Reset) -> None:
    job.line(reset.headline())
    titles = ("#minOffset", "#maxOffset", "#storedOffset", "#targetOffset", "#messageThere", "#again", "#skipped")
    job.row(_PLAN, "#brokerName", "#queueId", *titles, "#member")
    owners = reset.owners
    for move in reset.plan.moves:
        seen, queue = move.seen, move.seen.queue
        at = reset.times.get(queue)
        row = (
            seen.first,
            seen.end,
            "-" if seen.stored is None else seen.stored,
            move.new,
            "-" if at is None else millis_text(at),
            move.again,
            move.skipped,
        )
        job.row(_PLAN, queue.broker_name, queue.queue_id, *row, owners.get(queue, "-"))
    again, skipped, fresh = reset.counts
    counts = f"again {again}, skipped {skipped}, queues without an offset {fresh}"
    job.line("; ".join((counts, *reset.remarks())))


@command(
    "cloneGroupOffset",
    Option("s", "srcGroup", "the group to copy from", required=True, kind="group"),
    Option("d", "destGroup", "the group to copy to", required=True, kind="group"),
    Option(
        "t",
        "topic",
        "the topic that names the brokers; all topics of the group are copied",
        required=True,
        kind="topic",
    ),
    Option("o", "offline", "accepted without effect, as by Apache's"),
    NEW_GROUP,
    results=(StoredCopy,),
)
async def clone_group_offset(job: Job) -> AsyncIterator[Shown]:
    """208 of the one group, then 15 for each queue of the other, unless members of it would undo that."""
    source, target, topic = job.text("s"), job.text("d"), job.text("t")
    stats = await consume_stats(job.admin, source)
    survey = await look(job.admin, target, topic)
    check(survey, Options(new_group=job.has("new-group")))
    if wait := settles_in(survey):
        raise AdminError(f"nothing was copied, since {restarted(survey)}; try again in {wait:.0f} s")
    copied = {queue.topic for queue in stats.offset_table}
    consumed = sorted({each for broker in survey.brokers for each in copied if broker.subscribes(each)})
    if consumed:
        raise AdminError(
            f"nothing was copied: {', '.join(sorted(survey.members))} of {target} consume {', '.join(consumed)} and "
            f"would overwrite the offsets; stop them, or move them as well: mqadmin resetOffset -g {target} "
            f"-t {consumed[0]} --to group:{source}"
        )
    wanted = {queue: each.consumer_offset for queue, each in stats.offset_table.items() if each.consumer_offset >= 0}
    done: list[MessageQueue] = []

    async def copy_at(broker: BrokerSeen) -> None:
        for queue, offset in sorted(wanted.items()):
            if queue.broker_name == broker.name:
                await store_offset(job.admin, broker.address, target, queue, offset)
                done.append(queue)

    asked = await ask_each({broker.name: copy_at(broker) for broker in survey.brokers})
    for queue in sorted(done):
        copy = StoredCopy(
            group=target,
            topic=queue.topic,
            broker=queue.broker_name,
            queue_id=queue.queue_id,
            offset=wanted[queue],
        )
        yield Shown(copy, lambda: None)
    if asked.errors:
        reasons = "; ".join(f"{name}: {error}" for name, error in sorted(asked.errors.items()))
        if not done:
            raise AdminError(f"nothing is known to have been copied: {reasons}")
        raise Partial(f"only {len(done)} of {counted(len(wanted), 'offset')} were copied, the others not: {reasons}")
    elsewhere = sorted({queue.broker_name for queue in wanted} - {broker.name for broker in survey.brokers})
    if elsewhere:
        job.say(f"not copied: the offsets at {', '.join(elsewhere)}, which {topic} is not on")
    text = f"clone group offset success. srcGroup[{source}], destGroup=[{target}], topic[{topic}]"
    yield Shown(None, partial(job.write, text))
