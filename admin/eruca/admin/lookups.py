"""What several commands look up in a cluster: offsets of topics, members and progress of groups.

Owns the requests behind MQAdminExt's ``examineTopicStats``, ``queryTopicConsumeByWho``,
``examineConsumerConnectionInfo``, ``getConsumerRunningInfo``, ``examineConsumeStats``, ``searchOffset`` and
``updateConsumeOffset`` (4.9.7). Must not know commands or print.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from inspect import CORO_CREATED, getcoroutinestate
from typing import Generic, TypeVar

from eruca.admin.client import HEAVY, Admin, broker_addresses
from eruca.admin.errors import AdminError, BadValue, NotFound, PeerRefused
from eruca.protocol import api
from eruca.protocol.bodies import (
    PERM_READ,
    BrokerStatsData,
    Connection,
    ConsumerConnection,
    ConsumerRunningInfo,
    ConsumeStats,
    GroupList,
    TopicConfig,
    TopicList,
    TopicOffset,
    TopicRouteData,
    TopicStatsTable,
)
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import ProtocolError
from eruca.protocol.headers import clients, offsets, routes, topics
from eruca.protocol.names import is_dead_letter_topic, is_retry_topic, is_system_topic, retry_topic
from eruca.protocol.queues import MessageQueue

END = -1
"""The timestamp that means the end of a queue."""
MEMBER_WITHIN = 3.0
"""Seconds that a member has to tell its state."""
AT_LEAST = ">= {} ?"
"""A number that is not known of every broker."""
MISSING_GROUPS = "groups that only it knows are missing"
"""What the answer lacks of a broker that does not say who consumes a topic."""
_RUNTIME = re.compile(r"\[ (\d+) days, (\d+) hours, (\d+) minutes, (\d+) seconds \]", re.ASCII)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Asked(Generic[T]):
    """What several peers answered, and the errors of those that did not, by their names."""

    answers: dict[str, T]
    errors: dict[str, AdminError]

    def strict(self) -> dict[str, T]:
        """The answers; raises the first error, if there is any."""
        for error in self.errors.values():
            raise error
        return self.answers


async def ask_each(asks: Mapping[str, Awaitable[T]]) -> Asked[T]:
    """Ask peers side by side; an error of one is kept, and the others go on."""
    asked: Asked[T] = Asked({}, {})

    async def ask(name: str, question: Awaitable[T]) -> None:
        try:
            asked.answers[name] = await question
        except AdminError as error:
            asked.errors[name] = error
        except ProtocolError as error:
            asked.errors[name] = AdminError(f"its answer cannot be read: {error}")

    try:
        await asyncio.gather(*(ask(name, question) for name, question in asks.items()))
    finally:
        for question in asks.values():  # one that had not begun when all was cancelled never will
            if isinstance(question, Coroutine) and getcoroutinestate(question) == CORO_CREATED:
                question.close()
    return asked


# ------------------------------------------------------------------ topics


async def topic_stats(admin: Admin, topic: str) -> Asked[dict[MessageQueue, TopicOffset]]:
    """The first and the next offset of each queue of a topic, by broker."""
    return await ask_each({name: topic_stats_at(admin, at, topic) for name, at in await admin.brokers_of(topic)})


async def topic_stats_at(admin: Admin, address: str, topic: str) -> dict[MessageQueue, TopicOffset]:
    """The first and the next offset of each queue that one broker has of a topic."""
    answer = await admin.call(address, api.GET_TOPIC_STATS_INFO, topics.OfTopic(topic=topic))
    return TopicStatsTable.decode(answer.body).offset_table


async def has_value(admin: Admin, key: routes.KVConfigKey) -> bool:
    """Whether any nameserver has a value (101); true where it is not known."""
    asked = await ask_each({each: admin.call(each, api.GET_KV_CONFIG, key) for each in admin.nameservers})
    refused = [error for error in asked.errors.values() if isinstance(error, PeerRefused)]
    return bool(asked.answers) or len(refused) < len(admin.nameservers)


async def create_topic(admin: Admin, address: str, config: TopicConfig) -> None:
    """Create a topic at a broker, or change it (17)."""
    request = topics.CreateTopic(
        topic=config.topic_name,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm,
        topic_filter_type=config.topic_filter_type,
        topic_sys_flag=config.topic_sys_flag,
        order=config.order,
    )
    await admin.call(address, api.UPDATE_AND_CREATE_TOPIC, request)


@dataclass(frozen=True, slots=True)
class GroupsOfTopic:
    """The consumer groups of a topic, as the brokers know them that answered, and the errors of the others."""

    names: list[str]
    errors: dict[str, AdminError]


async def groups_of(admin: Admin, route: TopicRouteData, topic: str) -> GroupsOfTopic:
    """The consumer groups of a topic, by 300 at each of its brokers."""
    asked = await ask_each({name: _groups_at(admin, at, topic) for name, at in broker_addresses(route)})
    names = dict.fromkeys(group for name, _ in broker_addresses(route) for group in asked.answers.get(name, []))
    return GroupsOfTopic(list(names), asked.errors)


async def _groups_at(admin: Admin, address: str, topic: str) -> list[str]:
    answer = await admin.call(address, api.QUERY_TOPIC_CONSUME_BY_WHO, topics.OfTopic(topic=topic))
    return GroupList.decode(answer.body).group_list


def readable_queues(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    """The queues that the consumers of a topic share."""
    return [
        MessageQueue(topic, queue.broker_name, queue_id)
        for queue in route.queue_datas
        if queue.perm & PERM_READ
        for queue_id in range(queue.read_queue_nums)
    ]


async def queues_and_brokers(admin: Admin, topic: str) -> tuple[list[MessageQueue], dict[str, str]]:
    """The readable queues of a topic, and an address for each of its brokers."""
    route = await admin.route(topic)
    addresses = dict(broker_addresses(route))
    return [queue for queue in readable_queues(topic, route) if queue.broker_name in addresses], addresses


def broker_address(addresses: dict[str, str], topic: str, name: str) -> str:
    """The address of a broker by name. Raises NotFound when the topic is not there."""
    if name not in addresses:
        raise NotFound(f"topic {topic} is not on broker {name}; its brokers: {', '.join(sorted(addresses))}")
    return addresses[name]


async def queue_at(admin: Admin, topic: str, name: str, queue_id: int) -> tuple[MessageQueue, str]:
    """A queue, and an address of its broker. Raises NotFound when the topic is not there or has no such queue there."""
    route = await admin.route(topic)
    address = broker_address(dict(broker_addresses(route)), topic, name)
    own = [max(each.read_queue_nums, each.write_queue_nums) for each in route.queue_datas if each.broker_name == name]
    if queue_id >= max(own, default=0):
        raise NotFound(f"topic {topic} has no queue {queue_id} on broker {name}: it has {max(own, default=0)} queues")
    return MessageQueue(topic, name, queue_id), address


async def topics_in(admin: Admin, cluster: str) -> list[str]:
    """The topics of a cluster that users made (224). Raises NotFound for an unknown cluster."""
    await admin.brokers_in(cluster)
    answer = await admin.call_nameserver(api.GET_TOPICS_BY_CLUSTER, routes.OfCluster(cluster=cluster))
    names = TopicList.decode(answer.body).topic_list
    return [each for each in names if not (is_system_topic(each) or is_retry_topic(each) or is_dead_letter_topic(each))]


async def masters_in(admin: Admin, cluster: str | None) -> dict[str, str]:
    """The masters of a cluster by name; None means the only one.

    Raises AdminError where a broker has no master, and BadValue if it is not clear which cluster is meant.
    """
    if cluster is None:
        known = sorted((await admin.clusters()).cluster_addr_table)
        if len(known) != 1:
            raise BadValue(f"give the cluster with -c; the nameserver knows: {', '.join(known) or 'none'}")
        cluster = known[0]
    masters = {}
    for broker in await admin.brokers_in(cluster):
        address = broker.master()
        if address is None:
            raise AdminError(f"broker {broker.broker_name} has no master, which knows what it shall have: start that")
        masters[broker.broker_name] = address
    return masters


# ------------------------------------------------------------------ groups


@dataclass(frozen=True, slots=True)
class Online:
    """The members of a group, an address of a broker that knows each, and the errors of brokers without an answer."""

    connection: ConsumerConnection
    at: dict[str, str]
    """By client id."""
    errors: dict[str, AdminError]


async def online(admin: Admin, group: str, address: str | None = None) -> Online:
    """The members of a consumer group at one broker, or at all that know it, side by side.

    A broker that has just restarted knows none of them yet, so that one broker's word is not enough. Raises
    PeerRefused(206) if all say that none is online, and NoAnswer if nobody knows one and a broker does not answer.
    """
    known = [(address, address)] if address is not None else await admin.brokers_of_group(group)
    return await _online_at(admin, group, known)


async def _online_at(admin: Admin, group: str, brokers: list[tuple[str, str]]) -> Online:
    asked = await ask_each({name: members_at(admin, at, group) for name, at in brokers})
    addresses = dict(brokers)
    members: dict[str, Connection] = {}
    at: dict[str, str] = {}
    described: ConsumerConnection | None = None
    for name, found in asked.answers.items():
        if found is not None:
            described = described or found
            members |= {member.client_id: member for member in found.connection_set}
            at |= {member.client_id: addresses[name] for member in found.connection_set}
    if described is None:
        asked.strict()
        raise PeerRefused(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online", brokers[0][1])
    described.connection_set = list(members.values())
    return Online(described, at, asked.errors)


async def online_somewhere(admin: Admin, group: str) -> Online:
    """The members, from the first broker that knows any; the others are not waited for. Raises as ``online``."""
    brokers = await admin.brokers_of_group(group)
    asks = {asyncio.create_task(online(admin, group, address)) for _, address in brokers}
    left = asks
    try:
        while True:
            done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            known = [task for task in done if task.exception() is None]
            if known or not left:
                return (known or list(done))[0].result()
    finally:
        for task in left:
            task.cancel()
        await asyncio.gather(*asks, return_exceptions=True)


async def members_at(admin: Admin, address: str, group: str) -> ConsumerConnection | None:
    """The members that one broker knows (203); None where none is online."""
    request = clients.OfConsumerGroup(consumer_group=group)
    try:
        answer = await admin.call(address, api.GET_CONSUMER_CONNECTION_LIST, request)
    except PeerRefused as refused:
        if refused.code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
        return None
    found = ConsumerConnection.decode(answer.body)
    return found if found.connection_set else None


async def members_of(admin: Admin, group: str, address: str | None = None) -> ConsumerConnection:
    """The members of a consumer group, from one broker or all. Raises PeerRefused(206) for none."""
    return (await online(admin, group, address)).connection


async def running_info(
    admin: Admin, group: str, client_id: str, jstack: bool, *, at: str | None = None
) -> ConsumerRunningInfo:
    """The state of one member, which a broker requests from it (307): the one ``at`` this address, or any."""
    if at is None:
        try:
            at = (await online(admin, group)).at.get(client_id)
        except PeerRefused:
            at = None
    if at is None:
        _, at = (await admin.brokers_of_group(group))[0]
    request = clients.ConsumerRunningInfoOf(consumer_group=group, client_id=client_id, jstack_enable=jstack)
    answer = await admin.call(at, api.GET_CONSUMER_RUNNING_INFO, request, timeout=MEMBER_WITHIN)
    return ConsumerRunningInfo.decode(answer.body)


async def running_infos(
    admin: Admin, group: str, members: Online, *, jstack: bool = False
) -> Asked[ConsumerRunningInfo]:
    """The states of all members, asked side by side; one that hangs holds up nobody for more than MEMBER_WITHIN."""
    return await ask_each(
        {each: running_info(admin, group, each, jstack, at=at) for each, at in sorted(members.at.items())}
    )


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a group at the brokers that answered, and the errors of the others."""

    stats: ConsumeStats
    errors: dict[str, AdminError]

    def lag_text(self) -> str:
        """The lag; ``>= N ?`` if it is not known of every broker."""
        return AT_LEAST.format(self.stats.lag()) if self.errors else str(self.stats.lag())


async def progress(admin: Admin, group: str) -> Progress:
    """The progress of a group at all brokers of its retry topic, and of the topics that it consumes or has offsets in.

    Raises AdminError if no broker answered, or if the group has no offset anywhere.
    """
    _, found = await members_and_progress(admin, group)
    if isinstance(found, AdminError):
        raise found
    return found


async def progress_of_members(admin: Admin, group: str) -> Progress:
    """As ``progress``, with the brokers among the errors that only the group's members know (203, and 307 of each)."""
    found, infos = await asyncio.gather(progress(admin, group), _infos(admin, group))
    return await with_gone_brokers(admin, found, infos)


async def with_gone_brokers(admin: Admin, found: Progress, infos: Iterable[ConsumerRunningInfo]) -> Progress:
    """Add an error for each broker in which members have queues, but of which no nameserver knows any more."""
    seen = {queue.broker_name for queue in found.stats.offset_table} | found.errors.keys()
    unseen = [queue for info in infos for queue in info.mq_table if queue.broker_name not in seen]
    routes = await ask_each({topic: admin.whole_route(topic) for topic in {queue.topic for queue in unseen}})
    known = {data.broker_name for route in routes.answers.values() for data in route.broker_datas}
    gone = AdminError("no nameserver knows it any more")
    silent = {topic: error for topic, error in routes.errors.items() if not isinstance(error, PeerRefused)}
    errors = {each.broker_name: silent.get(each.topic, gone) for each in unseen if each.broker_name not in known}
    return Progress(found.stats, found.errors | errors)


async def _infos(admin: Admin, group: str) -> Iterable[ConsumerRunningInfo]:
    try:
        return (await running_infos(admin, group, await online_somewhere(admin, group))).answers.values()
    except AdminError:
        return ()  # no member is online, or nobody can say it


async def progress_in(admin: Admin, group: str, topic: str, route: TopicRouteData) -> Progress:
    """The progress of a group in one topic, at the brokers of the topic's route. Raises as ``progress``."""
    asked = await _consume_stats(admin, route, group, topic)
    return _summed(group, asked.answers, asked.errors)


async def members_and_progress(admin: Admin, group: str) -> tuple[Online | AdminError, Progress | AdminError]:
    """What ``online`` and ``progress`` give or raise, with each request sent once."""
    try:
        route = await admin.route_of_group(group)
    except AdminError as error:
        return error, error
    asked, known = await asyncio.gather(
        _consume_stats(admin, route, group), ask_each({group: _online_at(admin, group, broker_addresses(route))})
    )
    members = known.answers[group] if group in known.answers else known.errors[group]
    seen = {queue.topic for each in asked.answers.values() for queue in each.offset_table}
    if isinstance(members, Online):
        seen |= members.connection.subscription_table.keys()
    answers, errors = dict(asked.answers), dict(asked.errors)
    routes = await ask_each({each: admin.route(each) for each in seen - {retry_topic(group)}})
    for each in routes.answers.values():
        each.broker_datas = [data for data in each.broker_datas if data.broker_name not in {*answers, *errors}]
        more = await _consume_stats(admin, each, group)
        answers |= more.answers
        errors |= more.errors
    try:
        return members, _summed(group, answers, errors)
    except AdminError as error:
        return members, error


def _summed(group: str, answers: Mapping[str, ConsumeStats], errors: Mapping[str, AdminError]) -> Progress:
    if not answers:
        raise next(iter(errors.values()))
    result = ConsumeStats()
    for stats in answers.values():
        result.offset_table |= stats.offset_table
        result.consume_tps += stats.consume_tps
    if not result.offset_table and not errors:
        raise NotFound(
            f"Not found the consumer group consume stats: the group {group} has no offset of any queue, "
            "maybe it has not consumed a message yet"
        )
    return Progress(result, dict(errors))


async def _consume_stats(
    admin: Admin, route: TopicRouteData, group: str, topic: str | None = None
) -> Asked[ConsumeStats]:
    """What the brokers of a route say; a slave without the group's offsets, whose master is away, has not answered."""
    asked = await ask_each({name: consume_stats_at(admin, at, group, topic) for name, at in broker_addresses(route)})
    for broker in route.broker_datas:
        name = broker.broker_name
        if not broker.master() and name in asked.answers and not asked.answers[name].offset_table:
            del asked.answers[name]
            asked.errors[name] = AdminError("its master is away, and its slave has no offset of the group")
    return asked


async def consume_stats(admin: Admin, group: str) -> ConsumeStats:
    """The progress of a group. Raises AdminError if a broker does not answer, or if the group has no offset."""
    found = await progress(admin, group)
    for error in found.errors.values():
        raise error
    return found.stats


async def consume_stats_at(admin: Admin, address: str, group: str, topic: str | None = None) -> ConsumeStats:
    """The progress of a group at one broker."""
    request = topics.ConsumeStatsOf(consumer_group=group, topic=topic)
    return ConsumeStats.decode((await admin.call(address, api.GET_CONSUME_STATS, request, timeout=HEAVY)).body)


def running_for(figures: Mapping[str, str]) -> int | None:
    """For how many whole seconds a broker has run, by its runtime info; None where that does not say."""
    found = _RUNTIME.fullmatch(figures.get("runtime", ""))
    if found is None:
        return None
    days, hours, minutes, seconds = map(int, found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


# ------------------------------------------------------------------ statistics


async def stats_at(admin: Admin, address: str, name: str, key: str) -> tuple[float, int]:
    """Messages per second over the last minute, and messages of the last day, by one statistic of a broker (315)."""
    try:
        request = topics.BrokerStatsOf(stats_name=name, stats_key=key)
        stats = BrokerStatsData.decode((await admin.call(address, api.VIEW_BROKER_STATS_DATA, request)).body)
    except PeerRefused:
        return 0.0, 0  # nothing counted there yet
    return stats.stats_minute.tps, stats.stats_day.sum or stats.stats_hour.sum or stats.stats_minute.sum


# ------------------------------------------------------------------ offsets


async def offset_at(admin: Admin, address: str, queue: MessageQueue, timestamp: int) -> int:
    """The offset of a queue at a time; END is its end."""
    if timestamp == END:
        request = offsets.QueueOf(topic=queue.topic, queue_id=queue.queue_id)
        return (await admin.call(address, api.GET_MAX_OFFSET, request)).header.offset
    search = offsets.SearchOffset(topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp)
    return (await admin.call(address, api.SEARCH_OFFSET_BY_TIMESTAMP, search)).header.offset


async def stored_offset(admin: Admin, address: str, group: str, queue: MessageQueue) -> int:
    """The stored offset of a group in a queue. A broker answers 0 for a young queue without one (14 in 4.9.7)."""
    request = offsets.QueryConsumerOffset(consumer_group=group, topic=queue.topic, queue_id=queue.queue_id)
    return (await admin.call(address, api.QUERY_CONSUMER_OFFSET, request)).header.offset


async def kept_place(admin: Admin, address: str, group: str, queue: MessageQueue) -> int:
    """The stored offset of a group in a queue; 0 where it has none."""
    try:
        return await stored_offset(admin, address, group, queue)
    except PeerRefused as refused:
        if refused.code != ResponseCode.QUERY_NOT_FOUND:
            raise
        return 0


async def store_offset(admin: Admin, address: str, group: str, queue: MessageQueue, offset: int) -> None:
    """Store the offset of a group in a queue."""
    request = offsets.UpdateConsumerOffset(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
    )
    await admin.call(address, api.UPDATE_CONSUMER_OFFSET, request)
