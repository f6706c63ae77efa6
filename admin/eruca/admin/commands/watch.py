"""Commands that look at a cluster for people and for monitoring: the lag of groups, and checks."""

from __future__ import annotations

import math
from weakref import WeakKeyDictionary

from eruca.admin.command import Job, Shown, Statuses, command
from eruca.admin.errors import BadValue, Status
from eruca.admin.posix import Operand, Option
from eruca.admin.results.checks import CHECKS, Ask, Check, State, perform
from eruca.admin.results.history import History, blocks
from eruca.admin.results.lags import Lags, lags, span

_GROUP = Option("g", "group", "these consumer groups; default: all", kind="group")
_KINDS = tuple(CHECKS)
_NAGIOS = Statuses({state.value: state.name for state in State}, failure=State.UNKNOWN)
_histories: WeakKeyDictionary[Job, History] = WeakKeyDictionary()
"""What each run of ``lag --watch`` has seen."""


@command(
    "lag",
    results=(Lags,),
    operand=Operand(_GROUP, many=True),
)
async def lag(job: Job) -> Shown:
    """206; 203 and 208 for each group."""
    history = _histories.setdefault(job, History())
    result = await lags(job.admin, job.text("g").split(), history)

    def apache() -> None:
        layout = "%-40s  %-7s  %-14s  %-10s  %-8s  %s"
        job.row(layout, "#Group", "#Online", "#Lag", "#Change/s", "#To Zero", "#Last Minutes")
        for each in result.items:
            change = "" if each.change_per_second is None else f"{each.change_per_second:+.1f}"
            line = blocks(each.last) if len(each.last) > 1 else ""
            members = "?" if each.members is None else str(each.members)
            job.row(layout, each.group, members, str(each.lag or "?"), change, span(each.seconds_to_zero), line)

    return Shown(result, apache)


@command(
    "check",
    Option("g", "group", "the consumer group, for lag and members", kind="group"),
    Option("t", "topic", "the topic, for topic", kind="topic"),
    Option("b", "broker", "only this broker, by name or host:port", kind="broker"),
    Option("w", "warning", "from here on it is a warning", kind="number", is_decimal=True),
    Option("c", "critical", "from here on it is critical", kind="number", is_decimal=True),
    results=(Check,),
    operand=Operand(Option("", "what", f"what: {', '.join(_KINDS)}", required=True, choices=_KINDS)),
    forms=("prometheus",),
    statuses=_NAGIOS,
)
async def check(job: Job) -> Shown:
    """208, 203, 202 or 28, by what is checked. What cannot be asked, and a wrong command line, is UNKNOWN (3)."""
    name = job.text("what")
    ask = Ask(
        group=job.text("g"),
        topic=job.text("t"),
        broker=job.text("b"),
        warning=_bound(job, "w"),
        critical=_bound(job, "c"),
    )
    result = await perform(job.admin, name, ask)
    job.status = Status(State[result.state])
    more = {"prometheus": lambda: job.write(result.prometheus())}
    return Shown(result, lambda: job.line(result.line()), more)


def _bound(job: Job, letter: str) -> float | None:
    text = job.maybe(letter)
    try:
        bound = None if text is None else float(text)
    except ValueError:
        bound = math.nan
    if bound is not None and not math.isfinite(bound):
        raise BadValue(f"option -{letter} takes a number, not '{text}'")
    return bound
