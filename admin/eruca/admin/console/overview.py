"""The first page: is the cluster well?

Owns the sum of what the watch has seen. Asks nobody.
"""

from __future__ import annotations

from eruca.admin.console.visit import Visit, page
from eruca.admin.console.watch import Point, Watch, total_lag, worst
from eruca.admin.diagnosis.findings import Finding, in_short
from eruca.admin.results.answer import Answer, Moment, PeerError, Result
from eruca.admin.results.brokers import BrokerLoad
from eruca.admin.results.progress import GroupSummary, Lag

WORST = 5
"""Groups on the page."""
STALE = 4.0
"""Seconds from which on what is shown is marked as old."""


OLD_FINDINGS = 60.0
"""The same for findings, for which the console looks less often."""


class Freshness(Result, frozen=True, kw_only=True, rename="camel"):
    """How old a part of a page is."""

    age: float | None
    """Seconds; None where there was no answer yet."""
    stale: bool
    trouble: str
    """Why there is nothing newer."""


class SlaveDistance(Result, frozen=True, kw_only=True, rename="camel"):
    """How far a slave is behind its master."""

    broker: str
    broker_id: int
    address: str
    behind_bytes: int | None
    """None where one of the two did not answer."""


class Trend(Result, frozen=True, kw_only=True, rename="camel"):
    """A group, and where its lag goes."""

    group: GroupSummary
    growth: float | None
    """Messages per second in the last minute; negative where the group catches up."""
    seconds_to_zero: float | None
    """At this rate; None where it does not catch up, or nobody knows."""


class Overview(Answer, frozen=True, kw_only=True, rename="camel"):
    """The state of the cluster."""

    at: Moment | None
    """When the brokers were asked."""
    brokers_seen: Freshness
    groups_seen: Freshness
    brokers_up: int | None
    brokers_expected: int | None
    """Those of the nameservers, and those that were there since the console started."""
    received: float | None
    """Messages per second, at all masters."""
    delivered: float | None
    lag: Lag | None
    worst: list[Trend]
    brokers: list[BrokerLoad]
    slaves: list[SlaveDistance]
    points: list[Point]
    findings: list[Finding] | None
    """What the doctor found; None before it has looked."""
    findings_seen: Freshness


@page("/", "overview.html")
async def overview(visit: Visit) -> Overview:
    """What the watch has seen."""
    watch = visit.console.watch
    await watch.seen()
    brokers, groups = watch.brokers.answer, watch.groups.answer
    items = brokers.items if brokers else []
    errors: list[PeerError] = [*watch.gone(), *(brokers.errors if brokers else []), *(groups.errors if groups else [])]
    last = watch.points[-1] if watch.points and not watch.brokers.trouble else None
    return Overview(
        at=brokers.at if brokers else None,
        brokers_seen=freshness(watch.brokers.age, watch.brokers.trouble),
        groups_seen=freshness(watch.groups.age, watch.groups.trouble),
        brokers_up=sum(each.version is not None for each in items) if brokers else None,
        brokers_expected=len(watch.expected) if brokers else None,
        received=last.received if last else None,
        delivered=last.delivered if last else None,
        lag=watch.of_known(total_lag(groups)),
        worst=[trend_of(watch, each) for each in worst(groups, WORST)] if groups else [],
        brokers=items,
        slaves=distances(items),
        points=list(watch.points),
        findings=in_short(watch.findings.answer.items) if watch.findings.answer else None,
        findings_seen=freshness(watch.findings.age, watch.findings.trouble, OLD_FINDINGS),
        errors=errors,
    )


def freshness(age: float | None, trouble: str, old: float = STALE) -> Freshness:
    """The age of a part of a page; from ``old`` seconds on it is marked."""
    return Freshness(age=age, stale=bool(trouble) or age is None or age > old, trouble=trouble)


def trend_of(watch: Watch, group: GroupSummary) -> Trend:
    """Where the lag of a group goes."""
    growth = watch.trend(group.group)
    lag = group.lag.known if group.lag and group.lag.complete else None
    left = lag / -growth if lag is not None and growth is not None and growth < 0 else None
    return Trend(group=group, growth=growth, seconds_to_zero=left)


def distances(items: list[BrokerLoad]) -> list[SlaveDistance]:
    """How far each slave is behind its master."""
    ends = {each.broker: each.log_end for each in items if each.broker_id == 0}

    def behind(slave: BrokerLoad) -> int | None:
        end = ends.get(slave.broker)
        return None if end is None or slave.log_end is None else max(0, end - slave.log_end)

    return [
        SlaveDistance(broker=each.broker, broker_id=each.broker_id, address=each.address, behind_bytes=behind(each))
        for each in items
        if each.broker_id != 0
    ]
