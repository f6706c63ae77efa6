"""Commands about the progress of consumer groups, and about traffic."""

from __future__ import annotations

from eruca.admin.command import Job, Shown, command
from eruca.admin.posix import Option
from eruca.admin.results import progress as found
from eruca.admin.text import seconds_text, shown


@command(
    "consumerProgress",
    Option("g", "groupName", "name of the consumer group; default: an overview of all", kind="group"),
    Option("s", "showClientIP", "true: show the member that has each queue; default false", kind="boolean"),
    results=(found.GroupProgress, found.Groups),
)
async def consumer_progress(job: Job) -> Shown:
    """208 at each broker of the group; for the overview of all groups 203 too."""
    if not job.has("g"):
        groups = await found.groups_in_short(job.admin)
        return Shown(groups, lambda: _print_groups(job, groups))
    show_owner = job.text("s").lower() == "true"
    result = await found.group_progress(job.admin, job.text("g"), members=show_owner)
    return Shown(result, lambda: _print_progress(job, result, show_owner))


def _print_progress(job: Job, result: found.GroupProgress, show_owner: bool) -> None:
    owner = "  %-20s %-20s" if show_owner else "  %-20s"
    layout = "%-64.64s  %-32.32s  %-4s  %-20s  %-20s" + owner + "  %s"
    extra: tuple[str, ...] = ("#Client IP",) if show_owner else ()
    titles = ("#Topic", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset", *extra, "#Diff", "#LastTime")
    job.row(layout, *titles)
    for each in result.items:
        if show_owner:
            extra = (each.member or "N/A",)
        job.row(
            layout,
            each.topic,
            each.broker,
            each.queue_id,
            each.broker_offset,
            each.consumer_offset,
            *extra,
            each.lag,
            seconds_text(each.last_consumed.ms) if each.last_consumed else "N/A",
        )
    job.line()
    job.line(f"Consume TPS: {result.consume_tps:.2f}")
    job.line(f"Diff Total: {result.lag}")


_OVERVIEW = "%-64.64s  %-6s  %-24s %-5s  %-14s  %-7s  %s"


def _print_groups(job: Job, result: found.Groups) -> None:
    job.row(_OVERVIEW, "#Group", "#Count", "#Version", "#Type", "#Model", "#TPS", "#Diff Total")
    for each in result.items:
        count, version = ("?", "?") if each.members is None else (str(each.members), each.version or "OFFLINE")
        model = shown(each.model) if each.type == "PUSH" else ""
        tps = "?" if each.consume_tps is None else str(int(each.consume_tps))
        job.row(_OVERVIEW, each.group, count, version, each.type or "", model, tps, str(each.lag or "?"))


_STATS = "%-64.64s  %-64.64s %12s %11s %11s %14s %14s"


@command(
    "statsAll",
    Option("a", "activeTopic", "only topics with messages today", takes_value=False),
    Option("t", "topic", "only this topic", kind="topic"),
    results=(found.TrafficOfTopics,),
)
async def stats_all(job: Job) -> Shown:
    """206; 105, 300, 315 and 208 for each topic."""
    result = await found.traffic(job.admin, job.text("t"), active=job.has("a"))

    def apache() -> None:
        titles = ("#Topic", "#Consumer Group", "#Accumulation", "#InTPS", "#OutTPS", "#InMsg24Hour", "#OutMsg24Hour")
        job.row(_STATS, *titles)
        for each in result.items:
            sent, consumed = each.sent, each.consumed
            if consumed is None:
                lag, who = ("0", "NO_CONSUMER") if sent.complete else ("?", "?")
                job.row(_STATS, each.topic, "", lag, sent.rate_text(), "", sent.day_text(), who)
            else:
                figures = (sent.rate_text(), consumed.rate_text(), sent.day_text(), consumed.day_text())
                job.row(_STATS, each.topic, each.group, str(each.lag or "?"), *figures)

    return Shown(result, apache)
