"""What is true of a cluster, as its nameservers, brokers and members say it.

Owns the questions (106, 206, 105; 28, 26, 21, 305, 201; 203, 307; 202, 29, 208) and their answers. Decides nothing.
Invariant: what was not seen is missing or None, and its peer is in ``errors`` or, for a broker, has no ``figures``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eruca.admin.client import Admin
from eruca.admin.errors import AdminError, NoAnswer, NotFound, Partial, PeerRefused
from eruca.admin.lookups import ask_each, members_of, offset_at, progress, running_for, topic_stats_at
from eruca.admin.results.answer import PeerError, errors_of
from eruca.admin.results.metrics import user_groups, user_topics
from eruca.admin.text import nearest
from eruca.protocol import api, properties
from eruca.protocol.bodies import (
    ClusterInfo,
    ConsumerConnection,
    ConsumerRunningInfo,
    TopicConfig,
    TopicList,
    TopicRouteData,
)
from eruca.protocol.headers import clients, routes
from eruca.protocol.names import dead_letter_topic, is_dead_letter_topic, is_retry_topic, retry_topic
from eruca.remoting.clock import now_ms

HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class View:
    """What one nameserver knows: clusters, topics, and the routes of topics where there are several nameservers."""

    clusters: ClusterInfo
    topics: frozenset[str]
    routes: Mapping[str, TopicRouteData]


@dataclass(slots=True)
class BrokerSeen:
    """One broker."""

    cluster: str
    name: str
    broker_id: int
    address: str
    silent: str = ""
    """Why it did not answer; "" if it did."""
    figures: Mapping[str, str] = field(default_factory=dict)
    """Its runtime info."""
    ahead_ms: int = 0
    """By how much its clock is ahead of this machine's; below 0, behind it; 0 as far as is known."""
    settings: Mapping[str, str] = field(default_factory=dict)
    topics: Mapping[str, TopicConfig] = field(default_factory=dict)
    """Of a master: its topics, those of retries and dead letters too, without the system's."""
    groups: frozenset[str] = frozenset()
    """Of a master: its consumer groups without the system's."""

    @property
    def is_master(self) -> bool:
        """Whether it is one."""
        return self.broker_id == 0

    @property
    def log_end(self) -> int | None:
        """Bytes of its commit log since the first one."""
        text = self.figures.get("commitLogMaxOffset", "")
        return int(text) if text.isdecimal() else None


@dataclass(frozen=True, slots=True)
class MemberSeen:
    """What a member said of itself, and when it was asked (ms)."""

    info: ConsumerRunningInfo
    asked: int
    answered: int


@dataclass(frozen=True, slots=True)
class Growth:
    """Messages of a topic in the last two half hours, at all masters that answered."""

    half_hour: int
    half_hour_before: int


@dataclass(frozen=True, slots=True)
class GroupSeen:
    """One consumer group."""

    name: str
    online: Mapping[str, ConsumerConnection]
    """By broker, where a member is online."""
    asked: frozenset[str]
    """The brokers that said who is online."""
    members: Mapping[str, MemberSeen]
    """Those that answered, by client id."""
    lag: str | None
    """Of a group with nobody online; None where it is not known or not asked."""
    retries: Growth
    dead_letters: Growth

    @property
    def client_ids(self) -> set[str]:
        """Of all members online."""
        return {each.client_id for online in self.online.values() for each in online.connection_set}

    @property
    def subscribed(self) -> set[str]:
        """The topics that its members consume, without its retry topic."""
        topics = {topic for online in self.online.values() for topic in online.subscription_table}
        return {topic for topic in topics if not is_retry_topic(topic)}


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of a cluster, or of one group of it."""

    at: int
    views: Mapping[str, View]
    """By the address of the nameserver."""
    brokers: list[BrokerSeen]
    groups: list[GroupSeen]
    errors: list[PeerError]

    @property
    def masters(self) -> list[BrokerSeen]:
        """Those that answered."""
        return [each for each in self.brokers if each.is_master and not each.silent]


async def look(admin: Admin, group: str | None) -> Seen:
    """Look at a cluster; of the groups only at ``group``, if one is given.

    Raises NotFound for an unknown one, and Partial where a broker that does not answer may know it.
    """
    errors: list[PeerError] = []
    views = await _views(admin, errors)
    brokers = _places(views)
    looked = await ask_each({f"{each.name} {each.address}": _look_at(admin, each) for each in brokers})
    errors += errors_of(looked.errors, "what it has is missing")
    masters = {each.name: each for each in brokers if each.is_master and not each.silent}
    known = {name for each in masters.values() for name in each.groups}
    if group is not None and group not in known:
        if silent := sorted(each.name for each in brokers if each.is_master and each.silent):
            raise Partial(
                f"no broker that answers knows the consumer group {group}; no answer from {', '.join(silent)}"
            )
        raise NotFound(f"no broker knows the consumer group {group}{nearest(group, sorted(known))}")
    now = now_ms()
    groups = sorted(known) if group is None else [group]
    seen = await ask_each({name: _group(admin, name, masters, now, errors) for name in groups})
    errors += errors_of({f"group {name}": error for name, error in seen.errors.items()}, "it was not looked at")
    if group is not None:  # in a whole cluster, a broker that is silent is a finding
        silent_masters = {f"{each.name} {each.address}": each for each in brokers if each.is_master and each.silent}
        errors += [
            PeerError(peer=peer, code=None, text=each.silent, missing=f"what it knows of {group} is missing")
            for peer, each in silent_masters.items()
        ]
    found = [seen.answers[name] for name in groups if name in seen.answers]
    return Seen(at=now, views=views, brokers=brokers, groups=found, errors=errors)


# ------------------------------------------------------------------ nameservers


async def _views(admin: Admin, errors: list[PeerError]) -> dict[str, View]:
    """What each nameserver knows. Raises the error of the first one where none answers."""
    several = len(admin.nameservers) > 1
    asked = await ask_each({each: _view(admin, each, several=several) for each in admin.nameservers})
    if not asked.answers:
        asked.strict()
    errors += errors_of(asked.errors, "what this nameserver knows is missing")
    return {each: asked.answers[each] for each in admin.nameservers if each in asked.answers}


async def _view(admin: Admin, address: str, *, several: bool) -> View:
    clusters = ClusterInfo.decode((await admin.call(address, api.GET_BROKER_CLUSTER_INFO)).body)
    names = TopicList.decode((await admin.call(address, api.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)).body).topic_list
    found = await ask_each({name: _route(admin, address, name) for name in names}) if several else None
    return View(clusters, frozenset(names), found.answers if found else {})


async def _route(admin: Admin, address: str, topic: str) -> TopicRouteData:
    answer = await admin.call(address, api.GET_ROUTEINFO_BY_TOPIC, routes.RouteOf(topic=topic))
    return TopicRouteData.decode(answer.body)


# ------------------------------------------------------------------ brokers


def _places(views: Mapping[str, View]) -> list[BrokerSeen]:
    """All brokers that a nameserver knows."""
    places: dict[tuple[str, int], BrokerSeen] = {}
    for view in views.values():
        for cluster, names in view.clusters.cluster_addr_table.items():
            for name in names:
                data = view.clusters.broker_addr_table.get(name)
                for broker_id, address in data.broker_addrs.items() if data else ():
                    places.setdefault((name, broker_id), BrokerSeen(cluster, name, broker_id, address))
    return [places[place] for place in sorted(places)]


async def _look_at(admin: Admin, seen: BrokerSeen) -> None:
    """Ask one broker. Raises AdminError for what it refuses; that it does not answer is ``silent``."""
    asked = now_ms()
    try:
        seen.figures = await admin.runtime(seen.address)
    except NoAnswer as error:
        seen.silent = str(error)
        return
    seen.ahead_ms = _ahead(seen.figures, asked, now_ms())
    answer = await admin.call(seen.address, api.GET_BROKER_CONFIG)
    seen.settings = properties.parse(properties.decode(answer.body))
    if seen.is_master:
        seen.topics = (await user_topics(admin, seen.address, special=True)).topic_config_table
        seen.groups = frozenset((await user_groups(admin, seen.address)).subscription_group_table)


def _ahead(figures: Mapping[str, str], asked: int, answered: int) -> int:
    """By how much a broker's clock is ahead, by the time in its answer, or by its start and for how long it runs."""
    if (said := figures.get("currentTimestamp", "")).isdecimal():
        earliest = latest = int(said)
    else:
        seconds, booted = running_for(figures), figures.get("bootTimestamp", "")
        if seconds is None or not booted.isdecimal():
            return 0
        earliest = int(booted) + seconds * 1000
        latest = earliest + 999
    return earliest - answered if earliest > answered else min(0, latest - asked)


# ------------------------------------------------------------------ groups


async def _group(
    admin: Admin, name: str, masters: Mapping[str, BrokerSeen], now: int, errors: list[PeerError]
) -> GroupSeen:
    at = {broker: each.address for broker, each in masters.items() if name in each.groups}
    asked = await ask_each({broker: _online(admin, name, address) for broker, address in at.items()})
    online = {broker: each for broker, each in asked.answers.items() if each is not None}
    errors += errors_of(asked.errors, f"which members of {name} it knows is missing")
    knowing = {each.client_id: at[broker] for broker, found in online.items() for each in found.connection_set}
    said = await ask_each({member: _member(admin, name, member, where) for member, where in knowing.items()})
    errors += errors_of(said.errors, f"what this member of {name} does is missing")
    return GroupSeen(
        name=name,
        online=online,
        asked=frozenset(asked.answers),
        members=said.answers,
        lag=None if online else await _lag(admin, name),
        retries=await _growth(admin, retry_topic(name), masters, now, errors),
        dead_letters=await _growth(admin, dead_letter_topic(name), masters, now, errors),
    )


async def _online(admin: Admin, group: str, address: str) -> ConsumerConnection | None:
    try:
        return await members_of(admin, group, address)
    except PeerRefused:
        return None  # no member is online there


async def _member(admin: Admin, group: str, client_id: str, address: str) -> MemberSeen:
    asked = now_ms()
    request = clients.ConsumerRunningInfoOf(consumer_group=group, client_id=client_id, jstack_enable=False)
    answer = await admin.call(address, api.GET_CONSUMER_RUNNING_INFO, request)
    return MemberSeen(ConsumerRunningInfo.decode(answer.body), asked, now_ms())


async def _lag(admin: Admin, group: str) -> str | None:
    try:
        return (await progress(admin, group)).lag_text()
    except NotFound:
        return "0"  # it has consumed nothing, and so has no offset to count from
    except AdminError:
        return None


async def _growth(
    admin: Admin, topic: str, masters: Mapping[str, BrokerSeen], now: int, errors: list[PeerError]
) -> Growth:
    """How many messages came to a topic of retries or dead letters in the last half hour, and in the one before."""
    at = {broker: each.address for broker, each in masters.items() if topic in each.topics}
    asked = await ask_each({broker: _growth_at(admin, topic, address, now) for broker, address in at.items()})
    what = "dead letters" if is_dead_letter_topic(topic) else "retries"
    errors += errors_of(asked.errors, f"how many {what} are in {topic} there is missing")
    return Growth(
        half_hour=sum(each.half_hour for each in asked.answers.values()),
        half_hour_before=sum(each.half_hour_before for each in asked.answers.values()),
    )


async def _growth_at(admin: Admin, topic: str, address: str, now: int) -> Growth:
    last = before = 0
    for queue, offset in (await topic_stats_at(admin, address, topic)).items():
        if offset.last_update_timestamp < now - HOUR_MS or offset.max_offset == offset.min_offset:
            continue  # a search would give its last message, as the one that is nearest
        first = await offset_at(admin, address, queue, now - HOUR_MS)
        middle = offset.max_offset
        if offset.last_update_timestamp >= now - HOUR_MS // 2:
            middle = await offset_at(admin, address, queue, now - HOUR_MS // 2)
        last += offset.max_offset - max(middle, offset.min_offset)
        before += max(0, middle - max(first, offset.min_offset))
    return Growth(last, before)
