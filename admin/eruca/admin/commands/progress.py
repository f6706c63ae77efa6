"""Commands about the progress of consumer groups, and about traffic."""

from __future__ import annotations

import asyncio

from eruca.admin.client import Admin
from eruca.admin.command import Job, command
from eruca.admin.errors import AdminError, PeerRefused
from eruca.admin.lookups import consume_stats, groups_of, members_of, running_info
from eruca.admin.posix import Option
from eruca.admin.text import seconds_text, shown
from eruca.protocol import api
from eruca.protocol.bodies import BrokerStatsData
from eruca.protocol.codes import version_name
from eruca.protocol.errors import ProtocolError
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
    stats = await consume_stats(job.admin, group)
    owners = await _owners(job.admin, group) if show_owner else {}
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
    job.line(f"Diff Total: {stats.lag()}")


async def _owners(admin: Admin, group: str) -> dict[MessageQueue, str]:
    """The address of the member that owns each queue; empty when no member is online."""
    try:
        members = await members_of(admin, group)
        owners: dict[MessageQueue, str] = {}
        for member in members.connection_set:
            info = await running_info(admin, group, member.client_id, False)
            owners |= dict.fromkeys(info.mq_table, member.client_id.split("@")[0])
        return owners
    except (AdminError, ProtocolError):
        return {}


_OVERVIEW = "%-64.64s  %-6s  %-24s %-5s  %-14s  %-7s  %s"


async def _progress_of_all(job: Job) -> None:
    job.row(_OVERVIEW, "#Group", "#Count", "#Version", "#Type", "#Model", "#TPS", "#Diff Total")
    groups = [topic.removeprefix(RETRY_PREFIX) for topic in await job.admin.all_topics() if is_retry_topic(topic)]
    for row in await asyncio.gather(*(_summary(job.admin, group) for group in groups)):
        job.row(_OVERVIEW, *row)


async def _summary(admin: Admin, group: str) -> tuple[object, ...]:
    tps, lag, count, version, kind, model = 0, 0, 0, "OFFLINE", "", ""
    try:
        stats = await consume_stats(admin, group)
        tps, lag = int(stats.consume_tps), stats.lag()
    except AdminError:
        pass  # it has consumed nothing: printed as 0
    try:
        members = await members_of(admin, group)
        count = len(members.connection_set)
        version = version_name(min(each.version for each in members.connection_set))
        kind = "PULL" if members.consume_type == "CONSUME_ACTIVELY" else "PUSH"
        model = shown(members.message_model) if kind == "PUSH" else ""
    except AdminError:
        pass  # no member is online: printed as OFFLINE
    return group, count, version, kind, model, tps, lag


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
    for topic in await job.admin.all_topics():
        if is_retry_topic(topic) or is_dead_letter_topic(topic) or job.text("t") not in ("", topic):
            continue
        try:
            await _print_traffic(job, topic)
        except AdminError as error:
            job.report(f"mqadmin statsAll: topic {topic}: {error}")


async def _print_traffic(job: Job, topic: str) -> None:
    route = await job.admin.route(topic)
    masters = [address for broker in route.broker_datas if (address := broker.master())]
    groups = await groups_of(job.admin, route, topic)
    in_rate, in_day = await _traffic(job.admin, masters, "TOPIC_PUT_NUMS", topic)
    if not groups and (in_day or not job.has("a")):
        job.row(_STATS, topic, "", 0, f"{in_rate:.2f}", "", in_day, "NO_CONSUMER")
    for group in groups:
        out_rate, out_day = await _traffic(job.admin, masters, "GROUP_GET_NUMS", f"{topic}@{group}")
        if in_day or out_day or not job.has("a"):
            lag = await _lag_or_nothing(job.admin, group, topic)
            rates = (f"{in_rate:.2f}", f"{out_rate:.2f}", in_day, out_day)
            job.row(_STATS, topic, group, lag, *rates)


async def _lag_or_nothing(admin: Admin, group: str, topic: str) -> int:
    try:
        return max(0, (await consume_stats(admin, group, topic)).lag())
    except AdminError:
        return 0


async def _traffic(admin: Admin, masters: list[str], name: str, key: str) -> tuple[float, int]:
    """Messages per second over the last minute and messages of the last day, summed over all brokers."""
    rate, day = 0.0, 0
    for master in masters:
        try:
            request = topics.BrokerStatsOf(stats_name=name, stats_key=key)
            stats = BrokerStatsData.decode((await admin.call(master, api.VIEW_BROKER_STATS_DATA, request)).body)
        except PeerRefused:
            continue  # nothing counted there yet
        rate += stats.stats_minute.tps
        day += stats.stats_day.sum or stats.stats_hour.sum or stats.stats_minute.sum
    return rate, day
