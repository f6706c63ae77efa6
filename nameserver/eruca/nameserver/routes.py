"""The routes: topics, brokers, clusters, and which brokers are alive (RouteInfoManager in 4.9.7).

Pure: no socket, no file, no clock. Times are arguments in ms of the monotonic clock; a connection is an opaque value
that is compared by identity. Invariant: a topic without queues, a broker name without an address and a cluster without
brokers do not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from eruca.protocol.bodies import (
    PERM_READ,
    PERM_WRITE,
    BrokerData,
    ClusterInfo,
    DataVersion,
    QueueData,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicRouteData,
)
from eruca.protocol.headers.routes import RegisterBroker, RegisterBrokerReply, UnregisterBroker

LIFETIME = 120_000
"""A broker counts as alive for this many ms after its last registration."""
MASTER = 0
"""The broker id of a master."""
UNIT = 1
"""Topic flag: a topic of a unit (TopicSysFlag)."""
UNIT_SUB = 2
"""Topic flag: a topic that units subscribe to."""


@dataclass(slots=True)
class LiveBroker:
    """The last registration of one broker address."""

    address: str
    seen: int
    version: DataVersion
    connection: object
    ha_address: str | None


class RouteTable:
    """All routes of a nameserver."""

    def __init__(self) -> None:
        self._queues: dict[str, dict[str, QueueData]] = {}  # topic -> broker name -> queues
        self._brokers: dict[str, BrokerData] = {}  # broker name -> addresses
        self._clusters: dict[str, dict[str, None]] = {}  # cluster -> broker names, in order of arrival
        self._live: dict[str, LiveBroker] = {}  # address -> last registration

    # ------------------------------------------------------------------ brokers come and go

    def register(
        self, ask: RegisterBroker, topics: TopicConfigSerializeWrapper, connection: object, now: int
    ) -> RegisterBrokerReply:
        """Register a broker and its topics; the answer of a slave names its master.

        Topics that are missing from ``topics`` stay, so that one topic can be registered alone. Topics of a slave, and
        those of an unchanged data version, are ignored.
        """
        self._clusters.setdefault(ask.cluster_name, {})[ask.broker_name] = None
        broker = self._brokers.get(ask.broker_name)
        if broker is None:
            broker = self._brokers[ask.broker_name] = BrokerData(broker_name=ask.broker_name, cluster=ask.cluster_name)
        addresses = broker.broker_addrs
        for other in [i for i, address in addresses.items() if address == ask.broker_addr and i != ask.broker_id]:
            del addresses[other]  # its role has changed
        is_new = ask.broker_id not in addresses
        addresses[ask.broker_id] = ask.broker_addr
        if ask.broker_id == MASTER and (is_new or self.is_changed(ask.broker_addr, topics.data_version)):
            for config in topics.topic_config_table.values():
                self._queues.setdefault(config.topic_name, {})[ask.broker_name] = _queues_of(ask.broker_name, config)
        self._live[ask.broker_addr] = LiveBroker(
            ask.broker_addr, now, topics.data_version, connection, ask.ha_server_addr
        )
        master = self._live.get(addresses.get(MASTER, "")) if ask.broker_id != MASTER else None
        if master is None:
            return RegisterBrokerReply()
        return RegisterBrokerReply(ha_server_addr=master.ha_address, master_addr=master.address)

    def is_changed(self, address: str, version: DataVersion) -> bool:
        """Whether a broker's data version differs from the registered one."""
        known = self.version_of(address)
        return known is None or known != version

    def version_of(self, address: str) -> DataVersion | None:
        """The last data version that a broker registered."""
        live = self._live.get(address)
        return live.version if live is not None else None

    def touch(self, address: str, now: int) -> None:
        """Renew a registration without changes."""
        live = self._live.get(address)
        if live is not None:
            live.seen = now

    def unregister(self, ask: UnregisterBroker) -> None:
        """Unregister a broker."""
        self._live.pop(ask.broker_addr, None)
        broker = self._brokers.get(ask.broker_name)
        if broker is not None:
            broker.broker_addrs.pop(ask.broker_id, None)
            self._drop_if_gone(broker)

    def expire(self, now: int) -> list[LiveBroker]:
        """Remove the brokers without a sign of life for LIFETIME; the caller closes their connections."""
        gone = [live for live in self._live.values() if live.seen + LIFETIME < now]
        self._forget(gone)
        return gone

    def lost(self, connection: object) -> list[LiveBroker]:
        """Remove the brokers of an ended connection at once."""
        gone = [live for live in self._live.values() if live.connection is connection]
        self._forget(gone)
        return gone

    def _forget(self, gone: Iterable[LiveBroker]) -> None:
        for live in gone:
            del self._live[live.address]
            for broker in tuple(self._brokers.values()):
                ids = [i for i, address in broker.broker_addrs.items() if address == live.address]
                for broker_id in ids:
                    del broker.broker_addrs[broker_id]
                if ids:
                    self._drop_if_gone(broker)

    def _drop_if_gone(self, broker: BrokerData) -> None:
        if broker.broker_addrs:
            return
        name = broker.broker_name
        del self._brokers[name]
        for cluster in [cluster for cluster, names in self._clusters.items() if name in names]:
            del self._clusters[cluster][name]
            if not self._clusters[cluster]:
                del self._clusters[cluster]
        self._remove_queues(tuple(self._queues), [name])

    def _remove_queues(self, topics: Iterable[str], broker_names: Iterable[str]) -> None:
        names = tuple(broker_names)
        for topic in topics:
            queues = self._queues.get(topic, {})
            for name in names:
                queues.pop(name, None)
            if not queues:
                self._queues.pop(topic, None)

    # ------------------------------------------------------------------ topics

    def route(self, topic: str) -> TopicRouteData | None:
        """The route of a topic, None if no registered broker has it."""
        queues = self._queues.get(topic)
        if not queues:
            return None
        brokers = [self._brokers[name] for name in queues if name in self._brokers]
        if not brokers:
            return None
        return TopicRouteData(broker_datas=brokers, queue_datas=list(queues.values()))

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Delete a topic, or only its queues in one cluster."""
        if cluster:
            self._remove_queues([topic], self._clusters.get(cluster, ()))
        else:
            self._queues.pop(topic, None)

    def wipe_write_permission(self, broker_name: str) -> int:
        """Remove the write permission of a broker's topics until it registers a change; returns their number."""
        return self._permit(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_permission(self, broker_name: str) -> int:
        """Make all topics of a broker readable and writable; returns their number."""
        return self._permit(broker_name, lambda _: PERM_READ | PERM_WRITE)

    def _permit(self, broker_name: str, change: Callable[[int], int]) -> int:
        touched = [queues[broker_name] for queues in self._queues.values() if broker_name in queues]
        for queue in touched:
            queue.perm = change(queue.perm)
        return len(touched)

    # ------------------------------------------------------------------ overviews

    def clusters(self) -> ClusterInfo:
        """All brokers and clusters."""
        return ClusterInfo(
            broker_addr_table=dict(self._brokers),
            cluster_addr_table={cluster: list(names) for cluster, names in self._clusters.items()},
        )

    def topics(self, cluster: str | None = None) -> TopicList:
        """All topics, or those of a cluster."""
        if cluster is None:
            return TopicList(topic_list=list(self._queues))
        names = self._clusters.get(cluster, {})
        return TopicList(topic_list=[topic for topic, queues in self._queues.items() if names.keys() & queues.keys()])

    def topics_by_flag(self, *, has: int, has_not: int = 0) -> TopicList:
        """The topics whose first broker's flags have all of ``has`` and none of ``has_not``."""
        flags = {topic: next(iter(queues.values())).topic_sys_flag for topic, queues in self._queues.items()}
        return TopicList(
            topic_list=[topic for topic, flag in flags.items() if flag & has == has and not flag & has_not]
        )

    def system_topics(self) -> TopicList:
        """The topics with the names of clusters and brokers, and the address of one broker."""
        names: list[str] = []
        for cluster, brokers in self._clusters.items():
            names += [cluster, *brokers]
        addresses = next((broker.broker_addrs for broker in self._brokers.values()), None)
        return TopicList(topic_list=names, broker_addr=addresses[min(addresses)] if addresses else None)


def _queues_of(broker_name: str, config: TopicConfig) -> QueueData:
    return QueueData(
        broker_name=broker_name,
        perm=config.perm,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        topic_sys_flag=config.topic_sys_flag,
    )
