"""The broker object, which every handler gets: configuration, state, store and services, wired together.

Owns only the wiring; each part is a plain attribute (BrokerController in 4.9.7). Knows no listening sockets (see
``app``) and no requests (see ``handlers``).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping

from eruca.broker.config import BrokerConfig, FlushDiskType, apply_live, complete, store_config
from eruca.broker.services.admission import Admission
from eruca.broker.services.checkbacks import CheckBacks
from eruca.broker.services.commits import Commits
from eruca.broker.services.configuration import Configuration
from eruca.broker.services.delays import Delays, Rules
from eruca.broker.services.failover.confirmation import Confirmation
from eruca.broker.services.failover.group_part import GroupPart
from eruca.broker.services.failover.relay import Relay
from eruca.broker.services.failover.tables import Tables
from eruca.broker.services.halves import Halves
from eruca.broker.services.holds import Holds
from eruca.broker.services.memory_alarm import MemoryAlarm
from eruca.broker.services.registration import Registration
from eruca.broker.services.replication.ha_access import HAAccess
from eruca.broker.services.replication.ha_client import HAClient
from eruca.broker.services.replication.slaves import Slaves
from eruca.broker.services.replication.table_sync import TableSync
from eruca.broker.services.role import Role, Wanted
from eruca.broker.state.clients import Clients
from eruca.broker.state.delay_mark import DelayMark
from eruca.broker.state.delay_offsets import DelayOffsets
from eruca.broker.state.deletions import Deletions
from eruca.broker.state.filters import Filters
from eruca.broker.state.groups import Groups
from eruca.broker.state.locks import Locks
from eruca.broker.state.moved_offsets import MovedOffsets
from eruca.broker.state.offsets import Offsets
from eruca.broker.state.statistics import Statistics
from eruca.broker.state.topics import READ_WRITE, Topics
from eruca.broker.store import FileSystem, Store
from eruca.broker.store.config import parse_delay_levels
from eruca.broker.store.results import Durability
from eruca.protocol import names
from eruca.protocol.bloom import BloomFilter
from eruca.protocol.bodies import PERM_INHERIT
from eruca.protocol.errors import ProtocolError
from eruca.protocol.message import BORN_HOST_V6, STORE_HOST_V6
from eruca.protocol.record import host_bytes
from eruca.remoting import Connection, Reply
from eruca.remoting.access.editor import AccountEditor
from eruca.remoting.access.tally import Tally
from eruca.remoting.clock import monotonic_ms, now_ms
from eruca.remoting.credentials import OwnAccount
from eruca.remoting.log_levels import LogLevels
from eruca.remoting.loop_monitor import LoopMonitor, Overload
from eruca.remoting.metrics import Metrics
from eruca.remoting.operating_system import boot_id
from eruca.remoting.readiness import Readiness
from eruca.remoting.reloads import Reloads
from eruca.remoting.rpc_latency import RpcLatency
from eruca.remoting.shared_tasks import SharedTasks
from eruca.remoting.tasks import Tasks
from eruca.remoting.tls_daemon import DaemonTls

SCHEDULE_QUEUES = 18
BENCHMARK_QUEUES = 1024
CLUSTER_TOPIC_QUEUES = 16
COLD_PULLS = 8
REGISTERED_SETTINGS = frozenset({"brokerPermission", "autoCreateTopicEnable"})
"""Settings that nameservers learn of with the topics."""
ROLE_SETTINGS = frozenset({"brokerRole", "brokerId"})
"""Settings whose change is a change of role."""
SHORTEST_STAY = 600_000
"""The least time in ms that a waiting message stays in its part of the log."""


class Broker:
    """One broker.

    ``config`` is completed (name and addresses); ``clock`` returns ms since 1970, ``monotonic`` the ms by which
    durations are measured; ``file_system`` is the store's. ``address`` (``ip:port``), ``ha_address`` and ``store_host``
    (address and port as records hold them) are final after ``listen_on``. ``accepting`` is true on a master between
    start and stop, and between changes of role; otherwise sends are answered with 14. ``waits`` is whether sends wait
    for durability, ``waiting_sends`` how many do. ``hosts`` caches the addresses of clients. ``accounts`` is None
    without access control.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Callable[[], int] = now_ms,
        monotonic: Callable[[], int] = monotonic_ms,
        file_system: FileSystem | None = None,
    ) -> None:
        self.config = complete(config)
        self.role = Role(config)
        self.configuration = Configuration(config, clock)
        self.clock = clock
        self.monotonic = monotonic
        self.readiness = Readiness()
        self.tasks = Tasks(self.readiness)
        self.reloads = Reloads()
        self.accounts = config.access.accounts(config.rocketmq_home)
        if self.accounts is not None:
            self.reloads.add("accounts", self.accounts.read, files=self.accounts.files)
        self.account_editor = AccountEditor(self.accounts, clock) if self.accounts is not None else None
        self.refusals = Tally(monotonic)
        self.log_levels = LogLevels()
        """Those of the daemon's log, where this broker is one."""
        self.own_account = OwnAccount(config.rocketmq_home)
        self.reloads.add("own account", self.own_account.read, files=self.own_account.files)
        self.tls = DaemonTls(config.tls, clock=clock)
        self.tls.register(self.reloads)
        self.rpc_latency = RpcLatency()
        self.metrics = Metrics(
            {
                **config.metrics.labels,
                "cluster": config.broker_cluster_name,
                "node_type": "broker",
                "node_id": config.broker_name,
            },
            lambda: config.metrics.metrics_otel_cardinality_limit,
        )
        folder = config.config_folder
        self.topics = Topics(folder / "topics.json", clock, lambda: config.max_topic_num, config.prefix_limits)
        self.groups = Groups(
            folder / "subscriptionGroup.json",
            clock,
            lambda: config.auto_create_subscription_group,
            lambda: config.max_subscription_group_num,
            lambda: not self.follows_group,
        )
        self.offsets = Offsets(folder / "consumerOffset.json")
        self.filters = Filters(
            folder / "consumerFilter.json",
            clock,
            lambda: config.filter_data_clean_time_span,
            BloomFilter.of(config.max_error_rate_of_bloom_filter, config.expect_consumer_num_use_filter),
        )
        self.deletions = Deletions(folder / "deletedTopics.json")
        self.clients = Clients()
        self.moved_offsets = MovedOffsets()
        self.locks = Locks(config.rebalance_lock_max_live_time)
        self.store = Store(
            store_config(config.store),
            clock,
            monotonic=monotonic,
            follows=self.role.is_slave,
            file_system=file_system,
            tasks=self.tasks,
            boot=boot_id() if config.enable_controller_mode else None,
        )
        self.holds = Holds()
        self.store.on_arrival = self.holds.arrived
        self.statistics = Statistics(config.broker_cluster_name, clock(), monotonic())
        self.delays = Delays(
            self.store,
            self.statistics,
            DelayOffsets(folder / "delayOffset.json"),
            DelayMark(folder.parent / "eruca.delays"),
            parse_delay_levels(config.store.message_delay_level),
            Rules(
                clock,
                monotonic,
                lambda: config.store.timer_max_delay_sec * 1000,
                lambda: max(config.store.file_reserved_time * 3_600_000 * 3 // 4, SHORTEST_STAY),
                lambda topic: self.topics.create_if_absent(topic, 1),
            ),
        )
        self.registration = Registration(config, self.role, self.topics, self.tasks, self.own_account, self.tls.client)
        self.admission = Admission(config, self.topics, self.groups, self.registration)
        self.memory_alarm = MemoryAlarm(self.admission, lambda: config.memory_high_water)
        self.halves = Halves(
            self.offsets,
            self.registration,
            self.statistics,
            self.store,
            self._own_host,
            clock,
            monotonic,
            self.delays.route,
        )
        self.cold_pulls = asyncio.Semaphore(COLD_PULLS)
        """Limits the pulls that read from the disk at the same time, since each builds a large answer."""
        self.commits = Commits(self.halves, self.store)
        self.begun: SharedTasks[object, Reply | None] = SharedTasks()
        """Requests that are done to their ends, also where their connections are closed meanwhile."""
        self.check_backs = CheckBacks(config, self.halves, self.clients, self.admission, monotonic)
        self.loop_monitor = LoopMonitor()
        self.late_sends = Overload(self.loop_monitor, lambda: config.wait_time_mills_in_send_queue / 1000)
        """Whether sends wait too long ..."""
        self.late_pulls = Overload(self.loop_monitor, lambda: config.wait_time_mills_in_pull_queue / 1000)
        """... and pulls."""
        self.accepting = False
        self.ha_access = HAAccess(
            config.store.ha_allowed_addresses,
            self.registration.hosts_of_name if self.accounts is not None else None,
            self.refusals,
            self.tasks,
        )
        self.slaves = Slaves(self.store, config.store, self.role, self.tls.ha_port, self.ha_access)
        self.ha_client = HAClient(self.store, config.store, self.tasks, self.tls.ha_client)
        self.table_sync = TableSync(
            self.topics,
            self.groups,
            self.offsets,
            self.delays,
            self.tasks,
            self.own_account,
            self.tls.client,
            delays_only=config.enable_controller_mode,
        )
        self.confirmation = (
            Confirmation(self.store, lambda: config.store.slave_timeout / 1000)
            if config.enable_controller_mode
            else None
        )
        """Of a broker whose group elects its master, else None."""
        self.tables = (
            Tables(
                {
                    "topics": self.topics,
                    "groups": self.groups,
                    "filters": self.filters,
                    "deletions": self.deletions,
                },
                {"offsets": self.offsets, "locks": self.locks},
                lambda: config.store.slave_timeout / 1000,
            )
            if config.enable_controller_mode
            else None
        )
        """As well: the tables that all brokers of the group have."""
        self.relay = (
            Relay(
                lambda: self.accepting,
                lambda: config.send_thread_pool_queue_capacity,
                lambda: config.store.slave_timeout / 1000,
                self.tls.client,
            )
            if config.enable_controller_mode
            else None
        )
        """As well: what passes requests on to the next master."""
        self.group_part: GroupPart | None = None
        """As well, once it has joined the group."""
        self.waits = self._must_wait()
        self.waiting_sends = 0
        self.hosts: dict[Connection, tuple[bytes, int]] = {}
        self.address = ""
        self.ha_address = ""
        self.store_host = b""
        self.store_host_hex = ""
        self.store_host_bits = 0
        self.listen_on(config.server.listen_port)

    @property
    def name(self) -> str:
        """The broker's name, shared by a master and its slaves."""
        return self.config.broker_name

    @property
    def cluster(self) -> str:
        """The name of the cluster."""
        return self.config.broker_cluster_name

    def listen_on(self, port: int, ha_port: int | None = None) -> None:
        """Set the bound ports; the HA port defaults to ``port`` + 1."""
        ip = self.config.broker_ip1
        ha_port = port + 1 if ha_port is None else ha_port
        self.address = f"{ip}:{port}"
        self.ha_address = f"{self.config.broker_ip2}:{ha_port}"
        self.configuration.bound |= {"listenPort": port, "haListenPort": ha_port, "brokerId": self.role.broker_id}
        self.store_host = _host_of(ip, port)
        self.store_host_hex = self.store_host.hex().upper()
        self.store_host_bits = STORE_HOST_V6 if len(self.store_host) > 8 else 0
        self.registration.advertise(self.address, self.ha_address)

    def _own_host(self) -> tuple[bytes, int]:
        return self.store_host, self.store_host_bits

    def durable(self, end_offset: int) -> asyncio.Future[Durability] | None:
        """None when a message that ends at ``end_offset`` is as safe as this broker promises; else how that wait ends.

        Under SYNC_FLUSH it must be on the disk, at a SYNC_MASTER on a slave, or on all of the syncStateSet: there a
        broker that is the master no more promises nothing. To be asked in the turn in which the message is stored.
        """
        if self.confirmation is not None and (self.role.sync or self.role.is_slave):
            return self.confirmation.durable(end_offset)
        return self.slaves.durable(end_offset) if self.role.sync else self.store.durable(end_offset)

    def take_role(self, wanted: Wanted) -> None:
        """Be this from now on; ``duties`` begins and ends what follows from it."""
        self.role.take(wanted)
        self.waits = self._must_wait()
        if self.confirmation is None:  # else what may be seen is up to the group, whatever the role
            self.slaves.role_changed()
        self.configuration.bound["brokerId"] = wanted.broker_id

    def _must_wait(self) -> bool:
        return self.role.sync or self.config.store.flush_disk_type is FlushDiskType.SYNC_FLUSH

    def host_of(self, connection: Connection) -> tuple[bytes, int]:
        """A client's address as records hold it, with the sysFlag bits of both hosts; cached while it is connected."""
        ip, _, port = connection.remote.rpartition(":")
        host = _host_of(ip, int(port) if port.isdecimal() else 0)
        found = (host, self.store_host_bits | (BORN_HOST_V6 if len(host) > 8 else 0))
        self.hosts[connection] = found
        connection.on_close(lambda ended: self.hosts.pop(ended, None) and None)
        return found

    def reconfigured(self) -> None:
        """Apply a changed configuration. Call it after every change."""
        apply_live(self.config.store, self.store.config)
        self.store.reconfigured()
        self._settle_template()
        self.admission.forget()
        self.role.look()

    def take(self, changed: Mapping[str, str]) -> None:
        """Apply settings that have changed in the operator's file. Raises BadSetting."""
        self.configuration.take(changed)
        self.reconfigured()
        if changed.keys() & REGISTERED_SETTINGS:
            self.topics.renew()
            self.registration.announce_all()

    def load(self) -> None:
        """Read the state files and add the system topics. Raises StateUnreadable, OSError."""
        self._add_system_topics()
        self.topics.load()
        self._settle_template()
        self.groups.load()
        self.offsets.load()
        self.filters.load()
        if self.tables is None and self.role.is_slave:  # its master knows what it has deleted
            self.deletions.leave()
        else:
            self.deletions.load()
        self.delays.load()

    @property
    def follows_group(self) -> bool:
        """Whether the group elects its master, and this broker follows it: then it makes no topic and no group itself,
        since all copy the master's tables."""
        return self.tables is not None and self.role.is_slave

    def _settle_template(self) -> None:
        """Set or clear PERM_INHERIT of the template topic (TBW102) by the configuration; it may be in topics.json."""
        enabled = self.config.auto_create_topic_enable
        if enabled:
            self.topics.add_system(names.DEFAULT_TOPIC, self.config.default_topic_queue_nums)
        template = self.topics.get(names.DEFAULT_TOPIC)
        if template is not None:
            template.perm = template.perm | PERM_INHERIT if enabled else template.perm & ~PERM_INHERIT

    def _add_system_topics(self) -> None:
        config, add = self.config, self.topics.add_system
        add(names.SELF_TEST_TOPIC)
        add(names.BENCHMARK_TOPIC, BENCHMARK_QUEUES)
        cluster_perm = READ_WRITE if config.cluster_topic_enable else 0
        add(config.broker_cluster_name, CLUSTER_TOPIC_QUEUES, PERM_INHERIT | cluster_perm)
        add(config.broker_name, 1, PERM_INHERIT | (READ_WRITE if config.broker_topic_enable else 0))
        add(names.OFFSET_MOVED_EVENT)
        add(names.SCHEDULE_TOPIC, SCHEDULE_QUEUES)
        if config.trace_topic_enable:
            add(config.msg_trace_topic_name)
        add(names.reply_topic(config.broker_cluster_name))


def _host_of(name: str, port: int) -> bytes:
    """An address and port as records hold them. A host name is resolved; an unknown one counts as 0.0.0.0."""
    try:
        return host_bytes(name, port)
    except ProtocolError:
        try:
            return host_bytes(socket.gethostbyname(name), port)
        except OSError:
            return bytes(4) + port.to_bytes(4, "big")
