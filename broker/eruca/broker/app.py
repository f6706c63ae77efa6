"""The broker process: starts and stops state, store, services and ports in order; the command ``mqbroker``
(BrokerController and BrokerStartup in 4.9.7).

Owns that order, the periodic tasks, and the two routers. Decides nothing about messages. Invariant: after a stop,
everything that was acknowledged is on disk.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from eruca.broker.broker import Broker
from eruca.broker.config import BrokerConfig, store_config
from eruca.broker.coordination.port import Coordinator
from eruca.broker.duties import Duties
from eruca.broker.failover.member import Member
from eruca.broker.handlers import TABLES
from eruca.broker.handlers.access_rules import RULES
from eruca.broker.handlers.clients import connection_lost, drop_silent
from eruca.broker.handlers.fast_path import fast_path
from eruca.broker.handlers.former_master import passing_on
from eruca.broker.handlers.new_topics import NewTopics
from eruca.broker.membership import Membership, forget_lost_tables
from eruca.broker.metrics import add_metrics
from eruca.broker.services.advertised import AdvertisedAddress
from eruca.broker.services.checks import fits, works_here
from eruca.broker.services.health import state, watch_readiness
from eruca.broker.services.periodic import repeated
from eruca.broker.services.ports import Ports, take_ports
from eruca.broker.services.replication.ha_client import NO_MASTER
from eruca.broker.services.runtime import moment
from eruca.broker.state.state_file import StateUnreadable
from eruca.broker.state.statistics import SECOND
from eruca.broker.store import FileSystem, StoreDamaged, StoreLocked, StoreTooNew, native
from eruca.broker.store.cut import CutRefused, intend_cut
from eruca.broker.store.epoch_file import leave_group
from eruca.protocol.codes import RequestCode
from eruca.remoting import Connection, FastPath, Router, run
from eruca.remoting.access.guard import Guard
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
from eruca.remoting.listener import PortTaken
from eruca.remoting.logs import DaemonLog, log_to_stderr
from eruca.remoting.loop import settled
from eruca.remoting.notify import Supervisor
from eruca.remoting.operating_system import EXIT_SOFTWARE
from eruca.remoting.quotas import Quotas
from eruca.remoting.router import Guard as RequestGuard
from eruca.remoting.router import changes_of
from eruca.remoting.server import Server
from eruca.remoting.settings import BadSetting
from eruca.remoting.signals import StopEvent, stop_event
from eruca.remoting.sources import Start
from eruca.remoting.tasks import end, unless
from eruca.remoting.version import version

NOT_AT_VIP = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})
"""The requests that the VIP port does not serve."""
SAVE_EVERY = 1.0
"""Seconds between two saves of topics and groups that were created automatically."""
SAVE_FILTERS_EVERY = 10.0
"""Seconds between two saves of changed filters, as in RocketMQ."""
DROP_EVERY = 10.0
"""Seconds between two searches for silent clients, unless channelExpiredTimeout is shorter."""
FIRST_REPORT = 0.5
"""Seconds of a start that need no report of its progress."""
REPORT_EVERY = 10.0
"""Seconds between two reports of a start's progress."""
METRICS_PORT = 5557
"""Where the pages of health and metrics are unless metricsPort says otherwise; RocketMQ 5's metricsPromExporterPort."""
STOP_GRACE = 3.0
"""Seconds that a stop waits for requests in progress."""
NO_NATIVE_STEP = (
    "a message costs several times the CPU: take the wheel of this platform, or install again with a C compiler and "
    "Python's headers"
)
"""What a broker says that has no native step: pip shows nothing of how a build went."""

CANNOT_START = (
    PortTaken,
    StateUnreadable,
    StoreDamaged,
    StoreLocked,
    StoreTooNew,
)
"""What ends a start with one sentence, and may pass by itself or by an operator's hand."""

log = structlog.get_logger("eruca.broker")
start_log = structlog.get_logger("eruca.broker.start")


class BrokerApp:
    """A broker in this process.

    ``config`` is the content of broker.conf, ``file`` its path, where changes at run time are saved, ``given`` the keys
    that were set in it or elsewhere; ``settings`` reads it again. ``clock`` returns ms since 1970, ``monotonic`` the ms
    by which durations are measured, ``file_system`` is the store's. Several may run on one event loop, each with its
    own store. Handlers work with ``broker``.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Callable[[], int] = now_ms,
        monotonic: Callable[[], int] = monotonic_ms,
        file: Path | None = None,
        given: Iterable[str] = (),
        settings: FileSettings[BrokerConfig] | None = None,
        file_system: FileSystem | None = None,
        coordinator: Coordinator | None = None,
    ) -> None:
        self.config = config
        self.broker = Broker(config, clock=clock, monotonic=monotonic, file_system=file_system)
        self.broker.configuration.file = file
        self.broker.configuration.given.update(given)
        if settings is not None:
            self.broker.reloads.add("settings", partial(settings.read, self.broker.take))
        limits = config.connections.limits()
        self.quotas = Quotas(config.quotas)
        self.new_topics = NewTopics(self.broker.topics, config.quota_new_topics_per_second)
        fast, guards = self._guarded(fast_path(self.broker))
        latency = self.broker.rpc_latency
        tables = TABLES if self.broker.relay is None else passing_on(TABLES)
        main = Router(self.broker, tables, guards=guards, fast_path=fast, latency=latency)
        vip = Router(self.broker, tables, without=NOT_AT_VIP, guards=guards, fast_path=fast, latency=latency)
        self._load = ServerLoad(limits)
        tls = self.broker.tls.port
        self._main = Server(main, limits=limits, load=self._load, tls=tls, on_lost=self._lost)
        self._vip = Server(vip, limits=limits, load=self._load, tls=tls, on_lost=self._lost)
        self.faults: list[str] = []
        """What could not be saved or closed at the stop."""
        self.pages = self._health_pages()
        """Health and metrics over HTTP; the daemon starts and stops them, so that they are there meanwhile."""
        self.drained: dict[str, int] = {}
        """What waited when the stop began."""
        self.cut_to: int | None = None
        """Where the log is to be cut off before this broker starts again, to follow its master; None if it is not."""
        self.on_cut: Callable[[], object] = bool
        """Called when ``cut_to`` is set: stop this broker, and start it again."""
        self._coordinator = coordinator
        self._membership: Membership | None = None
        self._duties = Duties(self.broker)
        self.broker.ha_client.on_damage = self._cut_off
        self._ports: Ports | None = None
        self._numbers = (0, 0, 0)
        self._tasks: list[asyncio.Task[None]] = []

    def _guarded(self, fast: FastPath) -> tuple[FastPath | None, list[RequestGuard]]:
        """What takes requests first, and what guards the others; quotas of requests or bytes look at each of them."""
        broker = self.broker
        guards: list[RequestGuard] = [each for each in (self.quotas, self.new_topics) if each.on]
        if broker.accounts is not None:
            as_49, changes = self.config.access.as_49, changes_of(TABLES)
            guard = Guard(broker, RULES, broker.accounts, broker.refusals, changes=changes, as_49=as_49)
            fast = guard.for_white_addresses(fast)
            guards.insert(0, guard)
        return None if self.quotas.on else fast, guards

    def _health_pages(self) -> HealthPages:
        broker, settings = self.broker, self.config.metrics
        watch_readiness(broker.readiness, broker.role, broker.store, broker.registration, self._copy_fault)
        add_process(broker.metrics)
        add_daemon(broker.metrics, broker.readiness, broker.tasks, broker.loop_monitor, broker.rpc_latency)
        add_security(broker.metrics, broker.tls, broker.refusals)
        add_connections(broker.metrics, (self._main, self._vip), self._load)
        add_quotas(broker.metrics, {**self.quotas.rates, "new_topics": self.new_topics.rate})
        add_metrics(broker)
        more = {"/master": self._leads}
        return HealthPages(broker.readiness, broker.loop_monitor, broker.metrics, self._info, settings.off, more)

    def _leads(self) -> tuple[dict[str, Any], bool]:
        """Whether this broker is the master of its name, and surely so where the group elects it."""
        broker = self.broker
        leads = broker.accepting and (not broker.role.epoch or broker.registration.is_sure())
        return {"master": leads, "brokerName": broker.name, "epoch": broker.role.epoch}, leads

    def _copy_fault(self) -> str | None:
        """Why this slave does not copy its master's log; None while it does."""
        if self.broker.confirmation is None:
            return self.broker.ha_client.fault
        return NO_MASTER if self._membership is None else self._membership.fault

    def _info(self) -> dict[str, Any]:
        broker = self.broker
        return state(
            self.config, broker.role, broker.store, broker.address, broker.statistics.booted, version(), native.on
        )

    @property
    def address(self) -> str:
        """``ip:port`` as nameservers and clients know it."""
        return self.broker.address

    @property
    def ports(self) -> dict[str, int]:
        """The bound ports, without that of the metrics."""
        return dict(zip(("port", "vip_port", "ha_port"), self._numbers, strict=True)) if self._ports else {}

    @property
    def member(self) -> Member | None:
        """What this broker knows of its group, where that elects its master; None while it takes no part."""
        return self._membership.driver.member if self._membership is not None else None

    @property
    def port(self) -> int:
        """The port of the main listener."""
        return self._main.port

    def rejoin(self) -> None:
        """This broker took part in its group a moment ago, and clients may still take it for the master."""
        if self.broker.relay is not None:
            self.broker.relay.follow()

    # ------------------------------------------------------------------ start

    async def start(self) -> None:
        """Take the ports, load and recover what is on disk, serve, register.

        Raises PortTaken, NoAccess, StateUnreadable, StoreLocked, StoreDamaged, StoreTooNew or OSError; then nothing is
        left running.
        """
        server = self.config.server
        self._ports = take_ports(server.bind_address, server.listen_port)
        try:
            await self._start(self._ports)
        except BaseException:
            await self.stop()
            raise

    async def _start(self, ports: Ports) -> None:
        broker = self.broker
        port, vip_port, ha_port = self._numbers = ports.numbers
        if not ports.adjacent:
            start_log.warning("ports_apart", port=port, vip=vip_port, ha=ha_port, advice="set a listenPort")
        broker.listen_on(port, ha_port)
        root = broker.store.config.store_path_root_dir
        if broker.confirmation is None and await asyncio.to_thread(leave_group, root):
            start_log.warning("group_left", reason="enableControllerMode is false: the group knows this log no more")
        await asyncio.to_thread(broker.store.finish_cut)
        broker.load()
        if broker.confirmation is not None:
            await asyncio.to_thread(forget_lost_tables, broker)
        await self._opened()
        if broker.confirmation is not None:
            broker.confirmation.begin()
        broker.store.start()
        await self._duties.begin(ports.ha)
        broker.loop_monitor.start()
        start = broker.tasks.start
        self._tasks = [
            start("statistics", self._sample_statistics()),
            start("offsets", repeated(self.config.flush_consumer_offset_interval / 1000, broker.offsets.saved)),
            start("topics and groups", repeated(SAVE_EVERY, self._save_created)),
            start("deleted topics", repeated(SAVE_EVERY, broker.deletions.saved)),
            start("filters", repeated(SAVE_FILTERS_EVERY, broker.filters.saved)),
            start("silent clients", repeated(self._drop_every, self._drop_silent)),
            start("reloads", broker.reloads.watch()),
            start("memory", broker.memory_alarm.watch()),
            start("advertised address", AdvertisedAddress(lambda: broker.address).watch()),
            start("certificates", broker.tls.watch()),
        ]
        self._load.count.fit()
        await self._main.start_on(ports.main)
        await self._vip.start_on(ports.vip)
        await broker.registration.start()
        self._duties.keep()
        await self._join_group(ports)
        broker.readiness.restore("start")

    async def _join_group(self, ports: Ports) -> None:
        """Take part in the group, where it elects its master."""
        if self.broker.confirmation is not None:
            if self._coordinator is None:
                from eruca.broker.coordination.etcd import Etcd  # needs h11, of the extra

                endpoints = (self.config.controller_addr or "").split(";")
                secured = any(each.startswith("https") for each in endpoints)
                self._coordinator = Etcd(endpoints, self.config.controller_tls.files() if secured else None)
            self._membership = Membership(self.broker, self._coordinator, self._cut_off)
            await self._membership.start(ports.ha)

    def _cut_off(self, end: int) -> None:
        self.cut_to = end
        self.on_cut()

    async def _opened(self) -> None:
        """Recover in a thread, so that the loop answers signals meanwhile. A cancellation waits for the thread, which
        ends at its next step."""
        recovery = asyncio.get_running_loop().run_in_executor(None, self._recover)
        try:
            await asyncio.shield(recovery)
        except asyncio.CancelledError:
            self.broker.store.progress.stop()
            await asyncio.gather(recovery, return_exceptions=True)
            raise

    def _recover(self) -> None:
        """Open the store and find what is undecided and delayed; nobody else uses either meanwhile."""
        broker = self.broker
        report = broker.store.open()
        log.info(
            "store_opened",
            clean=report.clean,
            seconds=round(report.seconds, 3),
            end_offset=report.end_offset,
            native_step=native.on,
        )
        if native.absent:
            log.info("native_step_absent", advice=NO_NATIVE_STEP)
        for note in report.notes:
            start_log.warning("store_recovery", note=note)
        for damage in report.damages:
            start_log.error("store_damaged", start=damage.start, end=damage.end, reason=damage.reason)
        self._duties.recover()

    async def report_start(self, supervisor: Supervisor) -> None:
        """Until cancelled, say how far a start has come that takes long: to the supervisor, and in the log."""
        progress = self.broker.store.progress
        pause = FIRST_REPORT
        while True:
            await asyncio.sleep(pause)
            pause = REPORT_EVERY
            supervisor.starting(f"recovering: {progress.percent}%, file {progress.file}", 3 * REPORT_EVERY)
            start_log.info("store_recovering", percent=progress.percent, file=progress.file)

    async def _sample_statistics(self) -> None:
        """Take a sample of the statistics every second, until cancelled."""
        broker = self.broker
        due = broker.monotonic()
        while True:
            now = broker.monotonic()
            broker.statistics.sample(moment(broker.store.figures(), now), broker.clock())
            due = max(due + SECOND, now + 1)
            await asyncio.sleep((due - now) / SECOND)

    # ------------------------------------------------------------------ while it runs

    def _lost(self, connection: Connection) -> None:
        connection_lost(self.broker, connection)

    @property
    def _drop_every(self) -> float:
        return min(DROP_EVERY, self.config.channel_expired_timeout / 1000)

    async def _save_created(self) -> None:
        await self.broker.topics.saved()
        await self.broker.groups.saved()

    async def _drop_silent(self) -> None:
        now = self.broker.monotonic()
        drop_silent(self.broker, now)
        self.broker.locks.drop_expired(now)

    # ------------------------------------------------------------------ stop

    async def stop(self) -> None:
        """Hand the mastership over, leave the nameservers, stop accepting, answer held pulls, drain, save, flush and
        close the store."""
        broker = self.broker
        broker.readiness.withdraw("stop", "it is stopping")
        if self._membership is not None:
            await self._membership.hand_over()
        self.drained = {
            "connections": len(self._main.connections) + len(self._vip.connections),
            "held_pulls": len(broker.holds),
            "waiting_sends": broker.waiting_sends,
        }
        await self._duties.freeze()
        await broker.registration.stop()
        self._main.stop_accepting()
        self._vip.stop_accepting()
        broker.holds.close()
        await self._duties.sends_ended()
        if self._membership is not None:
            await self._membership.stop()
            self._membership = None
        await self._main.stop(STOP_GRACE)
        await self._vip.stop(STOP_GRACE)
        await broker.begun.close()
        if broker.relay is not None:
            await broker.relay.close()
        await end(self._tasks)
        self._tasks.clear()
        await self._duties.stop()
        tables = (broker.topics, broker.groups, broker.offsets, broker.filters, broker.deletions, broker.delays)
        for kept in tables:
            try:
                kept.save()
            except OSError as error:
                self._fault(error)
        await broker.store.stop()
        fault = broker.store.close()
        if fault is not None:
            self.faults.append(f"the store was not closed in order ({fault}), the next start recovers it")
        broker.loop_monitor.stop()
        if self._ports is not None:
            self._ports.close()
            self._ports = None

    def _fault(self, error: OSError) -> None:
        log.error("state_not_saved", error=str(error))
        self.faults.append(str(error))


async def serve(app: BrokerApp, say: DaemonLog) -> None:
    """Run until a signal stops it, or until a task has ended by itself."""
    app.broker.log_levels = say.levels
    app.broker.reloads.add("log", partial(say.reload, app.config.log))
    supervisor = Supervisor(os.environ)
    over = stop_event(partial(supervisor.reload, app.broker.reloads.all))
    tasks = app.broker.tasks
    tasks.on_fault = app.on_cut = over.set
    settings = app.config.metrics
    await app.pages.start(settings.metrics_bind, settings.metrics_port, METRICS_PORT)
    try:
        if await _started(app, over, supervisor):
            await _serve(app, over, supervisor, say)
    finally:
        await app.pages.stop()
    if tasks.fault is not None:
        sys.exit(EXIT_SOFTWARE)
    exit_for(app.faults, "mqbroker")


async def _serve(app: BrokerApp, over: StopEvent, supervisor: Supervisor, say: DaemonLog) -> None:
    settled()
    app.pages.announce()
    for warning in app.config.access.warnings(app.config.server.bind_address):
        start_log.warning("access", warning=warning, port=app.config.server.listen_port)
    nameservers = f" and name server is {app.config.namesrv_addr}" if app.config.namesrv_addr else ""
    say(f"The broker[{app.broker.name}, {app.address}] boot success. serializeType=JSON{nameservers}")
    say.life.started(address=app.address, ha_address=app.broker.ha_address, **app.ports)
    supervisor.ready(f"listening on {app.address}")
    try:
        await over.wait()
    finally:
        if app.cut_to is None:
            fault = app.broker.tasks.fault or ""
            supervisor.stopping(fault)
            say.life.stopping(over.cause or fault or "an error")
        else:
            say.life.stopping("its log is cut off, and it starts again in this process")
        await app.stop()
        say.life.stopped(app.drained, len(app.faults))


async def _started(app: BrokerApp, over: asyncio.Event, supervisor: Supervisor) -> bool:
    """Start; False when a signal came before the end of it, and all is stopped again."""
    reports = app.broker.tasks.start("reports of the start", app.report_start(supervisor))
    try:
        started = await unless(over, app.start())
    finally:
        await end([reports])
    if not started:
        supervisor.stopping("stopped before the end of the start")
        start_log.info("start_stopped", percent=app.broker.store.progress.percent)
    return started


def exit_for(faults: list[str], command: str) -> None:
    """Exit with 1 and a sentence when a stop has left faults."""
    if faults:
        sys.exit(f"{command}: stopped, but not everything could be saved: {'; '.join(faults)}")


def main() -> None:
    """The command ``mqbroker``: exits with 78 for a wrong configuration, else with 1 when it cannot start."""
    start = configured(BrokerConfig, "mqbroker", sys.argv[1:], os.environ, fits=fits, works_here=works_here)
    with log_to_stderr() as say:
        raise_limit()
        say.settle(start.config.log, "broker")
        config = start.config
        say.life.starting(
            "mqbroker",
            config,
            start.file,
            native_step=native.on,
            connections=config.connections.server_max_connections,
            acl=config.access.acl_enable,
            tls=config.tls.mode.name,
        )
        for warning in start.warnings:
            start_log.warning("configuration", warning=warning)
        _run(start, say)


def _run(start: Start[BrokerConfig], say: DaemonLog) -> None:
    again = partial(command_line, BrokerConfig, "mqbroker", sys.argv[1:], os.environ, fits=fits)
    file = Path(start.file) if start.file else None
    rejoins = False
    try:
        while True:
            app = _app(start, file, FileSettings(start, again))
            if rejoins:
                app.rejoin()
            run(serve(app, say))
            if app.cut_to is None:
                break
            intend_cut(store_config(start.config.store), app.cut_to, FileSystem(), as_master=True)
            rejoins = True
    except NoAccess as fault:  # it does not pass by itself
        raise BadSetting(f"mqbroker: {fault}") from None
    except CANNOT_START as fault:
        sys.exit(f"mqbroker: {fault}")
    except CutRefused as fault:
        sys.exit(f"mqbroker: the log cannot be cut off as the master's is: {fault}; empty the store")
    except OSError as fault:
        sys.exit(f"mqbroker: cannot start: {cannot_use(fault, Path(start.config.store.store_path_root_dir))}")


def _app(start: Start[BrokerConfig], file: Path | None, settings: FileSettings[BrokerConfig]) -> BrokerApp:
    try:
        return BrokerApp(start.config, file=file, given=start.origins, settings=settings)
    except ValueError as fault:
        raise BadSetting(f"mqbroker: {fault}") from None


if __name__ == "__main__":
    main()
