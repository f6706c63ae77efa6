"""Progress of consumer groups, and traffic of topics."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from eruca.admin.client import Admin
from eruca.admin.errors import AdminError, NotFound, Status, UnknownGroup
from eruca.admin.lookups import (
    Online,
    Progress,
    ask_each,
    groups_of,
    members_and_progress,
    online,
    online_somewhere,
    progress,
    progress_in,
    running_infos,
    stats_at,
    with_gone_brokers,
)
from eruca.admin.results.answer import NONE, WIDE, Moment, Result, Table, errors_of
from eruca.admin.text import nearest
from eruca.protocol.bodies import ConsumerRunningInfo, ConsumeStats, TopicRouteData
from eruca.protocol.codes import version_name
from eruca.protocol.names import RETRY_PREFIX, is_dead_letter_topic, is_retry_topic
from eruca.protocol.queues import MessageQueue


class Lag(Result, frozen=True, kw_only=True, rename="camel"):
    """Messages that a group has not consumed."""

    known: int
    """At the brokers that answered."""
    complete: bool
    """Whether all of them answered."""

    def __str__(self) -> str:
        return str(self.known) if self.complete else f">= {self.known} ?"


class QueueProgress(Result, frozen=True, kw_only=True, rename="camel"):
    """How far a group is in one queue."""

    topic: str
    broker: str
    queue_id: int
    broker_offset: int
    """The offset that the next message gets."""
    consumer_offset: int
    """The offset of the next message that the group consumes."""
    lag: int
    last_consumed: Annotated[Moment | None, NONE]
    """When the last message that it consumed was stored."""
    member: Annotated[str | None, WIDE] = None
    """The address of the member that has the queue; None where it was not asked for, or is not known."""


class GroupProgress(Table[QueueProgress], frozen=True, kw_only=True, rename="camel"):
    """How far a group is."""

    group: str
    consume_tps: float
    """Messages per second, at the brokers that answered."""
    lag: Lag


def progress_of_queues(stats: ConsumeStats, owners: Mapping[MessageQueue, str]) -> list[QueueProgress]:
    """The rows of a group's queues; ``owners`` are the members that have them."""
    return [
        QueueProgress(
            topic=queue.topic,
            broker=queue.broker_name,
            queue_id=queue.queue_id,
            broker_offset=offset.broker_offset,
            consumer_offset=offset.consumer_offset,
            lag=offset.lag(),
            last_consumed=Moment.known(offset.last_timestamp),
            member=owners.get(queue),
        )
        for queue, offset in sorted(stats.offset_table.items())
    ]


async def group_progress(admin: Admin, group: str, *, members: bool = False) -> GroupProgress:
    """How far a group is, by 208 at each broker; by 203 and 307, which brokers its members know besides.

    With ``members``, it says who has each queue. Raises AdminError if no broker answered, or if the group has no offset
    anywhere.
    """
    found, (infos, silent) = await asyncio.gather(progress(admin, group), _infos(admin, group, members))
    owners = {queue: each.split("@")[0] for each, info in infos.items() for queue in info.mq_table} if members else {}
    queues = progress_of_queues(found.stats, owners)
    found = await with_gone_brokers(admin, found, infos.values())
    errors = errors_of(found.errors, "its queues are missing")
    if members:
        errors += errors_of(silent, "its queues are shown without their member")
    lag = Lag(known=found.stats.lag(), complete=not found.errors)
    return GroupProgress(group=group, items=queues, consume_tps=found.stats.consume_tps, lag=lag, errors=errors)


async def _infos(admin: Admin, group: str, every: bool) -> tuple[dict[str, ConsumerRunningInfo], dict[str, AdminError]]:
    """What the members say, ``every`` one or those that the first broker knows, and those that do not answer.

    A broker that does not answer is named with its offsets.
    """
    try:
        them = await online(admin, group) if every else await online_somewhere(admin, group)
        asked = await running_infos(admin, group, them)
    except AdminError:
        return {}, {}  # no member is online, or nobody can say it
    return asked.answers, asked.errors


class GroupSummary(Result, frozen=True, kw_only=True, rename="camel"):
    """A group in short."""

    group: str
    members: int | None
    """Of them online."""
    version: str | None
    """The oldest one of its members; None where none is online or they are not known."""
    type: str | None
    """PUSH or PULL."""
    model: str | None
    """CLUSTERING or BROADCASTING, of a PUSH group."""
    consume_tps: float | None
    lag: Lag | None


class Groups(Table[GroupSummary], frozen=True, kw_only=True, rename="camel"):
    """Groups of a cluster."""


async def groups_in_short(admin: Admin, groups: Sequence[str] | None = None) -> Groups:
    """Some groups, or all that have a retry topic (206; 203 and 208 for each; of those that are named, 307 of members).

    Raises NotFound if nobody knows any of them, AdminError when no nameserver is known: that is no fault of one group.
    """
    admin.need_nameservers()
    named = groups is not None
    if groups is None:
        groups = [topic.removeprefix(RETRY_PREFIX) for topic in await admin.all_topics() if is_retry_topic(topic)]
    groups = list(dict.fromkeys(groups))
    rows, silent = [], dict[str, AdminError]()
    for row, errors in await asyncio.gather(*(_summary(admin, group, named) for group in groups)):
        rows.append(row)
        silent |= errors
    unknown = [str(error) for error in silent.values() if isinstance(error, UnknownGroup)]
    if rows and len(unknown) == len(rows):
        raise NotFound("; ".join(unknown))
    return Groups(items=rows, errors=errors_of(silent, "a lag with '?' lacks its queues"))


async def _summary(admin: Admin, group: str, by_members: bool) -> tuple[GroupSummary, dict[str, AdminError]]:
    """A group, and the brokers that did not answer for it; ``by_members``, those too that only its members know."""
    errors: dict[str, AdminError] = {}
    tps: float | None = 0.0
    lag: Lag | None = Lag(known=0, complete=True)
    members: int | None = 0
    version = kind = model = None
    them, found = await members_and_progress(admin, group)
    if isinstance(found, Progress):
        if by_members and isinstance(them, Online):
            infos = (await running_infos(admin, group, them)).answers
            found = await with_gone_brokers(admin, found, infos.values())
        tps, errors = found.stats.consume_tps, dict(found.errors)
        lag = Lag(known=found.stats.lag(), complete=not errors)
    elif not isinstance(found, NotFound):  # else it has consumed nothing
        tps = lag = None
        errors[f"group {group}"] = found
    if isinstance(them, Online):
        members = len(them.connection.connection_set)
        version = version_name(min(each.version for each in them.connection.connection_set))
        kind = "PULL" if them.connection.consume_type == "CONSUME_ACTIVELY" else "PUSH"
        model = them.connection.message_model if kind == "PUSH" else None
    elif them.status != Status.NOT_FOUND:  # else no member is online
        members = None
        errors[f"group {group}"] = them
    row = GroupSummary(group=group, members=members, version=version, type=kind, model=model, consume_tps=tps, lag=lag)
    return row, errors


# ------------------------------------------------------------------ traffic


class Count(Result, frozen=True, kw_only=True, rename="camel"):
    """Messages at the brokers that answered."""

    per_second: float
    """Over the last minute."""
    last_day: int
    complete: bool
    """Whether all brokers answered."""

    def __str__(self) -> str:
        return f"{self.rate_text()}/s, {self.day_text()} in 24 h"

    def rate_text(self) -> str:
        """Messages per second; ``>= N ?`` if brokers are missing."""
        return f"{self.per_second:.2f}" if self.complete else f">= {self.per_second:.2f} ?"

    def day_text(self) -> str:
        """Messages of the last day; ``>= N ?`` if brokers are missing."""
        return str(self.last_day) if self.complete else f">= {self.last_day} ?"


class Traffic(Result, frozen=True, kw_only=True, rename="camel"):
    """A topic, and one of its groups."""

    topic: str
    group: Annotated[str | None, NONE]
    """None for a topic that no group consumes, as far as the brokers say that answered."""
    lag: Lag | None
    sent: Count
    consumed: Annotated[Count | None, NONE]


class TrafficOfTopics(Table[Traffic], frozen=True, kw_only=True, rename="camel"):
    """Traffic and lag of topics, a row for each of their groups."""


async def traffic(admin: Admin, topic: str = "", *, active: bool = False) -> TrafficOfTopics:
    """Traffic and lag of all topics, or of one, and their groups (206; 105, 300, 315 and 208 for each topic).

    With ``active``, only what had messages today. Raises NotFound for a topic that the nameserver does not know.
    """
    known = [each for each in await admin.all_topics() if not (is_retry_topic(each) or is_dead_letter_topic(each))]
    wanted = [each for each in known if topic in ("", each)]
    if topic and not wanted:
        raise NotFound(f"the nameserver knows no topic {topic}{nearest(topic, known)}")
    asked = await ask_each({each: _traffic_of(admin, each, active) for each in wanted})
    silent: dict[str, AdminError] = {}
    items: list[Traffic] = []
    for each in wanted:
        rows, errors = asked.answers.get(each, ([], {}))
        items += rows
        silent |= errors
    failed = {f"topic {each}": error for each, error in asked.errors.items()}
    errors_of_all = errors_of(silent, "figures with '?' lack it") + errors_of(failed, "its figures are missing")
    return TrafficOfTopics(items=items, errors=errors_of_all)


async def _traffic_of(admin: Admin, topic: str, active: bool) -> tuple[list[Traffic], dict[str, AdminError]]:
    """The rows of a topic, and the brokers that did not answer for them."""
    route = await admin.route(topic)
    groups, came = await asyncio.gather(
        groups_of(admin, route, topic), _count(admin, _masters(route), "TOPIC_PUT_NUMS", topic)
    )
    errors = groups.errors | came.errors
    rows: list[Traffic] = []
    if not groups.names and (came.count.last_day or errors or not active):
        rows.append(Traffic(topic=topic, group=None, lag=None, sent=came.count, consumed=None))
    figures = await asyncio.gather(*(_figures(admin, route, group, topic) for group in groups.names))
    for group, (went, lag, silent) in zip(groups.names, figures, strict=True):
        errors |= went.errors
        if came.count.last_day or went.count.last_day or errors or not active:
            errors |= silent
            rows.append(Traffic(topic=topic, group=group, lag=lag, sent=came.count, consumed=went.count))
    return rows, errors


async def _figures(
    admin: Admin, route: TopicRouteData, group: str, topic: str
) -> tuple[_Counted, Lag | None, Mapping[str, AdminError]]:
    went, (lag, silent) = await asyncio.gather(
        _count(admin, _masters(route), "GROUP_GET_NUMS", f"{topic}@{group}"), _lag(admin, route, group, topic)
    )
    return went, lag, silent


def _masters(route: TopicRouteData) -> dict[str, str]:
    return {broker.broker_name: address for broker in route.broker_datas if (address := broker.master())}


async def _lag(
    admin: Admin, route: TopicRouteData, group: str, topic: str
) -> tuple[Lag | None, Mapping[str, AdminError]]:
    try:
        found = await progress_in(admin, group, topic, route)
    except AdminError as error:
        if error.status == Status.NOT_FOUND:
            return Lag(known=0, complete=True), {}  # it has consumed nothing
        return None, {f"group {group}": error}
    known = found.stats.lag()
    return Lag(known=known if found.errors else max(0, known), complete=not found.errors), found.errors


@dataclass(frozen=True, slots=True)
class _Counted:
    count: Count
    errors: dict[str, AdminError]


async def _count(admin: Admin, masters: dict[str, str], name: str, key: str) -> _Counted:
    asked = await ask_each({broker: stats_at(admin, at, name, key) for broker, at in masters.items()})
    found = list(asked.answers.values())
    count = Count(
        per_second=sum(rate for rate, _ in found), last_day=sum(day for _, day in found), complete=not asked.errors
    )
    return _Counted(count, asked.errors)
