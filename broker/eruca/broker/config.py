"""The settings of a broker: RocketMQ's BrokerConfig, MessageStoreConfig, NettyServerConfig and NettyClientConfig.

Names and defaults are those of 4.9.7. Times are in ms unless a comment names another unit. Keys that tune Java's thread
pools and buffers are accepted without effect, so that an existing broker.conf starts without a warning. Knows no file
and no socket.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path

from eruca.broker.coordination.trust import ControllerTls
from eruca.broker.state.clients import EXPIRE_AFTER as SILENT_AFTER
from eruca.broker.state.locks import EXPIRE_AFTER
from eruca.broker.state.prefix_limits import PrefixLimits, are_numbers, numbers
from eruca.broker.store.config import LONGEST_REPLY, MOST_MESSAGES, StoreConfig, StoreRules
from eruca.protocol.names import ILLEGAL, TOPIC_MAX_LENGTH, TRACE_TOPIC, topic_fault
from eruca.protocol.queues import MOST_QUEUES
from eruca.remoting.access.settings import AccessSettings
from eruca.remoting.access.white_addresses import are_patterns
from eruca.remoting.addresses import (
    LAST_PORT,
    are_addresses,
    is_address,
    is_host,
    is_reachable_host,
    local_address,
)
from eruca.remoting.connection_limits import ConnectionSettings
from eruca.remoting.log_settings import LogSettings
from eruca.remoting.metrics import MetricsSettings
from eruca.remoting.quotas import QuotaSettings
from eruca.remoting.settings import setting
from eruca.remoting.tls_settings import TlsSettings

DAY = 86_400_000
"""In ms; the longest of the times that requests wait."""
YEAR = 365 * DAY
LAST_MOMENT = 253_370_764_800_000
"""The year 9999 in ms since 1970; no later time can be shown."""
MOST_CHECKS = 1_000_000
"""Checks of a half message, at most."""
MOST_REPLICAS = 100
MOST_ENTRIES = 10_000_000
"""The most topics or groups that may be allowed."""


_NAME = f"a name of letters, digits, _, -, % and |, {TOPIC_MAX_LENGTH} characters at most"
_PREFIXES = "beginnings of names and numbers, like orders-=100;pay-=5"
_ADVERTISED = "the address or name of this machine that others connect to, without a port"


def _is_topic(text: str) -> bool:
    return topic_fault(text) is None


def _is_advertised(text: str) -> bool:
    return not text or is_reachable_host(text)


class BrokerRole(StrEnum):
    """The role of this broker among those with its name."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


class FlushDiskType(StrEnum):
    """Whether a send is answered before or after it is on the disk."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


@dataclass(kw_only=True)
class ServerSettings:
    """The listening side (NettyServerConfig); ports other than 10911 move the VIP (-2) and HA (+1) ports along."""

    listen_port: int = setting(10911, important=True, at_least=0, at_most=LAST_PORT)
    """The port for clients; the VIP port is 2 below, the HA port 1 above it; 0 takes free ports for all three."""
    bind_address: str = setting("0.0.0.0", valid=is_host, words="an address of this machine, 0.0.0.0 or ::")
    """The address to listen on; ``0.0.0.0`` stands for all IPv4 addresses of this machine, ``::`` for all addresses."""
    # Java's tuning, without effect here.
    server_worker_threads: int = setting(8, effect=False)
    server_callback_executor_threads: int = setting(0, effect=False)
    server_selector_threads: int = setting(3, effect=False)
    server_oneway_semaphore_value: int = setting(256, effect=False)
    server_async_semaphore_value: int = setting(64, effect=False)
    server_socket_snd_buf_size: int = setting(0, effect=False)
    server_socket_rcv_buf_size: int = setting(0, effect=False)
    write_buffer_high_water_mark: int = setting(0, effect=False)
    write_buffer_low_water_mark: int = setting(0, effect=False)
    server_socket_backlog: int = setting(1024, effect=False)
    server_pooled_byte_buf_allocator_enable: bool = setting(True, effect=False)
    use_epoll_native_selector: bool = setting(False, effect=False)


@dataclass(kw_only=True)
class ClientSettings:
    """The side that calls nameservers (NettyClientConfig); Java's tuning, without effect here but shown to tools."""

    client_worker_threads: int = setting(4, effect=False)
    client_callback_executor_threads: int = setting(2, effect=False)
    client_oneway_semaphore_value: int = setting(65535, effect=False)
    client_async_semaphore_value: int = setting(65535, effect=False)
    connect_timeout_millis: int = setting(3000, effect=False)
    channel_not_active_interval: int = setting(60_000, effect=False)
    client_channel_max_idle_time_seconds: int = setting(120, effect=False)
    client_socket_snd_buf_size: int = setting(0, effect=False)
    client_socket_rcv_buf_size: int = setting(0, effect=False)
    client_pooled_byte_buf_allocator_enable: bool = setting(False, effect=False)
    client_close_socket_if_timeout: bool = setting(True, effect=False)
    use_tls: bool = setting(False, key="useTLS")
    """As ``tls.enable``, which wins where it is set."""


@dataclass(kw_only=True)
class StoreSettings(StoreRules):
    """Messages on disk (MessageStoreConfig)."""

    store_path_root_dir: str = setting(os.path.expanduser("~/store"), important=True, path=True)
    """The folder of the store."""
    store_path_commit_log: str | None = setting(None, path=True)
    """The folder of the commit log; empty: ``commitlog`` in the store."""
    flush_disk_type: FlushDiskType = setting(FlushDiskType.ASYNC_FLUSH, important=True)
    """Whether a send is answered before (ASYNC_FLUSH) or after (SYNC_FLUSH) it is on the disk."""
    default_query_max_num: int = setting(32, at_least=1, at_most=MOST_MESSAGES, live=True)
    """Messages of an answer to a query by unique key, at most."""
    broker_role: BrokerRole = setting(BrokerRole.ASYNC_MASTER, live=True, important=True)
    """ASYNC_MASTER, SYNC_MASTER (a send is answered when a slave has it), or SLAVE."""
    ha_listen_port: int = setting(10912, at_least=0, at_most=LAST_PORT, effect=False)
    """Without effect, as in RocketMQ: the HA port is the listening port + 1, which is shown."""
    ha_send_heartbeat_interval: int = setting(5000, at_least=10, at_most=DAY)
    """Milliseconds of silence after which a master sends its slaves a heartbeat."""
    ha_housekeeping_interval: int = setting(20_000, at_least=10, at_most=DAY)
    """Milliseconds of silence after which a master or slave gives up the other."""
    ha_transfer_batch_size: int = setting(32_768, at_least=256, at_most=LONGEST_REPLY)
    """Bytes of the log in one frame to a slave, at most."""
    ha_master_address: str | None = setting(None, valid=is_address, words="host:port")
    """The address from which a slave replicates; empty uses that of the master whom nameservers name."""
    ha_allowed_addresses: str = setting("", valid=are_patterns, words="patterns of addresses, joined by ;")
    """The addresses of slaves; empty: with access control those that nameservers know for this name, without it all."""
    ha_slave_fallbehind_max: int = setting(268_435_456, at_least=1)
    """Bytes that a slave may be behind and still count as available."""
    ha_stuck_after: int = setting(30_000, at_least=1, at_most=DAY)
    """The time after which a slave that confirms no more of what it lacks counts as unavailable."""
    slave_timeout: int = setting(3000, at_least=1, at_most=DAY)
    """Milliseconds that a send waits for a slave, and a stop for slaves to catch up."""
    flush_delay_offset_interval: int = setting(10_000, at_least=1)
    """Milliseconds between two saves of the offsets of delayed messages."""
    timer_max_delay_sec: int = setting(3_456_000, at_least=1, at_most=31_536_000, live=True)
    """The longest delay of a message's own, in seconds; the default is 40 days."""
    offset_check_in_slave: bool = False
    """Whether a slave corrects the offsets of pulls as a master does."""
    message_index_safe: bool = setting(False, effect=False)
    duplication_enable: bool = setting(False, effect=False)
    # Java's tuning and features that are off by default, without effect here.
    enable_consume_queue_ext: bool = setting(
        False, unmet="delete the folder consumequeue of a store that was written with it; it is rebuilt from the log"
    )
    mapped_file_size_consume_queue_ext: int = setting(50_331_648, effect=False)
    bit_map_length_consume_queue_ext: int = setting(64, effect=False)
    commit_interval_commit_log: int = setting(200, effect=False)
    use_reentrant_lock_when_put_message: bool = setting(True, effect=False)
    flush_commit_log_timed: bool = setting(True, effect=False)
    delete_commit_log_files_interval: int = setting(100, effect=False)
    delete_consume_queue_files_interval: int = setting(100, effect=False)
    destroy_maped_file_interval_forcibly: int = setting(120_000, effect=False)
    redelete_hanged_file_interval: int = setting(120_000, effect=False)
    put_msg_index_hight_water: int = setting(600_000, effect=False)
    commit_commit_log_least_pages: int = setting(4, effect=False)
    flush_least_pages_when_warm_maped_file: int = setting(4096, effect=False)
    flush_consume_queue_least_pages: int = setting(2, effect=False)
    commit_commit_log_thorough_interval: int = setting(200, effect=False)
    warm_maped_file_enable: bool = setting(False, effect=False)
    debug_lock_enable: bool = setting(False, effect=False)
    disk_fall_recorded: bool = setting(True, effect=False)
    os_page_cache_busy_time_out_mills: int = setting(1000, effect=False)
    transient_store_pool_enable: bool = setting(False, effect=False)
    transient_store_pool_size: int = setting(5, effect=False)
    fast_fail_if_no_buffer_in_store_pool: bool = setting(False, effect=False)
    enable_d_leger_commit_log: bool = setting(
        False, key="enableDLegerCommitLog", unmet="there is no DLedger here, this broker runs by its brokerRole"
    )
    d_leger_group: str | None = setting(None, key="dLegerGroup", effect=False)
    d_leger_peers: str | None = setting(None, key="dLegerPeers", effect=False)
    d_leger_self_id: str | None = setting(None, key="dLegerSelfId", effect=False)
    preferred_leader_id: str | None = setting(None, effect=False)
    enable_batch_push: bool = setting(False, effect=False)
    enable_schedule_message_stats: bool = setting(True, effect=False)
    enable_lmq: bool = setting(False, unmet="light queues are not dispatched")
    enable_multi_dispatch: bool = setting(False, unmet="messages come to their own queue only")
    max_lmq_consume_queue_num: int = setting(20_000, effect=False)
    enable_schedule_async_deliver: bool = setting(False, effect=False)
    schedule_async_deliver_max_pending_limit: int = setting(2000, effect=False)
    schedule_async_deliver_max_resend_num2_blocked: int = setting(3, effect=False)
    read_only_commit_log_store_paths: str | None = setting(None, path=True, effect=False)
    store_path_d_ledger_commit_log: str | None = setting(None, key="storePathDLedgerCommitLog", path=True, effect=False)


@dataclass(kw_only=True)
class BrokerConfig:
    """All settings of a broker."""

    namesrv_addr: str | None = setting(
        None, environment="NAMESRV_ADDR", important=True, valid=are_addresses, words="host:port, several joined by ;"
    )
    """Addresses of all nameservers, joined by ``;``."""
    broker_ip1: str = setting("", key="brokerIP1", important=True, valid=_is_advertised, words=_ADVERTISED)
    """The address for clients; empty uses bindAddress, or if that stands for several the address of this machine."""
    broker_ip2: str = setting("", key="brokerIP2", valid=_is_advertised, words=_ADVERTISED)
    """The address for slaves; empty uses brokerIP1."""
    broker_name: str = setting("", important=True, valid=lambda text: not text or _is_topic(text), words=_NAME)
    """The name of this broker, which its slaves share; empty uses the name of this machine."""
    broker_cluster_name: str = setting("DefaultCluster", important=True, valid=_is_topic, words=_NAME)
    """The name of the cluster, which is a topic of each broker, too."""
    broker_id: int = setting(0, at_least=0, at_most=(1 << 31) - 1, live=True, important=True)
    """The number of this broker among those with its name: 0 is a master, above 0 a slave."""
    enable_controller_mode: bool = False
    """RocketMQ 5's key. The brokers of this name elect their master among themselves, by the etcd of controllerAddr.
    docs/replication.md says what that promises, and what it was tried with."""
    controller_addr: str | None = setting(
        None,
        pattern=r"https?://[^\s;/]+:\d{1,5}(;https?://[^\s;/]+:\d{1,5})*",
        words="the members of etcd, like http://10.0.0.1:2379;http://10.0.0.2:2379",
    )
    """The members of etcd, for enableControllerMode."""
    min_in_sync_replicas: int = setting(1, at_least=1, at_most=MOST_REPLICAS)
    """RocketMQ 5's key. With fewer brokers in the syncStateSet, the master among them, sends are refused."""
    all_ack_in_sync_state_set: bool = True
    """RocketMQ 5's key, where it is false. Whether a message is acknowledged when all of the syncStateSet have it; else
    when inSyncReplicas have it, and a failover may lose it."""
    in_sync_replicas: int = setting(1, at_least=1, at_most=MOST_REPLICAS)
    """RocketMQ 5's key. How many of the syncStateSet, with the master, have a message when it is acknowledged, if
    allAckInSyncStateSet is false."""
    ha_max_time_slave_not_catchup: int = setting(3000, at_least=1000, at_most=DAY)
    """RocketMQ 5's key, where it is 15000. Milliseconds without progress or a word after which a slave leaves the
    syncStateSet."""
    broker_election_priority: int = setting((1 << 31) - 1, at_least=0, at_most=(1 << 31) - 1)
    """RocketMQ 5's key. Which of the brokers with the same log is elected: the one with the lowest number."""
    broker_permission: int = setting(6, at_least=0, at_most=7, live=True)
    """What clients may do with the topics here: 2 is writing, 4 reading, 6 both."""
    default_topic_queue_nums: int = setting(8, at_least=1, at_most=MOST_QUEUES, live=True, important=True)
    """The queues of a topic that a send creates."""
    max_topic_num: int = setting(20_000, at_least=0, at_most=MOST_ENTRIES, live=True)
    """The number of topics from which on no new one is made; 0 for any number. A key of Eruca's own."""
    max_topic_num_by_prefix: str = setting("", live=True, valid=are_numbers, words=_PREFIXES)
    """The number of topics, by the beginning of their names, from which on no new one is made."""
    max_queue_num_by_prefix: str = setting("", live=True, valid=are_numbers, words=_PREFIXES)
    """The number of their queues in all: for reading or for writing, whichever is more."""
    quota_new_topics_per_second: float = setting(0.0, at_least=0, at_most=MOST_ENTRIES)
    """The topics a second that one account, or address where requests are not signed, may make; 0 for any number."""
    max_subscription_group_num: int = setting(20_000, at_least=0, at_most=MOST_ENTRIES, live=True)
    """The number of groups from which on no new one is made; 0 for any number. A key of Eruca's own."""
    auto_create_topic_enable: bool = setting(True, live=True, important=True)
    """Whether a send creates a topic that does not exist."""
    auto_create_subscription_group: bool = setting(True, live=True, important=True)
    """Whether a consumer creates a group that does not exist."""
    cluster_topic_enable: bool = True
    """Whether the topic with the name of the cluster can be written and read."""
    broker_topic_enable: bool = True
    """Whether the topic with the name of the broker can be written and read."""
    trace_topic_enable: bool = False
    """Whether the topic of message traces exists from the start."""
    msg_trace_topic_name: str = setting(TRACE_TOPIC, valid=_is_topic, words=_NAME)
    """The topic of message traces."""
    trace_on: bool = setting(True, live=True)
    """Whether producers are asked to trace their messages."""
    region_id: str = "DefaultRegion"
    """The region that producers learn of and put into traces."""
    reject_transaction_message: bool = setting(False, live=True)
    """Whether half messages of transactions are refused."""
    notify_consumer_ids_changed_enable: bool = setting(True, live=True)
    """Whether the members of a group are notified when others come and go."""
    channel_expired_timeout: int = setting(SILENT_AFTER, at_least=1)
    """The silence after which a client is dropped; a key of 5.x, in 4.9 always 120 s."""
    long_polling_enable: bool = setting(True, live=True)
    """Whether a pull waits for messages as long as its client asks; else it waits for shortPollingTimeMills."""
    short_polling_time_mills: int = setting(1000, at_least=0, at_most=DAY, live=True)
    """Milliseconds that a pull waits without longPollingEnable."""
    flush_consumer_offset_interval: int = setting(5000, at_least=10)
    """Milliseconds between two saves of consumer offsets."""
    broker_fast_failure_enable: bool = setting(True, live=True)
    """Whether requests that waited too long are refused with 2 (SYSTEM_BUSY)."""
    send_thread_pool_queue_capacity: int = 10_000
    """The number of sends that may wait for durability; more are refused with 2 (SYSTEM_BUSY)."""
    memory_high_water: str = setting(
        "80%",
        live=True,
        pattern=r"(100|[1-9]?\d)%|\d{1,15}",
        words="a share of the memory like 80%, or a number of bytes; 0 for any memory",
    )
    """The memory above which sends are refused with 2; a key of Eruca's own."""
    wait_time_mills_in_send_queue: int = setting(200, at_least=1, at_most=DAY, live=True)
    """Milliseconds that sends may wait; they are refused when every one of a second waits longer."""
    wait_time_mills_in_pull_queue: int = setting(5000, at_least=1, at_most=DAY, live=True)
    """Milliseconds that pulls may wait; they are refused when every one of a second waits longer."""
    wait_time_mills_in_heartbeat_queue: int = setting(31_000, at_least=1, at_most=DAY, live=True, effect=False)
    wait_time_mills_in_transaction_queue: int = setting(3000, at_least=1, at_most=DAY, live=True, effect=False)
    start_accept_send_request_time_stamp: int = setting(0, at_least=0, at_most=LAST_MOMENT, live=True)
    """The time, in ms since 1970, from which sends are accepted."""
    slave_read_enable: bool = setting(False, live=True)
    """Whether consumers that are far behind are sent to a slave."""
    disable_consume_if_consumer_read_slowly: bool = setting(False, unmet="a group that is far behind goes on consuming")
    consumer_fallbehind_threshold: int = setting(1 << 34, at_least=0, effect=False)
    enable_property_filter: bool = setting(False, live=True)
    """Whether consumers may filter by SQL92 expressions."""
    filter_support_retry: bool = setting(False, live=True)
    """Whether SQL92 expressions filter retried messages, too."""
    expect_consumer_num_use_filter: int = setting(32, at_least=1)
    """The number of groups with SQL92 filters for which the Bloom filter is made."""
    max_error_rate_of_bloom_filter: int = setting(20, at_least=1, at_most=99)
    """The wrong matches of that Bloom filter, in percent, at most."""
    filter_data_clean_time_span: int = setting(86_400_000, at_least=0, at_most=YEAR, live=True)
    """Milliseconds for which the filter of a group without members is kept."""
    rebalance_lock_max_live_time: int = setting(EXPIRE_AFTER, at_least=1)
    """The lifetime of a queue lock that is not renewed; clients must give theirs up before
    (rocketmq.broker.rebalance.lockMaxLiveTime)."""
    compressed_register: bool = False
    """Whether registrations are compressed."""
    force_register: bool = True
    """Whether each period registers all topics; else only if a nameserver's list is outdated."""
    register_broker_timeout_mills: int = setting(6000, at_least=1)
    """Milliseconds that a registration waits for a nameserver."""
    register_name_server_period: int = 30_000
    """Milliseconds between two registrations, taken between 10000 and 60000."""
    fetch_namesrv_addr_by_address_server: bool = setting(False, unmet="name the nameservers in namesrvAddr")
    transaction_time_out: int = setting(6000, at_least=0, at_most=YEAR, live=True)
    """Milliseconds after which an undecided transaction is checked for the first time."""
    transaction_check_max: int = setting(15, at_least=0, at_most=MOST_CHECKS, live=True)
    """Checks of a transaction, at most; then its message goes to the topic TRANS_CHECK_MAX_TIME_TOPIC."""
    transaction_check_interval: int = setting(60_000, at_least=1, at_most=YEAR, live=True)
    """Milliseconds between two checks of undecided transactions."""
    store_reply_message_enable: bool = setting(True, live=True)
    """Whether replies to requests are stored as messages, too."""
    access: AccessSettings = field(default_factory=AccessSettings)
    rocketmq_home: str | None = setting(None, path=True, environment="ROCKETMQ_HOME")
    """The folder below which ``conf/plain_acl.yml`` and ``conf/tools.yml`` are looked for."""
    max_delay_time: int = setting(40, effect=False)
    # Java's tuning, without effect here.
    message_store_plug_in: str = setting("", unmet="this broker knows no store but its own")
    send_message_thread_pool_nums: int = setting(4, effect=False)
    put_message_future_thread_pool_nums: int = setting(4, effect=False)
    pull_message_thread_pool_nums: int = setting(20, effect=False)
    process_reply_message_thread_pool_nums: int = setting(20, effect=False)
    query_message_thread_pool_nums: int = setting(10, effect=False)
    admin_broker_thread_pool_nums: int = setting(16, effect=False)
    client_manage_thread_pool_nums: int = setting(32, effect=False)
    consumer_manage_thread_pool_nums: int = setting(32, effect=False)
    heartbeat_thread_pool_nums: int = setting(2, effect=False)
    end_transaction_thread_pool_nums: int = setting(16, effect=False)
    flush_consumer_offset_history_interval: int = setting(60_000, effect=False)
    put_thread_pool_queue_capacity: int = setting(10_000, effect=False)
    pull_thread_pool_queue_capacity: int = 100_000
    """Shown to tools as the capacity of the pull queue; there is no such queue."""
    reply_thread_pool_queue_capacity: int = setting(10_000, effect=False)
    query_thread_pool_queue_capacity: int = 20_000
    """Shown to tools as the capacity of the query queue; there is no such queue."""
    client_manager_thread_pool_queue_capacity: int = setting(1_000_000, effect=False)
    consumer_manager_thread_pool_queue_capacity: int = setting(1_000_000, effect=False)
    heartbeat_thread_pool_queue_capacity: int = setting(50_000, effect=False)
    end_transaction_pool_queue_capacity: int = 100_000
    """Shown to tools as the capacity of the queue of commits; there is no such queue."""
    filter_server_nums: int = setting(0, effect=False)
    high_speed_mode: bool = setting(False, effect=False)
    commercial_enable: bool = setting(True, effect=False)
    commercial_timer_count: int = setting(1, effect=False)
    commercial_trans_count: int = setting(1, effect=False)
    commercial_big_count: int = setting(1, effect=False)
    commercial_base_count: int = setting(1, effect=False)
    transfer_msg_by_heap: bool = setting(True, effect=False)
    enable_calc_filter_bit_map: bool = setting(False, effect=False)
    enable_detail_stat: bool = setting(True, effect=False)
    auto_delete_unused_stats: bool = setting(False, effect=False)
    isolate_log_enable: bool = setting(False, effect=False)
    quotas: QuotaSettings = field(default_factory=QuotaSettings)
    server: ServerSettings = field(default_factory=ServerSettings)
    connections: ConnectionSettings = field(default_factory=ConnectionSettings)
    client: ClientSettings = field(default_factory=ClientSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    tls: TlsSettings = field(default_factory=TlsSettings)
    controller_tls: ControllerTls = field(default_factory=ControllerTls)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    log: LogSettings = field(default_factory=LogSettings)

    @property
    def nameservers(self) -> list[str]:
        """The addresses of all nameservers."""
        return [part for part in (piece.strip() for piece in (self.namesrv_addr or "").split(";")) if part]

    def prefix_limits(self) -> PrefixLimits:
        """The most topics and queues by the beginning of the topics' names."""
        return PrefixLimits(numbers(self.max_topic_num_by_prefix), numbers(self.max_queue_num_by_prefix))

    @property
    def is_slave(self) -> bool:
        """Whether this broker shall be a slave; ``services.role`` says whether it is one."""
        return self.store.broker_role is BrokerRole.SLAVE

    @property
    def config_folder(self) -> Path:
        """The folder of the state files."""
        return Path(self.store.store_path_root_dir) / "config"


EVERYWHERE = frozenset({"", "0.0.0.0", "::"})
"""What bindAddress may be without being one address."""


def complete(config: BrokerConfig) -> BrokerConfig:
    """Fill in the name and the addresses of this machine.

    Raises ValueError for a slave, or a member of a group that elects its master, with the id 0.
    """
    config.broker_name = config.broker_name or machine_name()
    config.broker_ip1 = config.broker_ip1 or advertised(config.server.bind_address)
    config.broker_ip2 = config.broker_ip2 or config.broker_ip1
    if config.client.use_tls and config.tls.tls_enable is None:
        config.tls.tls_enable = True
    if config.enable_controller_mode and config.broker_id == 0:
        raise ValueError(f"brokerId {MEMBER_ID}")
    if config.is_slave and config.broker_id == 0:
        raise ValueError(f"brokerId {SLAVE_ID}")
    return config


MEMBER_ID = "must be above 0 with enableControllerMode, and each broker of the name has its own: set brokerId=1, 2 ..."
SLAVE_ID = "must be above 0 on a slave: set brokerId=1, or another brokerRole than SLAVE"


def machine_name() -> str:
    """The name of this machine as a name of brokers, which are names of topics too: other characters become ``-``."""
    return ILLEGAL.sub("-", socket.gethostname())[:TOPIC_MAX_LENGTH] or "DEFAULT_BROKER"


def advertised(bind_address: str) -> str:
    """The address for clients of a broker that listens there: that one, or the outward one of this machine."""
    return local_address() if bind_address in EVERYWHERE else bind_address


_STORE_FIELDS = tuple(rule.name for rule in fields(StoreRules))


def store_config(settings: StoreSettings) -> StoreConfig:
    """The configuration of the store. Raises ValueError for contradictory values."""
    paths = [path for path in (each.strip() for each in (settings.store_path_commit_log or "").split(",")) if path]
    if len(paths) > 1:
        raise ValueError(
            f"storePathCommitLog names {len(paths)} directories, and this broker keeps its log in one: "
            "move the files of all into one of them, and name only that"
        )
    return StoreConfig(
        store_path_root_dir=Path(settings.store_path_root_dir),
        store_path_commit_log=Path(paths[0]) if paths else None,
        flush_disk_type=settings.flush_disk_type.value,
        **{name: getattr(settings, name) for name in _STORE_FIELDS},
    )


def apply_live(settings: StoreSettings, config: StoreConfig) -> None:
    """Copy the settings that may change at run time into the store's configuration."""
    for name in _STORE_FIELDS:
        setattr(config, name, getattr(settings, name))
