"""The nameserver process: tables, key-value file, port; the command ``mqnamesrv`` (NamesrvController in 4.9.7).

Owns the order of start and stop, and the scan for silent brokers. Decides nothing about routes.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from eruca.nameserver.access_rules import RULES
from eruca.nameserver.checks import fits, works_here
from eruca.nameserver.config import NamesrvConfig, complete
from eruca.nameserver.handlers import routes
from eruca.nameserver.kv import BadKVFile, KVStore
from eruca.nameserver.metrics import add_metrics
from eruca.nameserver.routes import LiveBroker, RouteTable
from eruca.remoting import Connection, Router, run
from eruca.remoting.access.guard import Guard
from eruca.remoting.access.tally import Tally
from eruca.remoting.clock import monotonic_ms, now_ms
from eruca.remoting.command_line import command_line, configured
from eruca.remoting.connection_limits import ServerLoad
from eruca.remoting.daemon_metrics import (
    add_connections,
    add_daemon,
    add_process,
    add_quotas,
    add_security,
)
from eruca.remoting.descriptors import raise_limit
from eruca.remoting.file_settings import FileSettings
from eruca.remoting.files import NoAccess, cannot_use
from eruca.remoting.health import HealthPages
from eruca.remoting.listener import PortTaken, port_fault
from eruca.remoting.log_levels import LogLevels
from eruca.remoting.logs import DaemonLog, log_to_stderr
from eruca.remoting.loop import settled
from eruca.remoting.loop_monitor import LoopMonitor
from eruca.remoting.metrics import Metrics
from eruca.remoting.notify import Supervisor
from eruca.remoting.operating_system import EXIT_SOFTWARE
from eruca.remoting.quotas import Quotas
from eruca.remoting.readiness import Readiness
from eruca.remoting.reloads import Reloads
from eruca.remoting.router import Guard as RequestGuard
from eruca.remoting.router import changes_of
from eruca.remoting.server import Server
from eruca.remoting.settings import BadSetting, change
from eruca.remoting.signals import StopEvent, stop_event
from eruca.remoting.sources import Start
from eruca.remoting.tasks import Tasks, end
from eruca.remoting.tls_daemon import DaemonTls
from eruca.remoting.version import version

METRICS_PORT = 5558
"""Where the pages of health and metrics are unless metricsPort says otherwise."""
LINES_AT_ONCE = 10
"""Brokers that are lost together leave this many lines in the log, and one with the number of the others."""
SCAN_EVERY = 10.0
"""Seconds between two scans for silent brokers; the first comes after half of it."""

log = structlog.get_logger("eruca.nameserver")
start_log = structlog.get_logger("eruca.nameserver.start")


class Nameserver:
    """A nameserver in this process.

    ``config`` is the content of namesrv.conf; its unset paths are filled in. ``monotonic`` returns ms, by which
    silence is measured; ``file`` is its path, and ``settings`` reads it again. ``accounts`` is None without access
    control. Raises BadKVFile if the key-value file is damaged, BadAccessFile if there are no accounts though they are
    wanted.
    """

    def __init__(
        self,
        config: NamesrvConfig | None = None,
        *,
        monotonic: Callable[[], int] = monotonic_ms,
        file: Path | None = None,
        settings: FileSettings[NamesrvConfig] | None = None,
    ) -> None:
        self.file = file
        self.config = complete(config if config is not None else NamesrvConfig())
        self.table = RouteTable(self.config.room)
        self.kv = KVStore(self.config.kv_file())
        self.monotonic = monotonic
        limits = self.config.connections.limits()
        self._load = ServerLoad(limits)
        self.quotas = Quotas(self.config.quotas)
        self.readiness = Readiness()
        self.tasks = Tasks(self.readiness)
        self.reloads = Reloads()
        self.accounts = self.config.access.accounts(self.config.rocketmq_home)
        if self.accounts is not None:
            self.reloads.add("accounts", self.accounts.read, files=self.accounts.files)
        if settings is not None:
            self.reloads.add("settings", partial(settings.read, partial(change, self.config)))
        self.tls = DaemonTls(self.config.tls)
        self.tls.register(self.reloads)
        self.refusals = Tally(monotonic)
        router = Router(self, [routes], guards=self._guards())
        self._server = Server(router, limits=limits, load=self._load, tls=self.tls.port, on_lost=self._lost)
        self.loop_monitor = LoopMonitor()
        figures = self.config.metrics
        labels = {**figures.labels, "node_type": "nameserver", "node_id": socket.gethostname()}
        self.metrics = Metrics(labels, lambda: figures.metrics_otel_cardinality_limit)
        self.pages = HealthPages(self.readiness, self.loop_monitor, self.metrics, self._info, figures.off)
        """Health and metrics over HTTP; the daemon starts and stops them, so that they are there meanwhile."""
        add_process(self.metrics)
        add_daemon(self.metrics, self.readiness, self.tasks, self.loop_monitor, router.latency)
        add_security(self.metrics, self.tls, self.refusals)
        add_connections(self.metrics, (self._server,), self._load)
        add_quotas(self.metrics, self.quotas.rates)
        add_metrics(self.metrics, self.table, self.kv, self.config.room)
        self._started = now_ms()
        self.log_levels = LogLevels()
        """Those of the daemon's log, where this nameserver is one."""
        self.drained: dict[str, int] = {}
        """What waited when the stop began."""
        self._running: list[asyncio.Task[None]] = []

    def _guards(self) -> list[RequestGuard]:
        guards: list[RequestGuard] = [self.quotas] if self.quotas.on else []
        if self.accounts is not None:
            as_49, changes = self.config.access.as_49, changes_of([routes])
            guards.insert(0, Guard(self, RULES, self.accounts, self.refusals, changes=changes, as_49=as_49))
        return guards

    async def start(self) -> None:
        """Listen. Raises PortTaken if the port is taken, and NoAccess if values could not be written."""
        self.kv.check_folder()
        host, port = self.config.bind_address, self.config.listen_port
        try:
            await self._server.start(host, port)
        except OSError as error:
            raise port_fault(error, host, port) from None
        self._load.count.fit()
        if self.kv.from_backup:
            log.warning("kv_config_from_backup", file=str(self.config.kv_file()))
        start = self.tasks.start
        self._running = [
            start("scan", self._scan_silent()),
            start("reloads", self.reloads.watch()),
            start("certificates", self.tls.watch()),
        ]
        self.readiness.restore("start")

    def _info(self) -> dict[str, Any]:
        clusters = self.table.clusters()
        return {
            "version": version(),
            "role": "NAMESERVER",
            "address": self.address,
            "processId": os.getpid(),
            "started": self._started,
            "brokers": sorted(clusters.broker_addr_table),
        }

    @property
    def address(self) -> str:
        """``host:port`` for clients on this machine."""
        host = self.config.bind_address
        if host in ("", "0.0.0.0"):
            host = "127.0.0.1"
        elif ":" in host:
            host = "[::1]" if host == "::" else f"[{host}]"
        return f"{host}:{self._server.port}"

    @property
    def port(self) -> int:
        """The listening port."""
        return self._server.port

    async def stop(self) -> None:
        """Stop listening, answer the requests in progress, close every connection."""
        self.readiness.withdraw("stop", "it is stopping")
        self.drained = {"connections": len(self._server.connections)}
        await end(self._running)
        self._running.clear()
        await self._server.stop()

    def _lost(self, connection: Connection) -> None:
        _report_lost(self.table.lost(connection), "connection closed", self.monotonic())

    async def _scan_silent(self) -> None:
        """Look for silent brokers until cancelled."""
        pause = SCAN_EVERY / 2
        while True:
            await asyncio.sleep(pause)
            self.expire(self.monotonic())
            pause = SCAN_EVERY

    def expire(self, now: int) -> None:
        """Remove the brokers that were silent for too long at ``now``, and close their connections."""
        gone = self.table.expire(now)
        _report_lost(gone, "silent", now)
        for live in gone:
            if isinstance(live.connection, Connection):
                live.connection.close()


def _report_lost(gone: list[LiveBroker], reason: str, now: int) -> None:
    for live in gone[:LINES_AT_ONCE]:
        log.warning("broker_lost", broker=live.name, address=live.address, reason=reason, silent_ms=now - live.seen)
    if len(gone) > LINES_AT_ONCE:
        log.warning("brokers_lost", more=len(gone) - LINES_AT_ONCE, reason=reason)


async def serve(server: Nameserver, say: DaemonLog) -> None:
    """Run until a signal stops it, or until a task has ended by itself.

    Notifies systemd if that is the supervisor.
    """
    server.log_levels = say.levels
    server.reloads.add("log", partial(say.reload, server.config.log))
    systemd = Supervisor(os.environ)
    over = stop_event(partial(systemd.reload, server.reloads.all))
    server.tasks.on_fault = over.set
    settings = server.config.metrics
    await server.pages.start(settings.metrics_bind, settings.metrics_port, METRICS_PORT)
    try:
        await _serve(server, over, systemd, say)
    finally:
        server.loop_monitor.stop()
        await server.pages.stop()
    if server.tasks.fault is not None:
        sys.exit(EXIT_SOFTWARE)


async def _serve(server: Nameserver, over: StopEvent, systemd: Supervisor, say: DaemonLog) -> None:
    await server.start()
    settled()
    server.pages.announce()
    for warning in server.config.access.warnings(server.config.bind_address):
        start_log.warning("access", warning=warning, port=server.config.listen_port)
    say("The Name Server boot success. serializeType=JSON")
    say(f"listening on {server.config.bind_address}:{server.port}")
    say.life.started(address=server.config.bind_address, port=server.port)
    systemd.ready(f"listening on port {server.port}")
    try:
        await over.wait()
    finally:
        systemd.stopping(server.tasks.fault or "")
        say.life.stopping(over.cause or server.tasks.fault or "an error")
        await server.stop()
        say.life.stopped(server.drained)


def main() -> None:
    """The command ``mqnamesrv``: exits with 78 for a wrong configuration, else with 1 when it cannot start."""
    start = configured(NamesrvConfig, "mqnamesrv", sys.argv[1:], os.environ, fits=fits, works_here=works_here)
    again = partial(command_line, NamesrvConfig, "mqnamesrv", sys.argv[1:], os.environ, fits=fits)
    settings = FileSettings(start, again)
    if start.file is not None and not start.config.config_store_path:
        start.config.config_store_path = str(Path(start.file).absolute())
    with log_to_stderr() as say:
        raise_limit()
        say.settle(start.config.log, "namesrv")
        config = start.config
        say.life.starting(
            "mqnamesrv",
            config,
            start.file,
            connections=config.connections.server_max_connections,
            acl=config.access.acl_enable,
            tls=config.tls.mode.name,
        )
        for warning in start.warnings:
            start_log.warning("configuration", warning=warning)
        _run(start, settings, say)


def _run(start: Start[NamesrvConfig], settings: FileSettings[NamesrvConfig], say: DaemonLog) -> None:
    config = start.config
    try:
        server = Nameserver(config, file=Path(start.file) if start.file else None, settings=settings)
    except (ValueError, NoAccess) as fault:
        raise BadSetting(f"mqnamesrv: {fault}") from None
    except BadKVFile as fault:
        sys.exit(f"mqnamesrv: {fault}")
    try:
        run(serve(server, say))
    except NoAccess as fault:  # it does not pass by itself
        raise BadSetting(f"mqnamesrv: {fault}") from None
    except PortTaken as fault:
        sys.exit(f"mqnamesrv: {fault}")
    except OSError as fault:
        sys.exit(f"mqnamesrv: cannot start: {cannot_use(fault)}")


if __name__ == "__main__":
    main()
