"""Commands about the progress of consumer groups, and about traffic."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from eruca.admin.client import Admin
from eruca.admin.command import Job, command
from eruca.admin.errors import AdminError, NotFound, PeerRefused, Status
from eruca.admin.lookups import ask_each, groups_of, members_of, progress, running_info
from eruca.admin.posix import Option
from eruca.admin.text import seconds_text, shown
from eruca.protocol import api
from eruca.protocol.bodies import BrokerStatsData
from eruca.protocol.codes import version_name
from eruca.protocol.headers import topics
from eruca.protocol.names import RETRY_PREFIX, is_dead_letter_topic, is_retry_topic
from eruca.protocol.queues import MessageQueue


@command(
    "consumerProgress",
    "show the offsets and the lag of consumer groups",
    Option("g", "groupName", "name of the consumer group; default: an overview of all"),
    Option("s", "showClientIP", "true: show the member that has each queue; default false"),
)
async def consumer_progress(job: Job) -> None:
    """208 at each broker of the group; for the overview of all groups 203 too."""
    if job.has("g"):
        await _progress_of(job, job.text("g"), job.text("s").lower() == "true")
    else:
        await _progress_of_all(job)


async def _progress_of(job: Job, group: str, show_owner: bool) -> None:
    found = await progress(job.admin, group)
    stats = found.stats
    owners, silent = await _owners(job.admin, group) if show_owner else ({}, {})
    owner = "  %-20s %-20s" if show_owner else "  %-20s"
    layout = "%-64.64s  %-32.32s  %-4s  %-20s  %-20s" + owner + "  %s"
    extra: tuple[str, ...] = ("#Client IP",) if show_owner else ()
    titles = ("#Topic", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset", *extra, "#Diff", "#LastTime")
    job.row(layout, *titles)
    for queue, offset in sorted(stats.offset_table.items()):
        if show_owner:
            extra = (owners.get(queue, "N/A"),)
        job.row(
            layout,
            queue.topic,
            queue.broker_name,
            queue.queue_id,
            offset.broker_offset,
            offset.consumer_offset,
            *extra,
            offset.lag(),
            seconds_text(offset.last_timestamp) if offset.last_timestamp else "N/A",
        )
    job.line()
    job.line(f"Consume TPS: {stats.consume_tps:.2f}")
    job.line(f"Diff Total: {found.lag_text()}")
    job.missing(found.errors, "its queues are missing")
    job.missing(silent, "its queues are shown without their member")


async def _owners(admin: Admin, group: str) -> tuple[dict[MessageQueue, str], dict[str, AdminError]]:
    """The address of the member that owns each queue, and the members that do not answer."""
    try:
        members = await members_of(admin, group)
    except PeerRefused:
        return {}, {}  # no member is online
    ids = [member.client_id for member in members.connection_set]
    asked = await ask_each({each: running_info(admin, group, each, False) for each in ids})
    owners = {queue: each.split("@")[0] for each, info in asked.answers.items() for queue in info.mq_table}
    return owners, asked.errors


_OVERVIEW = "%-64.64s  %-6s  %-24s %-5s  %-14s  %-7s  %s"


async def _progress_of_all(job: Job) -> None:
    job.row(_OVERVIEW, "#Group", "#Count", "#Version", "#Type", "#Model", "#TPS", "#Diff Total")
    groups = [topic.removeprefix(RETRY_PREFIX) for topic in await job.admin.all_topics() if is_retry_topic(topic)]
    silent: dict[str, AdminError] = {}
    for row, errors in await asyncio.gather(*(_summary(job.admin, group) for group in groups)):
        job.row(_OVERVIEW, *row)
        silent |= errors
    job.missing(silent, "a lag with '?' lacks its queues")


async def _summary(admin: Admin, group: str) -> tuple[tuple[object, ...], dict[str, AdminError]]:
    """A row of the overview, and the brokers that did not answer for it. What is not known is '?', never 0."""
    tps, lag, count, version, kind, model = "0", "0", "0", "OFFLINE", "", ""
    errors: dict[str, AdminError] = {}
    try:
        found = await progress(admin, group)
        tps, lag, errors = str(int(found.stats.consume_tps)), found.lag_text(), dict(found.errors)
    except NotFound:
        pass  # it has consumed nothing: printed as 0
    except AdminError as error:
        tps = lag = "?"
        errors[f"group {group}"] = error
    try:
        members = await members_of(admin, group)
        count = str(len(members.connection_set))
        version = version_name(min(each.version for each in members.connection_set))
        kind = "PULL" if members.consume_type == "CONSUME_ACTIVELY" else "PUSH"
        model = shown(members.message_model) if kind == "PUSH" else ""
    except PeerRefused:
        pass  # no member is online: printed as OFFLINE
    except AdminError as error:
        count, version = "?", "?"
        errors[f"group {group}"] = error
    return (group, count, version, kind, model, tps, lag), errors


# ------------------------------------------------------------------ statistics

_STATS = "%-64.64s  %-64.64s %12s %11s %11s %14s %14s"


@command(
    "statsAll",
    "show traffic and lag of topics and their groups",
    Option("a", "activeTopic", "only topics with messages today", takes_value=False),
    Option("t", "topic", "only this topic"),
)
async def stats_all(job: Job) -> None:
    """206; 105, 300, 315 and 208 for each topic."""
    titles = ("#Topic", "#Consumer Group", "#Accumulation", "#InTPS", "#OutTPS", "#InMsg24Hour", "#OutMsg24Hour")
    job.row(_STATS, *titles)
    wanted = [
        topic
        for topic in await job.admin.all_topics()
        if not (is_retry_topic(topic) or is_dead_letter_topic(topic)) and job.text("t") in ("", topic)
    ]
    if job.has("t") and not wanted:
        raise NotFound(f"the nameserver knows no topic {job.text('t')}")
    asked = await ask_each({topic: _traffic_of(job, topic) for topic in wanted})
    for topic in wanted:
        rows, errors = asked.answers.get(topic, ([], {}))
        for row in rows:
            job.row(_STATS, *row)
        for name, error in errors.items():
            job.report(f"{name}: {error}: figures of topic {topic} with '?' lack it", Status.PARTIAL)
        if topic in asked.errors:
            job.report(f"mqadmin statsAll: topic {topic}: {asked.errors[topic]}", Status.PARTIAL)


Row = tuple[object, ...]


async def _traffic_of(job: Job, topic: str) -> tuple[list[Row], dict[str, AdminError]]:
    """The rows of a topic, and the brokers that did not answer for them."""
    route = await job.admin.route(topic)
    masters = {broker.broker_name: address for broker in route.broker_datas if (address := broker.master())}
    groups = await groups_of(job.admin, route, topic)
    came = await _traffic(job.admin, masters, "TOPIC_PUT_NUMS", topic)
    errors = dict(came.errors)
    rows: list[Row] = []
    if not groups and (came.day or came.errors or not job.has("a")):
        rows.append((topic, "", 0, came.rate_text(), "", came.day_text(), "NO_CONSUMER"))
    for group in groups:
        went = await _traffic(job.admin, masters, "GROUP_GET_NUMS", f"{topic}@{group}")
        errors |= went.errors
        if came.day or went.day or errors or not job.has("a"):
            lag, silent = await _lag(job.admin, group, topic)
            errors |= silent
            rates = (came.rate_text(), went.rate_text(), came.day_text(), went.day_text())
            rows.append((topic, group, lag, *rates))
    return rows, errors


async def _lag(admin: Admin, group: str, topic: str) -> tuple[str, dict[str, AdminError]]:
    try:
        found = await progress(admin, group, topic)
    except (NotFound, PeerRefused):
        return "0", {}  # it has consumed nothing
    except AdminError as error:
        return "?", {f"group {group}": error}
    return found.lag_text() if found.errors else str(max(0, found.stats.lag())), found.errors


@dataclass(frozen=True, slots=True)
class _Traffic:
    """Messages per second over the last minute and messages of the last day, over all brokers that answered."""

    rate: float
    day: int
    errors: dict[str, AdminError]

    def rate_text(self) -> str:
        return f">= {self.rate:.2f} ?" if self.errors else f"{self.rate:.2f}"

    def day_text(self) -> str:
        return f">= {self.day} ?" if self.errors else str(self.day)


async def _traffic(admin: Admin, masters: dict[str, str], name: str, key: str) -> _Traffic:
    asked = await ask_each({broker: _traffic_at(admin, at, name, key) for broker, at in masters.items()})
    found = list(asked.answers.values())
    return _Traffic(sum(rate for rate, _ in found), sum(day for _, day in found), asked.errors)


async def _traffic_at(admin: Admin, address: str, name: str, key: str) -> tuple[float, int]:
    try:
        request = topics.BrokerStatsOf(stats_name=name, stats_key=key)
        stats = BrokerStatsData.decode((await admin.call(address, api.VIEW_BROKER_STATS_DATA, request)).body)
    except PeerRefused:
        return 0.0, 0  # nothing counted there yet
    return stats.stats_minute.tps, stats.stats_day.sum or stats.stats_hour.sum or stats.stats_minute.sum
