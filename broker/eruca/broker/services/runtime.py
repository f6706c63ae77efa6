"""The runtime information of the broker: the figures in the answer to request 28.

Owns the names and formats of the values (StoreStatsService, DefaultMessageStore and AdminBrokerProcessor in 4.9.7).
Figures of Java's thread pools are 0, with the configured capacities. Pure, except that it reads the usage of the disks.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from eruca.broker.config import BrokerConfig
from eruca.broker.state.statistics import Moment, Statistics
from eruca.broker.store.results import Figures
from eruca.protocol.codes import VERSION, version_name
from eruca.protocol.fastjson import double_text

NO_TRANSIENT_POOL = 2**31 - 1


def moment(figures: Figures, now: int) -> Moment:
    """The totals of the store for a sample of the statistics; ``now`` is in ms of the monotonic clock."""
    return Moment(now, figures.puts, figures.gets_found, figures.gets_missed, figures.gets_messages)


def store_figures(figures: Figures, statistics: Statistics, now: int) -> dict[str, str]:
    """The figures of the store; ``now`` is in ms of the monotonic clock."""
    puts = max(figures.puts, 1)
    return {
        "bootTimestamp": str(statistics.booted),
        "runtime": _runtime(now - statistics.began),
        "putMessageEntireTimeMax": str(statistics.slowest_put),
        "putMessageTimesTotal": str(puts),
        "putMessageFailedTimes": str(figures.put_failed),
        "putMessageSizeTotal": str(figures.put_bytes),
        "putMessageDistributeTime": "".join(f"{name}:{count} " for name, count in statistics.put_times()),
        "putMessageAverageSize": double_text(figures.put_bytes / puts),
        "dispatchMaxBuffer": "0",
        "getMessageEntireTimeMax": str(statistics.slowest_get),
        "putTps": _rates(statistics, lambda each: each.puts),
        "getFoundTps": _rates(statistics, lambda each: each.found),
        "getMissTps": _rates(statistics, lambda each: each.missed),
        "getTotalTps": _rates(statistics, lambda each: each.found + each.missed, missing="0.0"),
        "getTransferedTps": _rates(statistics, lambda each: each.transferred),
        "putLatency99": f"{statistics.put_latency(0.99):.2f}",
        "putLatency999": f"{statistics.put_latency(0.999):.2f}",
        "commitLogMinOffset": str(figures.min_offset),
        "commitLogMaxOffset": str(figures.max_offset),
        "dispatchBehindBytes": str(figures.dispatch_behind_bytes),
        "remainHowManyDataToFlush": byte_text(figures.flush_behind_bytes),
        "damagedRecords": str(figures.damaged_records),
        "skippedCommitLogBytes": str(figures.skipped_bytes),
        **({"storeRefusal": figures.refusal} if figures.refusal else {}),
    }


def day_figures(figures: Figures, statistics: Statistics) -> dict[str, str]:
    """Totals since the start, now and at the last two midnights."""
    return {
        "msgPutTotalYesterdayMorning": str(statistics.put_yesterday),
        "msgPutTotalTodayMorning": str(statistics.put_today),
        "msgPutTotalTodayNow": str(figures.puts),
        "msgGetTotalYesterdayMorning": str(statistics.got_yesterday),
        "msgGetTotalTodayMorning": str(statistics.got_today),
        "msgGetTotalTodayNow": str(figures.gets_messages),
    }


def broker_figures(config: BrokerConfig, waited: int, waiting_sends: int) -> dict[str, str]:
    """Version, capacities, the wait of requests before they are handled (ms), and the number of sends that wait for
    durability. Other requests never queue up.
    """
    figures = {
        "brokerVersionDesc": version_name(VERSION),
        "brokerVersion": str(VERSION),
        "pageCacheLockTimeMills": "0",
        "startAcceptSendRequestTimeStamp": str(config.start_accept_send_request_time_stamp),
        "remainTransientStoreBufferNumbs": str(NO_TRANSIENT_POOL),
        "EndTransactionQueueSize": "0",
        "EndTransactionThreadPoolQueueCapacity": str(config.end_transaction_pool_queue_capacity),
    }
    capacities = {
        "send": config.send_thread_pool_queue_capacity,
        "pull": config.pull_thread_pool_queue_capacity,
        "query": config.query_thread_pool_queue_capacity,
    }
    for kind, capacity in capacities.items():
        figures[f"{kind}ThreadPoolQueueSize"] = str(waiting_sends if kind == "send" else 0)
        figures[f"{kind}ThreadPoolQueueCapacity"] = str(capacity)
        figures[f"{kind}ThreadPoolQueueHeadWaitTimeMills"] = str(waited)
    return figures


def disk_figures(root: Path, commit_log: Path, consume_queue: Path) -> dict[str, str]:
    """The usage of the disks."""
    used = double_text(used_ratio(commit_log))
    figures = {
        "commitLogDiskRatio": used,
        f"commitLogDiskRatio_{commit_log}": used,
        "consumeQueueDiskRatio": double_text(used_ratio(consume_queue)),
    }
    if root.exists():
        disk = shutil.disk_usage(root)
        figures["commitLogDirCapacity"] = f"Total : {byte_text(disk.total)}, Free : {byte_text(disk.free)}."
    return figures


def used_ratio(path: Path) -> float:
    """The used share of the disk of ``path`` (which need not exist), rounded up to a hundredth; -1.0 if unknown."""
    there = next(each for each in (path, *path.absolute().parents) if each.exists())
    disk = shutil.disk_usage(there)
    whole = disk.used + disk.free
    return -(-disk.used * 100 // whole) / 100 if whole else -1.0


def byte_text(size: int) -> str:
    """``312 B``, ``20.1 GiB``: binary units with one decimal."""
    if size < 1024:
        return f"{size} B"
    value, unit = size / 1024, 0
    while value >= 1024:
        value, unit = value / 1024, unit + 1
    return f"{value:.1f} {'KMGTPE'[unit]}iB"


def _runtime(millis: int) -> str:
    seconds = millis // 1000
    return (
        f"[ {seconds // 86_400} days, {seconds // 3600 % 24} hours, {seconds // 60 % 60} minutes, "
        f"{seconds % 60} seconds ]"
    )


def _rates(statistics: Statistics, pick: Callable[[Moment], int], missing: str = "") -> str:
    return " ".join(missing if rate is None else double_text(rate) for rate in statistics.rates(pick))
