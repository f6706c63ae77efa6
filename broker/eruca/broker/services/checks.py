"""The settings of a broker looked at together, and on this machine.

Owns which values do not fit together, and what a start would find in the way: folders, ports, addresses, names. Must
not know what one value may be (the fields declare that), and where a value was set. Invariant: nothing is changed on
the disk, and every port is free again.

Two values that contradict each other are a fault where both were given. Where one has its default, they are a warning:
an existing broker.conf may set the other alone.
"""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterator
from importlib.util import find_spec
from pathlib import Path

from eruca.broker.config import EVERYWHERE, MEMBER_ID, SLAVE_ID, BrokerConfig, BrokerRole, machine_name
from eruca.broker.services.etcd_check import NO_H11, etcd_findings
from eruca.broker.services.ports import HA, VIP, room_fault, take_ports
from eruca.broker.store import StoreLocked
from eruca.broker.store.config import LARGEST_FILE
from eruca.broker.store.marks import Lock
from eruca.protocol.names import topic_fault
from eruca.remoting.access.settings import access_faults
from eruca.remoting.addresses import is_numeric, split_address
from eruca.remoting.credentials import read_credentials
from eruca.remoting.files import no_folder, not_writable
from eruca.remoting.listener import PortTaken
from eruca.remoting.log_files import unusable
from eruca.remoting.log_settings import unwritable
from eruca.remoting.settings import Finding

INDEX_HEADER = 40
"""Bytes of an index file before its slots of 4 and its entries of 20."""
HEARTBEAT_OF_CLIENTS = 30_000
"""Milliseconds between two heartbeats of a client."""
REGISTRATION_PERIODS = range(10_000, 60_001)


def fits(config: BrokerConfig, given: Collection[str]) -> Iterator[Finding]:
    """What does not fit together, and folders that cannot be."""
    yield from _role(config, given)
    yield from _ports(config)
    yield from _controller(config)
    yield from _sizes(config, given)
    yield from _ratios(config, given)
    yield from _times(config, given)
    yield from config.tls.findings()
    port = config.server.listen_port
    ports = {port: "listenPort", port + VIP: "listenPort - 2", port + HA: "listenPort + 1"}
    yield from config.metrics.collisions(ports if port else {})
    for key, path in _folders(config).items():
        if (fault := no_folder(path)) is not None:
            yield Finding(key, fault)


def _folders(config: BrokerConfig) -> dict[str, Path]:
    store = config.store
    log = (store.store_path_commit_log or "").split(",")[0]
    return {"storePathRootDir": Path(store.store_path_root_dir)} | ({"storePathCommitLog": Path(log)} if log else {})


def _contradiction(given: Collection[str], keys: tuple[str, ...], sentence: str) -> Finding:
    key = next((each for each in keys if each in given), keys[0])
    return Finding(key, sentence, all(each in given for each in keys))


def _role(config: BrokerConfig, given: Collection[str]) -> Iterator[Finding]:
    store = config.store
    elects = config.enable_controller_mode
    if elects and config.broker_id == 0:
        yield Finding("brokerId", MEMBER_ID)
    elif config.is_slave and config.broker_id == 0:
        yield Finding("brokerId", SLAVE_ID)
    if not config.is_slave and config.broker_id != 0 and not elects:
        sentence = f"{config.broker_id} does not count: a master has 0; set brokerId=0, or brokerRole=SLAVE for a slave"
        yield Finding("brokerId", sentence, False)
    if config.is_slave and not config.nameservers and store.ha_master_address is None and not elects:
        sentence = "is SLAVE, and nobody names its master: set namesrvAddr, or haMasterAddress"
        yield Finding("brokerRole", sentence, False)
    if not config.nameservers:
        yield Finding("namesrvAddr", "is not set: this broker registers nowhere, and no client finds it", False)
    if store.broker_role is not BrokerRole.SLAVE and store.ha_master_address is not None:
        yield Finding("haMasterAddress", "counts on a slave only; this broker is a master", False)
    if "brokerName" not in given and topic_fault(socket.gethostname()) is not None:
        sentence = f"is {machine_name()}, as the name of this machine is no name of topics; set brokerName"
        yield Finding("brokerName", sentence, False)
    if config.broker_permission & 6 != 6:
        denied = {0: "write or read", 2: "read", 4: "write"}[config.broker_permission & 6]
        yield Finding("brokerPermission", f"{config.broker_permission} lets nobody {denied}: 6 is for both", False)


def _controller(config: BrokerConfig) -> Iterator[Finding]:
    if not config.enable_controller_mode:
        return
    if find_spec("h11") is None:
        yield Finding("enableControllerMode", NO_H11)
    if not config.controller_addr:
        yield Finding("enableControllerMode", "needs an etcd: name its members in controllerAddr")
    if config.controller_tls.named and "https:" not in (config.controller_addr or ""):
        yield Finding("controllerAddr", "has no https, so the certificates named for it are not used", False)
    if config.store.broker_role is BrokerRole.ASYNC_MASTER:
        yield Finding("brokerRole", "is ASYNC_MASTER: a failover may lose messages that were acknowledged", False)
    if not config.all_ack_in_sync_state_set:
        yield Finding("allAckInSyncStateSet", "is false: a failover may lose messages that were acknowledged", False)
        if config.in_sync_replicas < config.min_in_sync_replicas:
            yield Finding("inSyncReplicas", "must not be below minInSyncReplicas")


def _ports(config: BrokerConfig) -> Iterator[Finding]:
    if (fault := room_fault(config.server.listen_port)) is not None:
        yield Finding("listenPort", fault)


def _sizes(config: BrokerConfig, given: Collection[str]) -> Iterator[Finding]:
    store = config.store
    if len((store.store_path_commit_log or "").split(",")) > 1:
        yield Finding(
            "storePathCommitLog",
            "names several directories, and this broker keeps its log in one: "
            "move the files of all into one of them, and name only that",
        )
    if store.max_message_size > store.mapped_file_size_commit_log:
        yield _contradiction(
            given,
            ("maxMessageSize", "mappedFileSizeCommitLog"),
            f"does not fit: a file of the log (mappedFileSizeCommitLog) has {store.mapped_file_size_commit_log} bytes, "
            f"and no message of maxMessageSize ({store.max_message_size}) has room in it",
        )
    index = INDEX_HEADER + 4 * store.max_hash_slot_num + 20 * store.max_index_num
    if index > LARGEST_FILE:
        yield Finding(
            "maxIndexNum", f"and maxHashSlotNum make an index file of {index} bytes, and it has {LARGEST_FILE} at most"
        )


def _ratios(config: BrokerConfig, given: Collection[str]) -> Iterator[Finding]:
    store = config.store
    expired, forced, full = (
        store.disk_max_used_space_ratio / 100,
        store.disk_space_clean_forcibly_ratio,
        store.disk_space_warning_level_ratio,
    )
    keys = ("diskMaxUsedSpaceRatio", "diskSpaceCleanForciblyRatio", "diskSpaceWarningLevelRatio")
    for low, high, pair in ((expired, forced, keys[:2]), (forced, full, keys[1:])):
        if low > high:
            yield _contradiction(
                given, pair, f"is out of order: {pair[0]} ({low:g}) must not be above {pair[1]} ({high:g})"
            )


def _times(config: BrokerConfig, given: Collection[str]) -> Iterator[Finding]:
    store = config.store
    if store.ha_send_heartbeat_interval >= store.ha_housekeeping_interval:
        yield _contradiction(
            given,
            ("haSendHeartbeatInterval", "haHousekeepingInterval"),
            f"does not fit: a slave gives up a master after haHousekeepingInterval ({store.ha_housekeeping_interval} "
            f"ms) of silence, so haSendHeartbeatInterval ({store.ha_send_heartbeat_interval} ms) must be shorter",
        )
    if store.file_reserved_time == 0:
        yield Finding("fileReservedTime", "is 0: each file is deleted in the next hour of deleteWhen", False)
    if config.channel_expired_timeout < HEARTBEAT_OF_CLIENTS:
        sentence = f"is shorter than the {HEARTBEAT_OF_CLIENTS} ms between two heartbeats: live clients are dropped"
        yield Finding("channelExpiredTimeout", sentence, False)
    if config.register_name_server_period not in REGISTRATION_PERIODS:
        period = min(max(config.register_name_server_period, REGISTRATION_PERIODS[0]), REGISTRATION_PERIODS[-1])
        yield Finding("registerNameServerPeriod", f"is taken as {period}: write 10000 to 60000", False)


# ---------------------------------------------------------------------- this machine


def works_here(config: BrokerConfig, given: Collection[str]) -> Iterator[Finding]:
    """What a start on this machine would find in its way."""
    folders = {key: path for key, path in _folders(config).items() if no_folder(path) is None}
    faults = {key: not_writable(path) for key, path in folders.items()}
    yield from (Finding(key, fault) for key, fault in faults.items() if fault is not None)
    yield from config.tls.unusable()
    yield from unwritable(config.log)
    root = folders.get("storePathRootDir")
    if root is not None and _is_in_use(root):
        sentence = (
            f"{root} is in use by a broker that runs, so the ports and the files of the log, which it may hold, were "
            "not tried"
        )
        yield Finding("storePathRootDir", sentence, False)
    else:
        yield from _free_ports(config)
        yield from config.metrics.taken()
        yield from unusable(config.log, "broker")
    yield from _names(config)
    if config.enable_controller_mode and config.controller_addr:
        yield from etcd_findings(config.controller_addr, config.controller_tls)
    yield from access_faults(config.access, config.rocketmq_home)
    try:
        read_credentials(config.rocketmq_home)
    except ValueError as fault:
        yield Finding("rocketmqHome", f"does not work: {fault}")


def _is_in_use(root: Path) -> bool:
    if not (root / "lock").exists():
        return False
    try:
        Lock(root).release()
    except StoreLocked:
        return True
    return False


def _free_ports(config: BrokerConfig) -> Iterator[Finding]:
    if any(_ports(config)):
        return
    try:
        take_ports(config.server.bind_address, config.server.listen_port).close()
    except PortTaken as fault:
        yield Finding(fault.key, f"does not work, the broker {fault}")


def _names(config: BrokerConfig) -> Iterator[Finding]:
    hosts = [("brokerIP1", config.broker_ip1), ("brokerIP2", config.broker_ip2)]
    hosts += [("namesrvAddr", split_address(each)[0]) for each in config.nameservers]
    if config.store.ha_master_address:
        hosts.append(("haMasterAddress", split_address(config.store.ha_master_address)[0]))
    for key, host in hosts:
        if host and host not in EVERYWHERE and not is_numeric(host):
            try:
                socket.getaddrinfo(host, None)
            except OSError as fault:
                yield Finding(key, f"names {host}, which this machine cannot resolve: {fault.strerror}", False)
