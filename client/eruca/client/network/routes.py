"""Where a topic's queues are, as one client sees it.

Owns the rules that turn a nameserver's answer into queues to send to, queues to read, and addresses of brokers. Pure:
asks no nameserver and no clock. Facts: MQClientInstance.topicRouteData2TopicPublishInfo, findBrokerAddressInPublish
and findBrokerAddressInSubscribe in 4.9.7.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from eruca.protocol.bodies import PERM_READ, PERM_WRITE, QueueData, TopicRouteData
from eruca.protocol.queues import MessageQueue

MASTER = 0
"""The broker id of a master."""


class Route(msgspec.Struct, frozen=True):
    """The queues of one topic. ``provisional``: taken from the template topic, since the topic is not there yet."""

    topic: str
    to_send: tuple[MessageQueue, ...]
    to_read: tuple[MessageQueue, ...]
    brokers: Mapping[str, Mapping[int, str]]
    """Addresses ``host:port`` by broker name and broker id."""
    clusters: Mapping[str, str]
    """The cluster of each broker name."""
    provisional: bool = False


def build_route(topic: str, data: TopicRouteData) -> Route:
    """The route of ``topic`` by a nameserver's answer."""
    brokers = {each.broker_name: dict(each.broker_addrs) for each in data.broker_datas}
    clusters = {each.broker_name: each.cluster for each in data.broker_datas}
    queues = sorted(data.queue_datas, key=lambda each: each.broker_name)
    readable = tuple(
        MessageQueue(topic, each.broker_name, number)
        for each in queues
        if each.perm & PERM_READ
        for number in range(each.read_queue_nums)
    )
    return Route(topic, _queues_to_send(topic, data, queues, brokers), readable, brokers, clusters)


def _queues_to_send(
    topic: str, data: TopicRouteData, queues: list[QueueData], brokers: Mapping[str, Mapping[int, str]]
) -> tuple[MessageQueue, ...]:
    if data.order_topic_conf:
        return tuple(
            MessageQueue(topic, name, number) for name, count in data.ordered_queues() for number in range(count)
        )
    return tuple(
        MessageQueue(topic, each.broker_name, number)
        for each in queues
        if each.perm & PERM_WRITE and MASTER in brokers.get(each.broker_name, {})
        for number in range(each.write_queue_nums)
    )


def build_provisional_route(topic: str, template: TopicRouteData, queue_count: int) -> Route:
    """The route of a topic that a broker will create at its first message, by the template topic's route."""
    for each in template.queue_datas:
        each.read_queue_nums = each.write_queue_nums = min(queue_count, each.read_queue_nums)
    route = build_route(topic, template)
    return Route(topic, route.to_send, route.to_read, route.brokers, route.clusters, provisional=True)


def address_to_read(addresses: Mapping[int, str], broker_id: int) -> str | None:
    """Where to pull from when ``broker_id`` was suggested: that one, for a missing slave the next, else any."""
    found = addresses.get(broker_id)
    if found is None and broker_id != MASTER:
        found = addresses.get(broker_id + 1)
    if found is None and addresses:
        found = addresses[min(addresses)]
    return found
