"""The nameserver's settings under the names of ``namesrv.conf``.

Owns the keys, their defaults, and which of them may change at run time (request 318), which no path may. Must not know
how the keys are read (``eruca.remoting.settings``). The keys are those of NamesrvConfig and, where they apply,
NettyServerConfig in 4.9.7.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from eruca.nameserver.routes import Room
from eruca.remoting.access.settings import AccessSettings
from eruca.remoting.addresses import LAST_PORT, are_addresses, is_host
from eruca.remoting.connection_limits import ConnectionSettings
from eruca.remoting.log_settings import LogSettings
from eruca.remoting.metrics import MetricsSettings
from eruca.remoting.quotas import QuotaSettings
from eruca.remoting.settings import setting
from eruca.remoting.tls_settings import TlsSettings


@dataclass(kw_only=True)
class NamesrvConfig:
    """All settings of a nameserver; times are in seconds."""

    listen_port: int = setting(9876, at_least=0, at_most=LAST_PORT, important=True)
    """The port for brokers and clients; 0 takes a free one."""
    bind_address: str = setting(
        "0.0.0.0", important=True, valid=is_host, words="an address of this machine, 0.0.0.0 or ::"
    )
    """The address to listen on; ``0.0.0.0`` stands for all IPv4 addresses of this machine, ``::`` for all addresses."""
    rocketmq_home: str = setting("", path=True, environment="ROCKETMQ_HOME")
    """The folder of the files; empty: the home directory of the user."""
    kv_config_path: str = setting("", path=True, important=True)
    """The file of the key-value configuration; empty: ``namesrv/kvConfig.json`` under the home."""
    config_store_path: str = setting("", path=True, important=True)
    """The file of changed settings; empty: the file of -c, else ``namesrv/namesrv.properties`` under the home."""
    product_env_name: str = setting("center", live=True, effect=False)
    """The name of this environment; shown, not used."""
    order_message_enable: bool = setting(False, live=True)
    """Whether routes carry the order configuration of their topic."""
    allow_broker_takeover: bool = setting(False)
    """Whether a broker may take the name and id of a connected broker at another address, as in 4.9."""
    max_registered_brokers: int = setting(10_000, at_least=0, live=True)
    """The most brokers that are registered at a time, masters and slaves; 0 for any number."""
    max_registered_topics: int = setting(1_000_000, at_least=0, live=True)
    """The most topics of brokers that have routes, where a topic counts once for each broker name that has it; 0 for
    any number."""
    access: AccessSettings = field(default_factory=AccessSettings)
    namesrv_addr: str | None = setting(None, valid=are_addresses, words="host:port, several joined by ;", effect=False)
    """Accepted because start scripts pass -n; nameservers do not know one another."""
    log: LogSettings = field(default_factory=LogSettings)
    connections: ConnectionSettings = field(default_factory=ConnectionSettings)
    quotas: QuotaSettings = field(default_factory=QuotaSettings)
    tls: TlsSettings = field(default_factory=TlsSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)

    def room(self) -> Room:
        """How many brokers and topics may be registered."""
        return Room(self.max_registered_brokers, self.max_registered_topics)

    def kv_file(self) -> Path:
        """The file of the key-value configuration."""
        return Path(self.kv_config_path)

    def settings_file(self) -> Path:
        """The file of settings that were changed at run time."""
        return Path(self.config_store_path)


def complete(config: NamesrvConfig) -> NamesrvConfig:
    """Fill in the unset paths of a configuration, in place; returns it."""
    home = Path(config.rocketmq_home or os.path.expanduser("~"))
    config.rocketmq_home = str(home)
    config.kv_config_path = config.kv_config_path or str(home / "namesrv" / "kvConfig.json")
    config.config_store_path = config.config_store_path or str(home / "namesrv" / "namesrv.properties")
    return config
