"""Commands about clusters: their brokers, and the load of each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

from eruca.admin.command import Job, Shown, command
from eruca.admin.posix import Option
from eruca.admin.results import brokers as found

_BASE = "%-16s  %-22s  %-4s  %-22s %-16s %19s %19s %10s %5s %6s"
_MORE = "%-16s  %-32s %14s %14s %14s %14s"


@command(
    "clusterList",
    Option("m", "moreStats", "messages of yesterday and today", takes_value=False),
    Option("i", "interval", "repeat every N seconds, until interrupted", kind="number", least=1),
    results=(found.Brokers,),
    reads=True,
)
async def cluster_list(job: Job) -> AsyncIterator[Shown]:
    """106, and 28 at each broker."""
    interval = job.number("i", 1)
    show = _print_totals if job.has("m") else _print_load
    while True:
        result = await found.brokers(job.admin)
        yield Shown(result, partial(show, job, result))
        if not job.has("i"):
            return
        job.finish()
        await asyncio.sleep(interval)


def _print_totals(job: Job, result: found.Brokers) -> None:
    titles = ("#Cluster Name", "#Broker Name", "#InTotalYest", "#OutTotalYest", "#InTotalToday", "#OutTotalToday")
    job.row(_MORE, *titles)
    for each in result.items:
        yesterday = _or_unknown(each.received_yesterday), _or_unknown(each.delivered_yesterday)
        today = _or_unknown(each.received_today), _or_unknown(each.delivered_today)
        job.row(_MORE, each.cluster, each.broker, *yesterday, *today)


def _print_load(job: Job, result: found.Brokers) -> None:
    job.row(
        _BASE,
        "#Cluster Name",
        "#Broker Name",
        "#BID",
        "#Addr",
        "#Version",
        "#InTPS(LOAD)",
        "#OutTPS(LOAD)",
        "#PCWait(ms)",
        "#Hour",
        "#SPACE",
    )
    for each in result.items:
        place = each.cluster, each.broker, each.broker_id, each.address
        if each.sends is None or each.pulls is None or each.disk_used is None:
            job.row(_BASE, *place, *"??????")
            continue
        age = result.at.ms - each.oldest_message.ms if each.oldest_message else 0
        load = _load(each.sends), _load(each.pulls), _or_nothing(each.page_cache_lock_ms)
        job.row(_BASE, *place, each.version, *load, f"{age / 3_600_000:2.2f}", f"{each.disk_used:.4f}")


def _load(pool: found.Pool) -> str:
    """``     0.00(0,0ms)``: the rate of the last seconds, queue size and wait time."""
    return f"{pool.per_second:9.2f}({_or_nothing(pool.waiting)},{_or_nothing(pool.longest_wait_ms)}ms)"


def _or_nothing(figure: int | None) -> str:
    return "" if figure is None else str(figure)


def _or_unknown(figure: int | None) -> str:
    return "?" if figure is None else str(figure)
