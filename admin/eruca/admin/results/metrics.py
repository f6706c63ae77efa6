"""Figures of a cluster's masters: environment, disk, rates, sizes and clients."""

from __future__ import annotations

from eruca.admin.client import Admin
from eruca.admin.lookups import ask_each, members_of, stats_at
from eruca.admin.results.answer import Result, Table, errors_of
from eruca.protocol import api, properties
from eruca.protocol.bodies import SubscriptionGroupWrapper, TopicConfigSerializeWrapper, TopicList
from eruca.protocol.codes import version_name
from eruca.protocol.names import (
    SCHEDULE_TOPIC,
    TRANS_HALF_TOPIC,
    is_dead_letter_topic,
    is_retry_topic,
    is_system_group,
)


class ClientKind(Result, frozen=True, kw_only=True, rename="camel"):
    """A language and a version of clients that are online."""

    language: str | None
    version: str


class BrokerMetrics(Result, frozen=True, kw_only=True, rename="camel"):
    """Figures of one master. None: the broker does not say it."""

    broker: str
    processors: int | None
    """As Apache's brokers say it, by their setting clientCallbackExecutorThreads."""
    memory_kilobytes: int | None
    commit_log_disk_used: float | None
    """The part of the disk that is in use, 0 to 1."""
    consume_queue_disk_used: float | None
    average_message_size: float | None
    """Bytes."""
    in_tps: float
    """Messages per second, over the last seconds."""
    out_tps: float
    half_in_tps: float
    """Half messages per second, over the last minute."""
    delayed_in_tps: float
    in_yesterday: int
    """Messages between midnight of yesterday and midnight of today."""
    out_yesterday: int
    half_in_day: int
    """Half messages of the last day."""
    delayed_in_day: int
    topics: int
    """Without those of the system, of retries and of dead letters."""
    groups: int
    """Without those of the system."""
    clients: list[ClientKind]
    """Of the members of its groups that are online."""


class ClusterMetrics(Table[BrokerMetrics], frozen=True, kw_only=True, rename="camel"):
    """Figures of each master of a cluster."""


async def cluster_metrics(admin: Admin, cluster: str) -> ClusterMetrics:
    """Figures of the masters of a cluster. Raises AdminError for an unknown cluster."""
    masters = {
        broker.broker_name: address
        for broker in await admin.brokers_in(cluster)
        if (address := broker.master()) is not None
    }
    asked = await ask_each({name: _metrics_of(admin, name, address) for name, address in masters.items()})
    items = [asked.answers[name] for name in masters if name in asked.answers]
    return ClusterMetrics(items=items, errors=errors_of(asked.errors, "its figures are missing"))


async def _metrics_of(admin: Admin, name: str, address: str) -> BrokerMetrics:
    table = await admin.runtime(address)
    settings = properties.parse(properties.decode((await admin.call(address, api.GET_BROKER_CONFIG)).body))
    topics = (await user_topics(admin, address, special=False)).topic_config_table
    groups = (await user_groups(admin, address)).subscription_group_table
    half_tps, half_day = await stats_at(admin, address, "TOPIC_PUT_NUMS", TRANS_HALF_TOPIC)
    delayed_tps, delayed_day = await stats_at(admin, address, "TOPIC_PUT_NUMS", SCHEDULE_TOPIC)
    online = await ask_each({group: members_of(admin, group) for group in groups})
    kinds = {
        (member.language, version_name(member.version))
        for members in online.answers.values()
        for member in members.connection_set
    }

    def yesterday(way: str) -> int:
        later, earlier = table.get(f"msg{way}TotalTodayMorning"), table.get(f"msg{way}TotalYesterdayMorning")
        return int(later or 0) - int(earlier or 0)

    def figure(text: str | None) -> float | None:
        return float(text) if text else None

    return BrokerMetrics(
        broker=name,
        processors=_whole(settings.get("clientCallbackExecutorThreads")),
        memory_kilobytes=_whole(table.get("totalMemKBytes")),
        commit_log_disk_used=figure(table.get("commitLogDiskRatio")),
        consume_queue_disk_used=figure(table.get("consumeQueueDiskRatio")),
        average_message_size=figure(table.get("putMessageAverageSize")),
        in_tps=figure(table.get("putTps", "").split(" ")[0]) or 0.0,
        out_tps=figure(table.get("getTransferedTps", "").split(" ")[0]) or 0.0,
        half_in_tps=half_tps,
        delayed_in_tps=delayed_tps,
        in_yesterday=yesterday("Put"),
        out_yesterday=yesterday("Get"),
        half_in_day=half_day,
        delayed_in_day=delayed_day,
        topics=len(topics),
        groups=len(groups),
        clients=[ClientKind(language=language, version=version) for language, version in sorted(kinds, key=str)],
    )


def _whole(text: str | None) -> int | None:
    return int(text) if text else None


async def user_topics(admin: Admin, address: str, special: bool) -> TopicConfigSerializeWrapper:
    """The topics of a broker without system topics; retry and dead letter topics only when ``special`` (21, 305)."""
    found = TopicConfigSerializeWrapper.decode((await admin.call(address, api.GET_ALL_TOPIC_CONFIG)).body)
    own = set(TopicList.decode((await admin.call(address, api.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)).body).topic_list)
    found.topic_config_table = {
        name: config
        for name, config in found.topic_config_table.items()
        if name not in own and (special or not (is_retry_topic(name) or is_dead_letter_topic(name)))
    }
    return found


async def user_groups(admin: Admin, address: str) -> SubscriptionGroupWrapper:
    """The consumer groups of a broker without system groups (201)."""
    found = SubscriptionGroupWrapper.decode((await admin.call(address, api.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)).body)
    found.subscription_group_table = {
        name: config for name, config in found.subscription_group_table.items() if not is_system_group(name)
    }
    return found
