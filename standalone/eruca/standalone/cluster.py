"""A nameserver and a broker in this process, for development and for tests.

Owns their start and stop in the right order. Both run the same code as the daemons. Their log goes to ``logging``,
or to structlog where the program configured it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from eruca.broker.app import BrokerApp, exit_for
from eruca.broker.config import EVERYWHERE, BrokerConfig
from eruca.broker.services.ports import HA, VIP
from eruca.client import PullConsumer
from eruca.client.config import check_positive, check_topic
from eruca.nameserver.app import Nameserver
from eruca.nameserver.config import NamesrvConfig
from eruca.protocol import api
from eruca.protocol.bodies import PERM_READ, PERM_WRITE
from eruca.protocol.headers.topics import CreateTopic
from eruca.remoting.addresses import port_number
from eruca.remoting.listener import PortKeys, PortTaken
from eruca.remoting.logs import DaemonLog, log_to_logging
from eruca.remoting.loop import settled
from eruca.remoting.operating_system import EXIT_SOFTWARE
from eruca.remoting.signals import stop_event
from eruca.remoting.tasks import unless
from eruca.standalone.settings import ClusterSettings, cluster_settings


class Names(NamedTuple):
    """The names of the arguments that choose ports and address."""

    nameserver: PortKeys = PortKeys("port", "host")
    broker: PortKeys = PortKeys("broker_port", "host")


class Cluster:
    """A nameserver and one broker. Use it with ``async with``, or call ``start`` and ``stop``.

    Args:
        folder: the folder of the store and the settings; created if it does not exist.
        host: the address to listen on, which clients get too.
        port: the nameserver's; 0 takes a free one.
        broker_port: the broker's; 0 takes free ports for it and for its VIP and HA ports.
        broker: further configuration of the broker; its addresses, ports and folder are overwritten. Default: one that
            evaluates SQL92.
        nameserver: further configuration of the nameserver; its address, port and file are overwritten.

    Raises ValueError for what is no port.
    """

    def __init__(
        self,
        folder: str | PathLike[str],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        broker_port: int = 0,
        broker: BrokerConfig | None = None,
        nameserver: NamesrvConfig | None = None,
    ) -> None:
        folder = Path(folder)
        for number in (port, broker_port):
            port_number(number, 0)
        self._host = host
        self._names = nameserver if nameserver is not None else NamesrvConfig()
        self._names.listen_port, self._names.bind_address = port, host
        self._names.kv_config_path = str(folder / "namesrv" / "kvConfig.json")
        self._names.config_store_path = str(folder / "namesrv" / "namesrv.properties")
        self._config = broker if broker is not None else cluster_settings([]).broker
        self._config.broker_ip1 = self._config.broker_ip2 = "" if host in EVERYWHERE else host
        self._config.server.bind_address = host
        self._config.server.listen_port = broker_port
        self._config.store.store_path_root_dir = str(folder / "store")
        self._nameserver: Nameserver | None = None
        self._broker: BrokerApp | None = None
        self.on_fault: Callable[[], object] | None = None
        """Called when a background task of either has ended by itself; the log says why."""
        self.names = Names()
        """What the error about a port calls them."""
        self.faults: list[str] = []
        """What the broker could not save or close at its stop."""

    @property
    def address(self) -> str:
        """The nameserver's ``host:port``, for clients. Raises RuntimeError before the start."""
        if self._nameserver is None:
            raise RuntimeError("the cluster is not running: call start() or use `async with` first")
        return self._nameserver.address

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {'not running' if self._nameserver is None else self._nameserver.address}>"

    @property
    def broker(self) -> BrokerApp:
        """The broker. Raises RuntimeError before the start."""
        if self._broker is None:
            raise RuntimeError("the cluster is not running: call start() or use `async with` first")
        return self._broker

    async def start(self) -> None:
        """Start both. Raises PortTaken when a port is taken; then neither runs."""
        log_to_logging()
        self._check_ports()
        nameserver = Nameserver(self._names)
        nameserver.tasks.on_fault = self._task_ended
        try:
            await nameserver.start()
        except PortTaken as fault:
            raise fault.renamed(self.names.nameserver) from None
        self._nameserver = nameserver
        self._config.namesrv_addr = nameserver.address
        try:
            self._broker = await self._started_broker()
        except BaseException as fault:
            await self.stop()
            if isinstance(fault, PortTaken):
                raise fault.renamed(self.names.broker) from None
            raise

    def _check_ports(self) -> None:
        """Raise PortTaken where the nameserver's port is one of the broker's three."""
        port, broker_port = self._names.listen_port, self._config.server.listen_port
        for step, what in ((0, "port"), (VIP, "VIP port"), (HA, "HA port")):
            if port and broker_port and port == broker_port + step:
                ours, theirs = self.names
                raise PortTaken(
                    f"{ours.port} {port} is the broker's {what}, too ({theirs.port} {broker_port} takes {broker_port}, "
                    f"{broker_port + VIP} and {broker_port + HA}): set another {ours.port} or {theirs.port}",
                    ours.port,
                )

    async def _started_broker(self) -> BrokerApp:
        broker = BrokerApp(self._config)
        broker.broker.tasks.on_fault = self._task_ended
        await broker.start()
        return broker

    def reload(self) -> None:
        """Read again what both can read again while they run."""
        if self._nameserver is not None:
            self._nameserver.reloads.all()
        if self._broker is not None:
            self._broker.broker.reloads.all()

    def _task_ended(self) -> None:
        if self.on_fault is not None:
            self.on_fault()

    async def stop(self) -> None:
        """Stop both. All acknowledged messages are then on disk. A second call does nothing."""
        broker, self._broker = self._broker, None
        if broker is not None:
            await broker.stop()
            self.faults += broker.faults
        nameserver, self._nameserver = self._nameserver, None
        if nameserver is not None:
            await nameserver.stop()

    async def create_topic(self, topic: str, queues: int = 8) -> str:
        """Create a topic, or change its number of queues; returns its name.

        Producers create topics with their first message; this call sets the number of queues, and creates a topic
        before its first message. Raises BadName and BadConfig for what RocketMQ does not allow.
        """
        check_topic(topic)
        check_positive(queues=queues)
        perm = PERM_READ | PERM_WRITE
        ask = CreateTopic(topic=topic, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
        async with PullConsumer(nameserver=self.address) as admin:
            await admin.session.call(self.broker.address, api.UPDATE_AND_CREATE_TOPIC, ask)
        return topic

    async def restart_broker(self) -> None:
        """Stop the broker and start another one on the same store and port."""
        old = self.broker
        self._config.server.listen_port = old.port
        await old.stop()
        self._broker = None
        self._broker = await self._started_broker()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


async def serve(
    folder: Path, host: str, port: int, broker_port: int, settings: ClusterSettings, say: DaemonLog
) -> None:
    """Run a cluster until a signal stops it, or until a task has ended by itself; ``say`` prints a line."""
    broker, nameserver, _ = settings
    cluster = Cluster(folder, host=host, port=port, broker_port=broker_port, broker=broker, nameserver=nameserver)
    cluster.names = Names(PortKeys("--port", "--host"), PortKeys("--broker-port", "--host"))

    def reload() -> None:
        say.reload(broker.log)
        cluster.reload()

    over, failed = stop_event(reload), asyncio.Event()

    def fail() -> None:
        failed.set()
        over.set()

    cluster.on_fault = fail
    try:
        if await unless(over, cluster.start()):
            settled()
            say(f"nameserver on {cluster.address}, broker on {cluster.broker.address}, files in {folder}")
            say(f"try: mqadmin clusterList -n {cluster.address}   (Ctrl-C stops)")
            await over.wait()
    finally:
        await cluster.stop()
    if failed.is_set():
        sys.exit(EXIT_SOFTWARE)
    exit_for(cluster.faults, "eruca standalone")
