"""The lag of groups, how it changes, and when it will be gone."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import Annotated

from eruca.admin.client import Admin
from eruca.admin.results.answer import WIDE, Result, Table
from eruca.admin.results.history import History
from eruca.admin.results.progress import Lag, groups_in_short


class GroupLag(Result, frozen=True, kw_only=True, rename="camel"):
    """The lag of one group."""

    group: str
    members: int | None
    """Of them online."""
    lag: Lag | None
    change_per_second: float | None
    """Since it was first looked at; None at the first look."""
    seconds_to_zero: float | None
    """Until nothing is left if it goes on so; None where it does not shrink."""
    consume_tps: Annotated[float | None, WIDE]
    last: Annotated[list[float | None], WIDE]
    """The lag at the last looks, the oldest first."""


class Lags(Table[GroupLag], frozen=True, kw_only=True, rename="camel"):
    """The lag of groups, the largest first."""


async def lags(admin: Admin, groups: Sequence[str], history: History) -> Lags:
    """The lag of some groups, or of all (206; 203 and 208 for each). Adds it to the ``history`` of earlier looks."""
    found = await groups_in_short(admin, groups or None)
    now, rows = monotonic(), []
    for each in found.items:
        known = each.lag.known if each.lag is not None and each.lag.complete else None
        history.add(each.group, now, known)
        trend = history.trend(each.group)
        rows.append(
            GroupLag(
                group=each.group,
                members=each.members,
                lag=each.lag,
                change_per_second=None if trend is None else round(trend, 2),
                seconds_to_zero=_to_zero(known, trend),
                consume_tps=each.consume_tps,
                last=history.values(each.group),
            )
        )
    rows.sort(key=lambda row: (-(row.lag.known if row.lag else 0), row.group))
    return Lags(items=rows, errors=found.errors)


def _to_zero(lag: int | None, trend: float | None) -> float | None:
    if lag == 0:
        return 0.0
    return None if lag is None or trend is None or trend >= 0 else round(lag / -trend, 1)


def span(seconds: float | None) -> str:
    """``95 s``, ``12 min``, ``3 h``, ``-`` where there is no end."""
    if seconds is None:
        return "-"
    for size, unit in ((172_800, "days"), (7200, "h"), (120, "min")):
        if seconds >= size:
            return f"{seconds / (size / 2):.0f} {unit}"
    return f"{seconds:.0f} s"
