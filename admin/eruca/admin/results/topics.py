"""Topics: which there are, where they are, and how far their queues go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from eruca.admin.client import Admin
from eruca.admin.errors import AdminError
from eruca.admin.lookups import MISSING_GROUPS, ask_each, groups_of, topic_stats
from eruca.admin.results.answer import NONE, WIDE, Answer, Moment, Result, Table, errors_of
from eruca.protocol.bodies import ClusterInfo, TopicRouteData
from eruca.protocol.names import is_dead_letter_topic, is_retry_topic
from eruca.protocol.queues import MessageQueue


class QueueStatus(Result, frozen=True, kw_only=True, rename="camel"):
    """One queue of a topic."""

    broker: str
    queue_id: int
    min_offset: int
    max_offset: int
    """The offset that the next message gets."""
    last_stored: Annotated[Moment | None, NONE]
    """When its last message was stored; None where it has none."""


class TopicStatus(Table[QueueStatus], frozen=True, kw_only=True, rename="camel"):
    """The queues of a topic."""


async def topic_status(admin: Admin, topic: str) -> TopicStatus:
    """The queues of a topic, by 202 at each of its brokers. Raises AdminError if no broker has one."""
    asked = await topic_stats(admin, topic)
    found = {queue: offset for stats in asked.answers.values() for queue, offset in stats.items()}
    if not found:
        asked.strict()
        raise AdminError(f"Not found the topic stats info: no broker has a queue of {topic} to write")
    queues = [
        QueueStatus(
            broker=queue.broker_name,
            queue_id=queue.queue_id,
            min_offset=offset.min_offset,
            max_offset=offset.max_offset,
            last_stored=Moment.known(offset.last_update_timestamp),
        )
        for queue, offset in sorted(found.items())
    ]
    return TopicStatus(items=queues, errors=errors_of(asked.errors, "its queues are missing"))


class RouteOfBroker(Result, frozen=True, kw_only=True, rename="camel"):
    """What a broker has of a topic."""

    cluster: str
    broker: str
    addresses: dict[int, str]
    """By broker id; 0 is the master."""
    read_queues: int
    write_queues: int
    perm: int
    """2 write, 4 read, 6 both."""
    topic_sys_flag: Annotated[int, WIDE]


class TopicRoute(Table[RouteOfBroker], frozen=True, kw_only=True, rename="camel"):
    """The route of a topic: the brokers that have it."""

    topic: str
    order_configuration: Annotated[str | None, NONE]
    brokers_with_queues: int


def topic_route(topic: str, route: TopicRouteData) -> TopicRoute:
    """The route of a topic, as a nameserver gave it."""
    queues = {queue.broker_name: queue for queue in route.queue_datas}
    brokers = []
    for broker in sorted(route.broker_datas, key=lambda broker: broker.broker_name):
        queue = queues.get(broker.broker_name)
        brokers.append(
            RouteOfBroker(
                cluster=broker.cluster,
                broker=broker.broker_name,
                addresses=dict(sorted(broker.broker_addrs.items())),
                read_queues=queue.read_queue_nums if queue else 0,
                write_queues=queue.write_queue_nums if queue else 0,
                perm=queue.perm if queue else 0,
                topic_sys_flag=queue.topic_sys_flag if queue else 0,
            )
        )
    return TopicRoute(
        topic=topic, order_configuration=route.order_topic_conf, items=brokers, brokers_with_queues=len(queues)
    )


class TopicUse(Result, frozen=True, kw_only=True, rename="camel"):
    """A topic, and who consumes it."""

    topic: str
    cluster: str | None
    """None where it was not asked for, or is not known."""
    groups: list[str] | None
    """At the brokers that answered; None where they were not asked for, or are not known."""


class Topics(Table[TopicUse], frozen=True, kw_only=True, rename="camel"):
    """Topics of a cluster."""


async def topics_by_name(admin: Admin) -> Topics:
    """The names of all topics (206)."""
    return Topics(items=[TopicUse(topic=name, cluster=None, groups=None) for name in await admin.all_topics()])


async def topics_in_use(admin: Admin) -> Topics:
    """All topics but those of retries and dead letters, with cluster and groups (206, 106; 105 and 300 for each)."""
    names = [each for each in await admin.all_topics() if not (is_retry_topic(each) or is_dead_letter_topic(each))]
    info = await admin.clusters()
    silent: dict[str, AdminError] = {}
    asked = await ask_each({name: _use_of(admin, name, info, silent) for name in names})
    items = [asked.answers.get(name, TopicUse(topic=name, cluster=None, groups=None)) for name in names]
    errors = errors_of({f"topic {name}": error for name, error in asked.errors.items()}, "its cluster is missing")
    return Topics(items=items, errors=errors_of(silent, MISSING_GROUPS) + errors)


async def _use_of(admin: Admin, topic: str, info: ClusterInfo, silent: dict[str, AdminError]) -> TopicUse:
    """A topic and who consumes it; brokers that do not answer go to ``silent``, once for all topics."""
    route = await admin.route(topic)
    cluster = next(iter(_clusters_of(route, info)), None)
    groups = await groups_of(admin, route, topic)
    silent |= groups.errors
    return TopicUse(topic=topic, cluster=cluster, groups=groups.names if groups.names or not groups.errors else None)


class ClusterOfTopic(Result, frozen=True, kw_only=True, rename="camel"):
    """A cluster that has a topic."""

    topic: str
    cluster: str


class ClustersOfTopic(Table[ClusterOfTopic], frozen=True, kw_only=True, rename="camel"):
    """The clusters that have a topic."""


async def clusters_of_topic(admin: Admin, topic: str) -> ClustersOfTopic:
    """The clusters that have a topic (106 and 105)."""
    info = await admin.clusters()
    clusters = _clusters_of(await admin.route(topic), info)
    return ClustersOfTopic(items=[ClusterOfTopic(topic=topic, cluster=cluster) for cluster in clusters])


def _clusters_of(route: TopicRouteData, info: ClusterInfo) -> list[str]:
    """The clusters that have the first broker of a route."""
    first = route.broker_datas[0].broker_name
    return [cluster for cluster, names in info.cluster_addr_table.items() if first in names]


class AllocatedQueue(Result, frozen=True, kw_only=True, rename="camel"):
    """A queue, and the consumer that would have it."""

    consumer: str
    broker: str
    queue_id: int


class Allocation(Table[AllocatedQueue], frozen=True, kw_only=True, rename="camel"):
    """How consumers would share the queues of a topic."""

    topic: str


def allocation(topic: str, shares: Mapping[str, Sequence[MessageQueue]]) -> Allocation:
    """The shares of each consumer, one queue after the other."""
    items = [
        AllocatedQueue(consumer=consumer, broker=queue.broker_name, queue_id=queue.queue_id)
        for consumer, queues in shares.items()
        for queue in queues
    ]
    return Allocation(topic=topic, items=items)


class OrderOfTopic(Answer, frozen=True, kw_only=True, rename="camel"):
    """The order configuration of a topic."""

    topic: str
    order_configuration: Annotated[str | None, NONE]
