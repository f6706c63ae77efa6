"""What is true of a group, a topic and its brokers before a reset.

Owns the questions (201, 203, 43, 202, 28, 307 in 4.9.7), asked of all brokers side by side, and what each of them said.
Changes nothing, decides nothing. Invariant: what was not seen is None, never 0.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from eruca.admin.client import HEAVY, Admin
from eruca.admin.errors import AdminError, PeerRefused
from eruca.admin.lookups import members_at, running_for, running_info, topic_stats_at
from eruca.protocol import api
from eruca.protocol.bodies import (
    BrokerData,
    Connection,
    ConsumerConnection,
    ConsumerOffsets,
    ConsumerRunningInfo,
    SubscriptionGroupWrapper,
    TopicRouteData,
)
from eruca.protocol.codes import version_name
from eruca.protocol.errors import ProtocolError
from eruca.protocol.queues import MessageQueue

MASTER_AWAY = "its master is away, and its slave would forget new offsets"
COUNTS_AFTER = 1.5
"""Seconds until a broker of RocketMQ 4.9 has counted something."""
HEARTBEAT_WITHIN = 35.0
"""Seconds until every member has sent a heartbeat to a broker that restarted (each 30 s, as Java's clients)."""


class Kind(enum.Enum):
    """What a broker can do about a reset."""

    ERUCA = enum.auto()
    """Knows 222 for one queue and an offset; notifies members only of offsets that change, unless forced."""
    APACHE_4 = enum.auto()
    """Knows 222 only for all queues and a time."""
    APACHE_5 = enum.auto()
    """Knows 222 for one queue and an offset."""


@dataclass(frozen=True, slots=True)
class QueueSeen:
    """One queue: its first and its next offset, and where the group stands (None: it has no offset here)."""

    queue: MessageQueue
    first: int
    end: int
    stored: int | None
    held: int | None = None
    """Where the member that has it stands, who may not have committed that yet; None if no member says so."""

    @property
    def position(self) -> int | None:
        """Where the group stands: the member knows best."""
        return self.stored if self.held is None else max(self.held, self.stored or 0)


@dataclass(frozen=True, slots=True)
class BrokerSeen:
    """One broker of the topic as it described itself and the group."""

    name: str
    address: str
    kind: Kind
    knows_group: bool
    write_queues: int
    queues: Sequence[QueueSeen]
    """Those that consumers read."""
    group: ConsumerConnection | None
    """The members that this broker knows; None if it knows none (206)."""
    unread: Sequence[int] = ()
    """The ids of queues that are written and that no consumer reads: a broker refuses every look into them."""
    groups: frozenset[str] = frozenset()
    """The names of all its groups."""
    topics_of_group: frozenset[str] = frozenset()
    """The topics in which the group has an offset here."""
    up_for: float | None = None
    """Seconds for which it runs, if it has messages from before: one that is new has forgotten no member."""

    @property
    def settles_in(self) -> float:
        """Seconds until it knows all members again; 0 unless it has just restarted."""
        return 0.0 if self.up_for is None else max(0.0, HEARTBEAT_WITHIN - self.up_for)

    @property
    def members(self) -> frozenset[str]:
        """The client ids of the members that it knows."""
        return frozenset() if self.group is None else frozenset(each.client_id for each in self.group.connection_set)

    def subscribes(self, topic: str) -> bool:
        """Whether its members subscribe a topic."""
        return self.group is not None and topic in self.group.subscription_table

    def is_only_read(self, seen: QueueSeen) -> bool:
        """Whether nobody may write to a queue: RocketMQ 4.9 does not move it then."""
        return seen.queue.queue_id >= self.write_queues and self.kind is Kind.APACHE_4


@dataclass(frozen=True, slots=True)
class Survey:
    """All of it. ``missing`` are the brokers that did not answer or lack a master, with the reason."""

    group: str
    topic: str
    brokers: Sequence[BrokerSeen]
    missing: dict[str, str] = field(default_factory=dict)
    infos: dict[str, ConsumerRunningInfo | None] = field(default_factory=dict)
    """What each member says of itself, by client id; None for one that does not answer."""

    @property
    def members(self) -> dict[str, Connection]:
        """The members that any broker knows, by client id."""
        return {
            member.client_id: member
            for broker in self.brokers
            if broker.group is not None
            for member in broker.group.connection_set
        }

    @property
    def queues(self) -> list[QueueSeen]:
        """The queues of all brokers that answered, in order."""
        return sorted((queue for broker in self.brokers for queue in broker.queues), key=lambda seen: seen.queue)


async def look(admin: Admin, group: str, topic: str) -> Survey:
    """Ask every master of a topic about a group, and no member. Raises PeerRefused(17) for a topic without a route."""
    route = await admin.whole_route(topic)
    names = [broker for broker in route.broker_datas if broker.master()]
    missing = {each.broker_name: MASTER_AWAY for each in route.broker_datas if not each.master()}
    found = await asyncio.gather(*(_broker(admin, group, topic, route, each) for each in names), return_exceptions=True)
    brokers = []
    for broker, seen in zip(names, found, strict=True):
        if isinstance(seen, BrokerSeen):
            brokers.append(seen)
        elif isinstance(seen, AdminError | ProtocolError):
            missing[broker.broker_name] = str(seen)
        else:
            raise seen
    return Survey(group, topic, sorted(brokers, key=lambda each: each.name), missing)


async def look_at_members(admin: Admin, survey: Survey) -> Survey:
    """Ask every member for its state, and add what they said.

    A broker in which they have queues of the topic, and that no nameserver knows any more, is missing.
    """
    infos = await states(admin, survey)
    held = held_offsets(infos)
    known = {each.name for each in survey.brokers} | survey.missing.keys()
    gone = {queue.broker_name for queue in held if queue.topic == survey.topic} - known
    brokers = [
        replace(each, queues=[replace(seen, held=held.get(seen.queue)) for seen in each.queues])
        for each in survey.brokers
    ]
    missing = survey.missing | dict.fromkeys(gone, "its members have queues there, and no nameserver knows it any more")
    return replace(survey, brokers=brokers, infos=infos, missing=missing)


async def _broker(admin: Admin, group: str, topic: str, route: TopicRouteData, data: BrokerData) -> BrokerSeen:
    address = data.broker_addrs[0]
    groups, offsets, stats, members, figures = await asyncio.gather(
        admin.call(address, api.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
        admin.call(address, api.GET_ALL_CONSUMER_OFFSET, timeout=HEAVY),
        topic_stats_at(admin, address, topic),
        members_at(admin, address, group),
        _figures(admin, address),
    )
    counts = next(each for each in route.queue_datas if each.broker_name == data.broker_name)
    known = SubscriptionGroupWrapper.decode(groups.body).subscription_group_table
    table = ConsumerOffsets.decode(offsets.body).offset_table
    stored = table.get(f"{topic}@{group}", {})
    queues = [
        QueueSeen(queue, seen.min_offset, seen.max_offset, _known(stored.get(queue.queue_id)))
        for queue, seen in sorted(stats.items())
        if queue.queue_id < counts.read_queue_nums
    ]
    return BrokerSeen(
        name=data.broker_name,
        address=address,
        kind=_kind(groups.language, groups.version),
        knows_group=group in known,
        write_queues=counts.write_queue_nums,
        queues=queues,
        unread=[
            each.queue_id for each in sorted(stats) if counts.read_queue_nums <= each.queue_id < counts.write_queue_nums
        ],
        group=members,
        groups=frozenset(known),
        topics_of_group=frozenset(
            key.rpartition("@")[0] for key, at in table.items() if at and key.rpartition("@")[2] == group
        ),
        up_for=_up_for(figures),
    )


async def _figures(admin: Admin, address: str) -> Mapping[str, str]:
    """The runtime info of a broker; none where it is refused twice.

    A broker of RocketMQ 4.9 refuses it in its first second, when it has counted nothing yet (StoreStatsService).
    """
    try:
        return await admin.runtime(address)
    except PeerRefused:
        await asyncio.sleep(COUNTS_AFTER)
    with suppress(PeerRefused):
        return await admin.runtime(address)
    return {}


def _up_for(figures: Mapping[str, str]) -> float | None:
    oldest, booted = figures.get("earliestMessageTimeStamp", ""), figures.get("bootTimestamp", "")
    is_new = not (oldest.isdecimal() and booted.isdecimal() and int(oldest) < int(booted))
    return None if is_new else running_for(figures)


def _known(stored: int | None) -> int | None:
    return stored if stored is not None and stored >= 0 else None


def _kind(language: str | int | None, version: int) -> Kind:
    if language == "PYTHON":
        return Kind.ERUCA
    return Kind.APACHE_4 if version_name(version).startswith(("V3", "V4")) else Kind.APACHE_5


async def states(admin: Admin, survey: Survey) -> dict[str, ConsumerRunningInfo | None]:
    """What each member says of itself (307), by client id; None for one that does not answer in MEMBER_WITHIN."""
    at = {
        member.client_id: broker.address
        for broker in survey.brokers
        if broker.group is not None
        for member in broker.group.connection_set
    }
    infos = await asyncio.gather(*(_state(admin, address, survey.group, each) for each, address in at.items()))
    return dict(zip(at, infos, strict=True))


async def _state(admin: Admin, address: str, group: str, client_id: str) -> ConsumerRunningInfo | None:
    try:
        return await running_info(admin, group, client_id, False, at=address)
    except (AdminError, ProtocolError):
        return None


def owners(infos: Mapping[str, ConsumerRunningInfo | None]) -> dict[MessageQueue, str]:
    """The member that has each queue."""
    return {queue: member for member, info in infos.items() if info is not None for queue in info.mq_table}


def silent_members(infos: Mapping[str, ConsumerRunningInfo | None]) -> list[str]:
    """The members that did not answer."""
    return sorted(member for member, info in infos.items() if info is None)


def held_offsets(infos: Mapping[str, ConsumerRunningInfo | None]) -> dict[MessageQueue, int]:
    """Where the members stand in their queues; a queue that a member is about to leave is left out."""
    return {
        queue: state.commit_offset
        for info in infos.values()
        if info is not None
        for queue, state in info.mq_table.items()
        if not state.droped and state.commit_offset >= 0
    }
