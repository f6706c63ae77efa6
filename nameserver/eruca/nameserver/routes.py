"""The routes: topics, brokers, clusters, and which brokers are alive (RouteInfoManager in 4.9.7).

Pure: no socket, no file, no clock. Times are arguments in ms of the monotonic clock; a connection is an opaque value
that is compared by identity. Invariants: there are at most as many brokers and topics as the bounds allow, whoever
registers them, since a nameserver may have no accounts; a topic without queues, a broker name without an address and
a cluster without brokers do not exist; each address of a route belongs to a registration, which ends with its
connection; a name and id belong to one address at a time, of the highest epoch. What the end of a broker costs depends
on its own topics only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from eruca.nameserver.epochs import MasterEpochs, OlderEpoch
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

_Place = TypeVar("_Place")
_Key = tuple[str, int]
"""Broker name and id."""


@dataclass(slots=True, eq=False)
class LiveBroker:
    """The registration of one broker; it ends with its connection."""

    name: str
    broker_id: int
    cluster: str
    address: str
    seen: int
    version: DataVersion
    connection: object
    ha_address: str | None
    rival: str = ""
    """The last other address that asked for this name and id."""
    rival_reported: int = 0
    """When that address was reported last, in ms."""
    left_out: int = 0
    """How many of its topics had no room; while there are some, each of its registrations counts as changed."""


class NameTaken(Exception):
    """A registration for a name and id that a connected broker at another address holds."""

    def __init__(self, holder: LiveBroker) -> None:
        super().__init__(holder.address)
        self.holder = holder


class TableFull(Exception):
    """A registration of one broker more than there may be; ``args`` hold how many that are."""


@dataclass(slots=True)
class Room:
    """How much a table may hold; 0 for any number. Apache's nameserver has no bound."""

    brokers: int = 0
    """Registered brokers, each by its name and id."""
    topics: int = 0
    """Topics of brokers: a topic counts once for each broker name that has it."""


@dataclass(slots=True)
class _Named:
    """The brokers of one name."""

    data: BrokerData
    topics: dict[str, None] = field(default_factory=dict)
    """The topics that have queues here."""
    clusters: dict[str, int] = field(default_factory=dict)
    """How many of the brokers belong to a cluster."""


class RouteTable:
    """All routes of a nameserver.

    The caller reports each connection that ends (``lost``); until then it counts as alive.

    Args:
        room: asked at each registration for how much there may be; without it, any number.
    """

    def __init__(self, room: Callable[[], Room] = Room) -> None:
        self._room = room
        self._queues: dict[str, dict[str, QueueData]] = {}  # topic -> broker name -> queues
        self._named: dict[str, _Named] = {}  # broker name -> its brokers
        self._clusters: dict[str, dict[str, None]] = {}  # cluster -> broker names, in order of arrival
        self._live: dict[_Key, LiveBroker] = {}  # broker name and id -> registration
        self._at_address: dict[str, dict[_Key, LiveBroker]] = {}
        self._over: dict[object, dict[_Key, LiveBroker]] = {}  # connection -> its registrations
        self._epochs = MasterEpochs(lasting=LIFETIME)
        self.registrations = 0
        """Registrations that were taken."""
        self.refusals: Counter[str] = Counter()
        """Registrations that were refused, by reason."""
        self.lost_brokers = 0
        """Brokers that were silent, or whose connection ended."""
        self.taken_topics = 0
        """The topics of all brokers: a topic counts once for each broker name that has it."""

    # ------------------------------------------------------------------ brokers come and go

    def register(
        self,
        ask: RegisterBroker,
        topics: TopicConfigSerializeWrapper,
        connection: object,
        now: int,
        *,
        takeover: bool = False,
    ) -> RegisterBrokerReply:
        """Register a broker and its topics; the answer of a slave names its master.

        Topics that are missing from ``topics`` stay, so that one topic can be registered alone. Topics of a slave, and
        those of an unchanged data version, are ignored. With a higher epoch a broker replaces one at another address;
        with the same one only with ``takeover``, as in 4.9, else it raises NameTaken. With a lower one it raises
        OlderEpoch as a master. Names do not depend on clusters: a route names no cluster. Raises TableFull for one
        broker too many; topics for which there is no room are left out (``LiveBroker.left_out``).
        """
        self._check_place(ask, topics.data_version.epoch, takeover)
        self._check_room(ask, topics.data_version.epoch)
        self.registrations += 1
        is_changed = self.is_changed(ask, topics.data_version)
        live = self._enter(ask, topics.data_version, connection, now)
        for other in tuple(self._at_address[ask.broker_addr].values()):
            if other.name == ask.broker_name and other.broker_id != ask.broker_id:
                self._remove(other)  # its role has changed
        if ask.broker_id == MASTER:
            self._epochs.claim(ask.broker_name, ask.broker_addr, topics.data_version.epoch)
            if is_changed:
                self._add_queues(live, topics.topic_config_table.values())
        master = self._live.get((ask.broker_name, MASTER)) if ask.broker_id != MASTER else None
        if master is None:
            return RegisterBrokerReply()
        return RegisterBrokerReply(ha_server_addr=master.ha_address, master_addr=master.address)

    def _check_place(self, ask: RegisterBroker, epoch: int, takeover: bool) -> None:
        """Raise OlderEpoch or NameTaken for a broker that may not have its name and id."""
        if ask.broker_id == MASTER:
            try:
                self._epochs.check(ask.broker_name, ask.broker_addr, epoch)
            except OlderEpoch:
                self.refusals["older_epoch"] += 1
                raise
        holder = self.holder(ask)
        if holder is None or holder.address == ask.broker_addr or epoch > holder.version.epoch:
            return
        if not takeover or epoch < holder.version.epoch:
            self.refusals["name_taken"] += 1
            raise NameTaken(holder)

    def _check_room(self, ask: RegisterBroker, epoch: int) -> None:
        """Raise TableFull for a broker that would be one too many; a claim of an epoch outlives its broker."""
        most = self._room().brokers
        is_new = self.holder(ask) is None and _is_full(most, len(self._live))
        claims_anew = epoch > 0 and ask.broker_name not in self._epochs and _is_full(most, len(self._epochs))
        if is_new or claims_anew:
            self.refusals["full"] += 1
            raise TableFull(most)

    def holder(self, ask: RegisterBroker | UnregisterBroker) -> LiveBroker | None:
        """The registration under a broker's name and id, at whatever address."""
        return self._live.get((ask.broker_name, ask.broker_id))

    def known(self, ask: RegisterBroker | UnregisterBroker) -> LiveBroker | None:
        """The registration of a broker under its name, id and address."""
        live = self.holder(ask)
        return live if live is not None and live.address == ask.broker_addr else None

    def is_changed(self, ask: RegisterBroker | UnregisterBroker, version: DataVersion) -> bool:
        """Whether a broker's data version differs from the registered one."""
        live = self.known(ask)
        return live is None or live.left_out > 0 or live.version != version

    def touch(self, ask: UnregisterBroker, now: int) -> None:
        """Renew a registration without changes."""
        live = self.known(ask)
        if live is not None:
            live.seen = now

    def unregister(self, ask: UnregisterBroker) -> bool:
        """Unregister a broker; returns whether it was registered with this name, id and address."""
        live = self.known(ask)
        if live is not None:
            self._remove(live)
        return live is not None

    def expire(self, now: int) -> list[LiveBroker]:
        """Remove the brokers without a sign of life for LIFETIME; the caller closes their connections."""
        self._epochs.expire(self._named, now)
        return self._remove_all(live for live in self._live.values() if live.seen + LIFETIME < now)

    def lost(self, connection: object) -> list[LiveBroker]:
        """Remove the brokers of an ended connection at once."""
        return self._remove_all(self._over.get(connection, {}).values())

    def _enter(self, ask: RegisterBroker, version: DataVersion, connection: object, now: int) -> LiveBroker:
        key = ask.broker_name, ask.broker_id
        former = self._live.get(key)
        if former is not None:
            self._unlink(former)
        live = LiveBroker(
            name=ask.broker_name,
            broker_id=ask.broker_id,
            cluster=ask.cluster_name,
            address=ask.broker_addr,
            seen=now,
            version=version,
            connection=connection,
            ha_address=ask.ha_server_addr,
        )
        if former is not None and former.address == live.address:
            live.rival, live.rival_reported = former.rival, former.rival_reported
            live.left_out = former.left_out
        self._live[key] = live
        self._at_address.setdefault(live.address, {})[key] = live
        self._over.setdefault(connection, {})[key] = live
        named = self._named.get(live.name)
        if named is None:
            named = self._named[live.name] = _Named(BrokerData(broker_name=live.name, cluster=live.cluster))
        named.data.broker_addrs[live.broker_id] = live.address
        named.clusters[live.cluster] = named.clusters.get(live.cluster, 0) + 1
        self._clusters.setdefault(live.cluster, {})[live.name] = None
        if former is not None:
            self._leave_cluster(named, former.cluster)
        return live

    def _unlink(self, live: LiveBroker) -> None:
        """Remove a registration from the indexes."""
        _drop_entry(self._at_address, live.address, live)
        _drop_entry(self._over, live.connection, live)

    def _remove_all(self, gone: Iterable[LiveBroker]) -> list[LiveBroker]:
        found = list(gone)
        self.lost_brokers += len(found)
        for live in found:
            self._remove(live)
        return found

    def _remove(self, live: LiveBroker) -> None:
        self._unlink(live)
        del self._live[live.name, live.broker_id]
        named = self._named[live.name]
        del named.data.broker_addrs[live.broker_id]
        self._leave_cluster(named, live.cluster)
        if not named.data.broker_addrs:
            del self._named[live.name]
            for topic in named.topics:
                self._drop_queues(topic, live.name)

    def _leave_cluster(self, named: _Named, cluster: str) -> None:
        named.clusters[cluster] -= 1
        if named.clusters[cluster]:
            return
        del named.clusters[cluster]
        names = self._clusters[cluster]
        del names[named.data.broker_name]
        if not names:
            del self._clusters[cluster]
        if named.clusters:
            named.data.cluster = next(iter(named.clusters))

    def _add_queues(self, live: LiveBroker, configs: Iterable[TopicConfig]) -> None:
        """Add the topics of a registration, of all of its broker's topics or of a changed one alone."""
        topics, most = self._named[live.name].topics, self._room().topics
        added = left = 0
        for config in configs:
            topic = config.topic_name
            if topic not in topics:
                if _is_full(most, self.taken_topics):
                    left += 1
                    continue
                added += 1
                self.taken_topics += 1
                topics[topic] = None
            self._queues.setdefault(topic, {})[live.name] = _queues_of(live.name, config)
        live.left_out = max(left, live.left_out - added)

    def _drop_queues(self, topic: str, name: str) -> None:
        queues = self._queues[topic]
        del queues[name]
        self.taken_topics -= 1
        if not queues:
            del self._queues[topic]

    # ------------------------------------------------------------------ topics

    def route(self, topic: str) -> TopicRouteData | None:
        """The route of a topic, None if no registered broker has it."""
        queues = self._queues.get(topic)
        if not queues:
            return None
        brokers = [self._named[name].data for name in queues]
        return TopicRouteData(broker_datas=brokers, queue_datas=list(queues.values()))

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Delete a topic, or only its queues in one cluster."""
        queues = self._queues.get(topic, {})
        for name in tuple(queues):
            if not cluster or name in self._clusters.get(cluster, ()):
                self._drop_queues(topic, name)
                del self._named[name].topics[topic]

    def topics_of(self, broker_name: str) -> list[str]:
        """The topics that have queues at the brokers of a name."""
        named = self._named.get(broker_name)
        return [] if named is None else list(named.topics)

    def wipe_write_permission(self, broker_name: str, among: Iterable[str]) -> int:
        """Remove the write permission of a broker's topics until it registers a change; returns their number.

        Here and below, ``among`` are the topics to look at: all of them at once may be many.
        """
        return self._permit(broker_name, among, lambda perm: perm & ~PERM_WRITE)

    def add_write_permission(self, broker_name: str, among: Iterable[str]) -> int:
        """Make the topics of a broker readable and writable; returns their number."""
        return self._permit(broker_name, among, lambda _: PERM_READ | PERM_WRITE)

    def _permit(self, broker_name: str, among: Iterable[str], change: Callable[[int], int]) -> int:
        found = [self._queues[topic][broker_name] for topic in among if broker_name in self._queues.get(topic, ())]
        for queue in found:
            queue.perm = change(queue.perm)
        return len(found)

    # ------------------------------------------------------------------ overviews

    @property
    def topic_count(self) -> int:
        """The number of topics that have a route."""
        return len(self._queues)

    @property
    def broker_count(self) -> int:
        """The number of registered brokers."""
        return len(self._live)

    def brokers(self) -> Counter[str]:
        """The number of registered brokers in each cluster."""
        return Counter(live.cluster for live in self._live.values())

    def clusters(self) -> ClusterInfo:
        """All brokers and clusters."""
        return ClusterInfo(
            broker_addr_table={name: named.data for name, named in self._named.items()},
            cluster_addr_table={cluster: list(names) for cluster, names in self._clusters.items()},
        )

    def topics(self) -> TopicList:
        """All topics."""
        return TopicList(topic_list=list(self._queues))

    def in_cluster(self, cluster: str, among: Iterable[str]) -> list[str]:
        """The topics of a cluster."""
        names = self._clusters.get(cluster, {})
        return [topic for topic in among if any(name in names for name in self._queues.get(topic, ()))]

    def with_flags(self, among: Iterable[str], *, has: int, has_not: int = 0) -> list[str]:
        """The topics whose first broker's flags have all of ``has`` and none of ``has_not``."""
        flags = {
            topic: next(iter(self._queues[topic].values())).topic_sys_flag for topic in among if topic in self._queues
        }
        return [topic for topic, flag in flags.items() if flag & has == has and not flag & has_not]

    def system_topics(self) -> TopicList:
        """The topics with the names of clusters and brokers, and the address of one broker."""
        names: list[str] = []
        for cluster, brokers in self._clusters.items():
            names += [cluster, *brokers]
        addresses = next((named.data.broker_addrs for named in self._named.values()), None)
        return TopicList(topic_list=names, broker_addr=addresses[min(addresses)] if addresses else None)


def _is_full(most: int, taken: int) -> bool:
    return 0 < most <= taken


def _drop_entry(index: dict[_Place, dict[_Key, LiveBroker]], place: _Place, live: LiveBroker) -> None:
    entries = index[place]
    del entries[live.name, live.broker_id]
    if not entries:
        del index[place]


def _queues_of(broker_name: str, config: TopicConfig) -> QueueData:
    return QueueData(
        broker_name=broker_name,
        perm=config.perm,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        topic_sys_flag=config.topic_sys_flag,
    )
