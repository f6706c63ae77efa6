"""Consumer groups: the list, and one group with its queues, its members and what it has in retry and dead letters.

The list is what the watch has seen; one group is asked for at once, at all of its brokers and members side by side.
"""

from __future__ import annotations

import asyncio

from eruca.admin.client import Admin
from eruca.admin.console.overview import Freshness, Trend, freshness, trend_of
from eruca.admin.console.visit import Visit, now, page, part
from eruca.admin.errors import AdminError, NoAnswer, NotFound, PeerRefused
from eruca.admin.lookups import Asked, ask_each, progress, running_info
from eruca.admin.results.answer import Answer, Moment, PeerError, Result, Table, errors_of
from eruca.admin.results.groups import Member, Members, SettingsOfGroup, group_settings, members
from eruca.admin.results.member_states import MemberState, member_state
from eruca.admin.results.progress import Lag, QueueProgress, progress_of_queues
from eruca.admin.results.topics import topic_status
from eruca.admin.text import nearest
from eruca.protocol.bodies import ConsumerRunningInfo
from eruca.protocol.codes import ResponseCode
from eruca.protocol.names import dead_letter_topic, is_dead_letter_topic, is_retry_topic, retry_topic
from eruca.protocol.queues import MessageQueue


class GroupsPage(Table[Trend], frozen=True, kw_only=True, rename="camel"):
    """All groups that a member has been in."""

    seen: Freshness


@page("/groups", "groups.html")
async def groups(visit: Visit) -> GroupsPage:
    """What the watch has seen."""
    watch = visit.console.watch
    await watch.seen()
    found = watch.groups.answer
    items = [trend_of(watch, each) for each in sorted(found.items, key=lambda each: each.group)] if found else []
    return GroupsPage(
        items=items,
        seen=freshness(watch.groups.age, watch.groups.trouble),
        errors=[*watch.gone(), *(found.errors if found else [])],
    )


# ------------------------------------------------------------------ one group


class OnlineMember(Result, frozen=True, kw_only=True, rename="camel"):
    """A member that is online, and what it says of itself; None where it did not answer."""

    member: Member
    state: MemberState | None
    started: Moment | None
    in_flight: int | None
    """Messages that it holds and has not consumed yet."""
    differs: bool
    """Whether it subscribes something else than most of the members."""


class QueueOfGroup(Result, frozen=True, kw_only=True, rename="camel"):
    """A queue, how far the group is in it, and who has it."""

    progress: QueueProgress
    owners: list[str]
    """Client ids; more than one only while members share the queues again, or broadcast."""


class GroupPage(Answer, frozen=True, kw_only=True, rename="camel"):
    """All of one group; None for what could not be had."""

    group: str
    online: int | None
    lag: Lag | None
    consume_tps: float | None
    trend: Trend | None
    lags: list[int | None]
    """Of the last 15 minutes."""
    members: Members | None
    """None where none is online, too."""
    states: list[OnlineMember]
    queues: list[QueueOfGroup]
    owners_known: bool
    """Whether every member has said which queues it has."""
    topics: list[str]
    retries: int | None
    """Messages that wait for another try."""
    dead_letters: int | None
    settings: SettingsOfGroup | None
    threads: str | None
    """Of the member that was asked for."""
    at: Moment
    seen: Freshness


@page("/groups/{group}", "group.html")
async def group(visit: Visit) -> GroupPage:
    """A group; with ``?threads=CLIENT`` also the threads of a member. Raises NotFound for one that nobody knows."""
    name, admin = visit.names["group"], visit.admin
    errors: list[PeerError] = []
    settings, (online, infos), dead, (lag, tps, queues) = await asyncio.gather(
        part(errors, "settings", _settings(admin, name)),
        _online(admin, name, errors),
        _stored(admin, dead_letter_topic(name), errors),
        _queues(admin, name, errors),
    )
    errors += errors_of(infos.errors, "what it says of itself is missing")
    owners = owners_of(infos)
    lag = visit.console.watch.of_known(lag)
    if settings is None and online is None and not queues and not errors:
        known = visit.console.watch.groups.answer
        hint = nearest(name, [each.group for each in known.items]) if known else ""
        raise NotFound(f"no broker knows a consumer group {name}{hint}")
    threads = None
    if client := visit.given.get("threads"):
        try:
            threads = (await running_info(admin, name, client, True)).jstack or "it has given no threads"
        except AdminError as error:
            threads = str(error)
    retry = [each for each in queues if each.topic == retry_topic(name)]
    watch = visit.console.watch
    summary = (
        next((each for each in watch.groups.answer.items if each.group == name), None) if watch.groups.answer else None
    )
    known_lag = lag is not None and lag.complete
    return GroupPage(
        group=name,
        online=_count(online, errors),
        lag=lag,
        consume_tps=tps if known_lag else None,
        trend=trend_of(watch, summary) if summary else None,
        lags=[lag for _, lag in watch.lags.get(name, ())],
        members=online,
        states=_states(online, infos),
        queues=[
            QueueOfGroup(progress=each, owners=owners.get(MessageQueue(each.topic, each.broker, each.queue_id), []))
            for each in queues
        ],
        owners_known=not infos.errors and _count(online, errors) is not None,
        topics=sorted({each.topic for each in queues} | _subscribed(online)),
        retries=sum(each.lag for each in retry) if known_lag else None,
        dead_letters=dead if watch.whole() else None,
        settings=settings,
        threads=threads,
        at=now(),
        seen=freshness(0.0, ""),
        errors=_each_once([*watch.gone(), *errors]),
    )


async def _settings(admin: Admin, name: str) -> SettingsOfGroup | None:
    try:
        return await group_settings(admin, name)
    except (NoAnswer, PeerRefused):
        raise
    except AdminError:
        return None  # no broker has any


async def _members(admin: Admin, name: str, errors: list[PeerError]) -> Members | None:
    """The members; None where none is online, or with an error where nobody could say it."""
    try:
        return await members(admin, name)
    except PeerRefused as refused:
        if refused.code not in (ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.TOPIC_NOT_EXIST):
            errors += errors_of({"members": refused}, "the members are missing")
    except AdminError as error:
        errors += errors_of({"members": error}, "the members are missing")
    return None


def _count(online: Members | None, errors: list[PeerError]) -> int | None:
    if online is not None:
        return len(online.items)
    return None if any(each.peer == "members" for each in errors) else 0


def _subscribed(online: Members | None) -> set[str]:
    return {each.topic for each in online.subscriptions} if online else set()


async def _online(
    admin: Admin, name: str, errors: list[PeerError]
) -> tuple[Members | None, Asked[ConsumerRunningInfo]]:
    """The members, and what each says of itself; one that hangs costs MEMBER_WITHIN."""
    online = await _members(admin, name, errors)
    ids = [each.client_id for each in online.items] if online else []
    return online, await ask_each({each: running_info(admin, name, each, False) for each in ids})


async def _queues(
    admin: Admin, name: str, errors: list[PeerError]
) -> tuple[Lag | None, float | None, list[QueueProgress]]:
    """Lag, rate and queues of a group; None for what nobody could say."""
    try:
        found = await progress(admin, name)
    except NotFound:
        return Lag(known=0, complete=True), 0.0, []  # it has consumed nothing
    except PeerRefused as refused:
        if refused.code == ResponseCode.TOPIC_NOT_EXIST:
            return Lag(known=0, complete=True), 0.0, []  # no member was ever there
        errors += errors_of({"progress": refused}, "its queues are missing")
        return None, None, []
    except AdminError as error:
        errors += errors_of({"progress": error}, "its queues are missing")
        return None, None, []
    errors += errors_of(found.errors, "its queues are missing")
    queues = progress_of_queues(found.stats, {})
    return Lag(known=found.stats.lag(), complete=not found.errors), found.stats.consume_tps, queues


def owners_of(infos: Asked[ConsumerRunningInfo]) -> dict[MessageQueue, list[str]]:
    """The members that have each queue."""
    owners: dict[MessageQueue, list[str]] = {}
    for member, info in sorted(infos.answers.items()):
        for queue in info.mq_table:
            owners.setdefault(queue, []).append(member)
    return owners


def _states(online: Members | None, infos: Asked[ConsumerRunningInfo]) -> list[OnlineMember]:
    if online is None:
        return []
    wanted = {member: _wanted(info) for member, info in infos.answers.items()}
    most = max(wanted.values(), key=list(wanted.values()).count, default=frozenset())
    return [_state(each, infos.answers.get(each.client_id), most) for each in online.items]


def _wanted(info: ConsumerRunningInfo) -> frozenset[tuple[str, str | None]]:
    return frozenset((each.topic, each.sub_string) for each in info.subscription_set)


def _state(member: Member, info: ConsumerRunningInfo | None, most: frozenset[tuple[str, str | None]]) -> OnlineMember:
    started = info.properties.get("PROP_CONSUMER_START_TIMESTAMP", "") if info else ""
    return OnlineMember(
        member=member,
        state=member_state(member.client_id, info) if info else None,
        started=Moment.known(int(started)) if started.isdecimal() else None,
        in_flight=sum(each.cached_msg_count for each in info.mq_table.values()) if info else None,
        differs=info is not None and _wanted(info) != most,
    )


async def _stored(admin: Admin, topic: str, errors: list[PeerError]) -> int | None:
    """The messages of a topic, 0 where it is nowhere; None where a broker does not say it."""
    try:
        status = await topic_status(admin, topic)
    except PeerRefused as refused:
        if refused.code == ResponseCode.TOPIC_NOT_EXIST:
            return 0
        errors += errors_of({topic: refused}, "its messages are not counted")
        return None
    except AdminError as error:
        errors += errors_of({topic: error}, "its messages are not counted")
        return None
    errors += status.errors
    return None if status.errors else sum(each.max_offset - each.min_offset for each in status.items)


def _each_once(errors: list[PeerError]) -> list[PeerError]:
    return list({(each.peer, each.text, each.missing): each for each in errors}.values())


async def topics_in(admin: Admin, group: str) -> tuple[list[str], list[PeerError]]:
    """The topics in which a group has offsets or that its members subscribe, but for its retries."""
    errors: list[PeerError] = []
    online = await _members(admin, group, errors)
    _, _, queues = await _queues(admin, group, errors)
    found = {each.topic for each in queues} | _subscribed(online)
    return sorted(each for each in found if not (is_retry_topic(each) or is_dead_letter_topic(each))), errors
