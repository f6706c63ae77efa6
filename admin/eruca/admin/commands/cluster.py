"""Commands about clusters: their brokers, and the load of each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

from eruca.admin.command import Job, command
from eruca.admin.errors import AdminError, BadValue
from eruca.admin.posix import Option
from eruca.protocol.bodies import ClusterInfo

_BASE = "%-16s  %-22s  %-4s  %-22s %-16s %19s %19s %10s %5s %6s"
_MORE = "%-16s  %-32s %14s %14s %14s %14s"


@command(
    "clusterList",
    "list clusters and brokers",
    Option("m", "moreStats", "messages of yesterday and today", takes_value=False),
    Option("i", "interval", "repeat every N seconds, until interrupted"),
)
async def cluster_list(job: Job) -> None:
    """106, and 28 at each broker."""
    interval = job.number("i", 1)
    if interval < 1:
        raise BadValue(f"option -i takes seconds, 1 or more, not {interval}")
    while True:
        await _list_once(job)
        if not job.has("i"):
            return
        job.finish()
        await asyncio.sleep(interval)


async def _list_once(job: Job) -> None:
    rows = list(_brokers(await job.admin.clusters()))
    tables = await asyncio.gather(*(_figures(job, address) for *_, address in rows))
    if job.has("m"):
        job.row(
            _MORE, "#Cluster Name", "#Broker Name", "#InTotalYest", "#OutTotalYest", "#InTotalToday", "#OutTotalToday"
        )
        for (cluster, broker, _, _), table in zip(rows, tables, strict=True):
            job.row(_MORE, cluster, broker, *_totals(table))
        return
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
    now = time.time_ns() // 1_000_000
    for (cluster, broker, broker_id, address), table in zip(rows, tables, strict=True):
        job.row(_BASE, cluster, broker, broker_id, address, *_base(table, now))


def _brokers(info: ClusterInfo) -> Iterator[tuple[str, str, int, str]]:
    for cluster, names in info.cluster_addr_table.items():
        for name in sorted(names):
            broker = info.broker_addr_table.get(name)
            for broker_id, address in sorted(broker.broker_addrs.items()) if broker is not None else ():
                yield cluster, name, broker_id, address


async def _figures(job: Job, address: str) -> dict[str, str]:
    try:
        return await job.admin.runtime(address)
    except AdminError as error:
        job.report(f"mqadmin clusterList: {error}")
        return {}


def _base(table: dict[str, str], now: int) -> tuple[str, ...]:
    earliest = table.get("earliestMessageTimeStamp", "")
    hours = (now - int(earliest)) / 3_600_000 if earliest else 0.0
    return (
        table.get("brokerVersionDesc", ""),
        _load(table, "putTps", "send"),
        _load(table, "getTransferedTps", "pull"),
        table.get("pageCacheLockTimeMills", ""),
        f"{hours:2.2f}",
        f"{float(table.get('commitLogDiskRatio') or 0):.4f}",
    )


def _load(table: dict[str, str], rates: str, pool: str) -> str:
    """``     0.00(0,0ms)``: the rate of the last seconds, queue size and wait time."""
    first = table.get(rates, "").split(" ")[0]
    waiting = table.get(f"{pool}ThreadPoolQueueSize", "")
    wait = table.get(f"{pool}ThreadPoolQueueHeadWaitTimeMills", "")
    return f"{float(first or 0):9.2f}({waiting},{wait}ms)"


def _totals(table: dict[str, str]) -> tuple[int, int, int, int]:
    def difference(way: str, later: str, earlier: str) -> int:
        return int(table.get(f"msg{way}Total{later}", 0)) - int(table.get(f"msg{way}Total{earlier}", 0))

    return (
        difference("Put", "TodayMorning", "YesterdayMorning"),
        difference("Get", "TodayMorning", "YesterdayMorning"),
        difference("Put", "TodayNow", "TodayMorning"),
        difference("Get", "TodayNow", "TodayMorning"),
    )
