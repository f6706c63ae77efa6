"""The broker object: everything that handlers work with, in one place.

Owns nothing but the putting together: configuration, state, store and services, each a plain attribute. Knows no
listening sockets (see ``app``) and no requests (see ``handlers``).
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable

from eruca.broker.config import BrokerConfig, complete, store_config
from eruca.broker.services.holds import Holds
from eruca.broker.services.registration import Registration
from eruca.broker.state.clients import Clients
from eruca.broker.state.groups import Groups
from eruca.broker.state.locks import Locks
from eruca.broker.state.offsets import Offsets
from eruca.broker.state.statistics import Statistics
from eruca.broker.state.topics import READ_WRITE, Topics
from eruca.broker.store import Store
from eruca.protocol import names
from eruca.protocol.bodies import PERM_INHERIT

SCHEDULE_QUEUES = 18
BENCHMARK_QUEUES = 1024
CLUSTER_TOPIC_QUEUES = 16


def wall_clock() -> int:
    """Now, in ms since 1970."""
    return int(time.time() * 1000)


class Broker:
    """One broker.

    ``config`` is completed (name and addresses); ``clock`` gives ms. ``address`` (``ip:port``), ``ha_address`` and
    ``store_host`` (address and port in bytes, as records keep them) are right once ``listen_on`` was told the ports.
    ``accepting`` is true from the start to the stop: outside of it sends are answered with 14.
    """

    def __init__(self, config: BrokerConfig, *, clock: Callable[[], int] = wall_clock) -> None:
        self.config = complete(config)
        self.clock = clock
        folder = config.config_folder
        self.topics = Topics(folder / "topics.json", clock)
        self.groups = Groups(folder / "subscriptionGroup.json", clock, lambda: config.auto_create_subscription_group)
        self.offsets = Offsets(folder / "consumerOffset.json")
        self.clients = Clients()
        self.locks = Locks()
        self.store = Store(store_config(config.store), clock=clock)
        self.holds = Holds()
        self.statistics = Statistics(config.broker_cluster_name, clock())
        self.registration = Registration(config, self.topics)
        self.accepting = False
        self.address = ""
        self.ha_address = ""
        self.store_host = b""
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
        """Learn the ports that are really listened on; the HA port is ``port`` and one where it is not given."""
        ip = self.config.broker_ip1
        self.address = f"{ip}:{port}"
        self.ha_address = f"{self.config.broker_ip2}:{port + 1 if ha_port is None else ha_port}"
        self.store_host = host_bytes(ip, port)
        self.registration.advertise(self.address, self.ha_address)

    def load(self) -> None:
        """Read the JSON files and have the system topics. Raises StateUnreadable."""
        self._add_system_topics()
        self.topics.load()
        template = self.topics.get(names.DEFAULT_TOPIC)
        if template is not None and not self.config.auto_create_topic_enable:
            template.perm &= ~PERM_INHERIT  # kept from a time when it was enabled
        self.groups.load()
        self.offsets.load()

    def _add_system_topics(self) -> None:
        config, add = self.config, self.topics.add_system
        add(names.SELF_TEST_TOPIC)
        if config.auto_create_topic_enable:
            add(names.DEFAULT_TOPIC, config.default_topic_queue_nums, READ_WRITE | PERM_INHERIT)
        add(names.BENCHMARK_TOPIC, BENCHMARK_QUEUES)
        cluster_perm = READ_WRITE if config.cluster_topic_enable else 0
        add(config.broker_cluster_name, CLUSTER_TOPIC_QUEUES, PERM_INHERIT | cluster_perm)
        add(config.broker_name, 1, PERM_INHERIT | (READ_WRITE if config.broker_topic_enable else 0))
        add(names.OFFSET_MOVED_EVENT)
        add(names.SCHEDULE_TOPIC, SCHEDULE_QUEUES)
        if config.trace_topic_enable:
            add(config.msg_trace_topic_name)
        add(names.reply_topic(config.broker_cluster_name))


def host_bytes(ip: str, port: int) -> bytes:
    """An address as records keep it: 4 or 16 bytes and a 4-byte port."""
    try:
        packed = ipaddress.ip_address(ip).packed
    except ValueError:  # a host name: records hold numbers only
        packed = bytes(4)
    return packed + port.to_bytes(4, "big")
