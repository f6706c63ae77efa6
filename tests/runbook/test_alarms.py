"""Each alarm of the runbook, produced with real daemons: its alert fires, its commands run as they stand, and after the
remedy it is silent.

promtool judges the alerts, with the metrics of the daemons as its series (``tests/support/prometheus``).
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from eruca.client import Message
from eruca.client.sync import Producer, PushConsumer
from tests.house.tree import ROOT
from tests.support.certificates import Certificates
from tests.support.disks import LossyDisk, SmallDisk, needs_lossy_disk
from tests.support.eruca import ErucaNameServer
from tests.support.ports import free_broker_port, free_port
from tests.support.processes import Process
from tests.support.prometheus import INSTALLED, WHY, firing

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.skipif(not INSTALLED, reason=WHY)]
BIN = Path(sys.executable).parent
TOPIC, GROUP = "Orders", "orders-workers"
_SECTIONS = dict(re.findall(r"(?ms)^## (\S+)\n(.*?)(?=^## |\Z)", (ROOT / "docs" / "runbook.md").read_text()))


class Site:
    """A nameserver and a broker with its pages, and what an operator sees of them."""

    def __init__(
        self,
        folder: Path,
        settings: str = "",
        *,
        nameserver: str = "",
        store: Path | None = None,
        program: Sequence[str] = (str(BIN / "mqbroker"),),
    ) -> None:
        self.folder = folder
        self._program = program
        self.store = store if store is not None else folder / "store"
        folder.mkdir(exist_ok=True)
        self._own = None if nameserver else ErucaNameServer(folder / "namesrv")
        self.nameserver = nameserver or self._address_of(self._own)
        self.port, self.pages = free_broker_port(), free_port()
        self.conf = folder / "broker.conf"
        self.write(settings)
        self.start()

    @staticmethod
    def _address_of(own: ErucaNameServer | None) -> str:
        assert own is not None
        return own.address

    def write(self, settings: str = "", name: str = "broker-a") -> None:
        """Write the configuration anew, with further settings."""
        self.conf.write_text(
            f"brokerName={name}\nlistenPort={self.port}\nbindAddress=127.0.0.1\nbrokerIP1=127.0.0.1\n"
            f"storePathRootDir={self.store}\nnamesrvAddr={self.nameserver}\n"
            f"mappedFileSizeCommitLog=4194304\nregisterNameServerPeriod=10000\n{settings}\n"
        )

    def start(self, errors: int | None = None) -> None:
        """Start the broker; its log goes to ``errors``, if that is given."""
        environment = {"ERUCA_METRICS_PORT": str(self.pages)}
        self.broker = Process(
            [*self._program, "-c", str(self.conf)], self.folder / "broker.log", env=environment, errors=errors
        )
        self.broker.wait_for_line("boot success")

    def stop(self) -> None:
        """Stop both."""
        self.broker.stop()
        if self._own is not None:
            self._own.stop()

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def scrape(self) -> str:
        """The page of metrics; empty when nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.pages}/metrics", timeout=10) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def firing(self, before: str = "") -> set[str]:
        """The alerts that fire now, after the scrape ``before``."""
        return firing(before or self.scrape(), self.scrape(), self.folder)

    def until(self, *alerts: str, before: str = "", within: float = 60) -> None:
        """Wait until these alerts fire; AssertionError if they do not in time."""
        self._wait(lambda found: set(alerts) <= found, f"{alerts}", before, within)

    def until_silent(self, *alerts: str, within: float = 60) -> None:
        """Wait until none of these alerts fires any more."""
        self._wait(lambda found: not set(alerts) & found, f"an end of {alerts}", "", within)

    def _wait(self, ready: Callable[[set[str]], bool], what: str, before: str, within: float) -> None:
        deadline = time.monotonic() + within
        while not ready(found := self.firing(before)):
            assert time.monotonic() < deadline, f"no {what}, but {found}\n{self.broker.output[-3000:]}"
            time.sleep(0.5)

    def commands_of(self, section: str) -> str:
        """Run the commands of a section as they stand; what they print. They end with 0, each of them."""
        environment = os.environ | {
            "NAMESRV": self.nameserver,
            "BROKER": f"127.0.0.1:{self.port}",
            "PAGES": f"http://127.0.0.1:{self.pages}",
            "STORE": str(self.store),
            "CONF": str(self.conf),
            "TOPIC": TOPIC,
            "GROUP": GROUP,
            "PATH": f"{BIN}:{os.environ['PATH']}",
        }
        blocks = re.findall(r"(?ms)^```sh\n(.*?)^```", _SECTIONS[section])
        assert blocks, section
        said = ""
        for block in blocks:
            ran = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block],
                env=environment,
                cwd=self.store.parent,  # consumerStatus writes files where it is
                capture_output=True,
                text=True,
            )
            assert ran.returncode == 0, f"{block}\n{ran.stdout}{ran.stderr}"
            said += ran.stdout + ran.stderr
        return said

    def send(self, count: int) -> None:
        """Send messages of the topic."""
        with Producer("orders", nameserver=self.nameserver) as producer:
            for at in range(0, count, 100):
                producer.send_batch([Message(TOPIC, f"order {at + n}".encode()) for n in range(min(100, count - at))])


def test_a_healthy_broker_raises_no_alarm(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        before = site.scrape()
        site.send(10)
        assert firing(before, site.scrape(), tmp_path) == set()


def test_down(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        before = site.scrape()
        site.broker.kill()
        assert "ErucaDown" in site.firing(before)
        site.start()
        assert "native_step" in site.broker.output
        assert site.firing() - {"ErucaNotStoppedInOrder"} == set()


def test_nameserver_down(tmp_path: Path) -> None:
    away = free_port()
    with Site(tmp_path, nameserver=f"127.0.0.1:{away}") as site:
        site.until("ErucaNotReady", "ErucaNotRegistered")
        assert "registration" in site.commands_of("not-ready")
        nameserver = ErucaNameServer(tmp_path / "back", {"listenPort": str(away)})
        try:
            site.until_silent("ErucaNotReady", "ErucaNotRegistered")
            assert "broker-a" in site.commands_of("nameserver-down")
        finally:
            nameserver.stop()


def test_name_taken(tmp_path: Path) -> None:
    with Site(tmp_path / "first") as first:
        copied = Site(tmp_path / "second", nameserver=first.nameserver)
        with copied:
            copied.until("ErucaNotReady", "ErucaNameTaken")
            assert f"127.0.0.1:{first.port}" in copied.commands_of("name-taken")
            copied.broker.stop()
            copied.write(name="broker-b")
            copied.start()
            copied.until_silent("ErucaNotReady", "ErucaNameTaken")


def fill(disk: Path, share: float) -> None:
    """Let a file take as much of a disk that so much of it is used."""
    ballast = disk / "ballast"
    ballast.unlink(missing_ok=True)
    state = os.statvfs(disk)
    wanted = int(state.f_blocks * share) - (state.f_blocks - state.f_bfree)
    ballast.write_bytes(bytes(max(wanted, 0) * state.f_frsize))


def test_disk_filling_and_full(tmp_path: Path) -> None:
    with SmallDisk(tmp_path / "disk", 64 << 20) as disk:
        keep_all = "cleanFileForciblyEnable=false\ncleanResourceInterval=100"
        with Site(tmp_path, keep_all, store=disk.folder / "store") as site:
            fill(disk.folder, 0.84)
            site.until("ErucaDiskFilling")
            assert "success" in site.commands_of("disk-filling")
            fill(disk.folder, 0.95)
            site.until("ErucaStoreRefuses", "ErucaNotReady")
            assert "disk" in site.commands_of("disk-full")
            fill(disk.folder, 0.3)
            site.until_silent("ErucaStoreRefuses", "ErucaNotReady", "ErucaDiskFilling")


def test_lag_growing(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        site.send(10)
        with PushConsumer(GROUP, nameserver=site.nameserver, start_from="first").subscribe(TOPIC) as consumer:
            for _, _ in zip(range(10), consumer, strict=False):
                pass
            before = site.scrape()
            site.send(10_000)  # which nobody takes from the consumer
            site.until("ErucaLagGrows", before=before)
            assert TOPIC in site.commands_of("lag-growing")
            site.until_silent("ErucaLagGrows")


def test_slave_behind(tmp_path: Path) -> None:
    with Site(tmp_path / "master", "haHousekeepingInterval=120000") as master:
        master.send(1)
        slave = Site(tmp_path / "slave", "brokerId=1\nbrokerRole=SLAVE", nameserver=master.nameserver)
        with slave:
            slave.until_silent("ErucaSlaveAlone", "ErucaNotReady", "ErucaStoreRefuses")
            slave.broker.signal(signal.SIGSTOP)
            try:
                with Producer("orders", nameserver=master.nameserver) as producer:
                    for _ in range(90):
                        producer.send(Message(TOPIC, os.urandom(1 << 20)))
                master.until("ErucaSlaveBehind")
                assert "eruca_slaves_connected" in master.commands_of("slave-behind")
            finally:
                slave.broker.signal(signal.SIGCONT)
            master.until_silent("ErucaSlaveBehind")


def test_slave_turned_away(tmp_path: Path) -> None:
    with Site(tmp_path / "master") as master:
        master.send(100)
        slave = Site(tmp_path / "slave", "brokerId=1\nbrokerRole=SLAVE", nameserver=master.nameserver)
        with slave:
            slave.until_silent("ErucaSlaveAlone", "ErucaNotReady")
            assert "eruca_slaves_connected" in master.commands_of("slave-behind")
            master.broker.stop()
            slave.until("ErucaSlaveAlone", "ErucaNotReady")
            assert "master" in slave.commands_of("slave-turned-away")
            master.start()
            slave.until_silent("ErucaSlaveAlone", "ErucaNotReady")


def test_damaged_records(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        site.send(100)
        site.broker.stop()
        (log,) = (tmp_path / "store" / "commitlog").iterdir()
        data = log.read_bytes()
        at = data.index(b"order 50")
        with log.open("r+b") as file:
            file.seek(at)
            file.write(b"ORDER")
        (tmp_path / "store" / "abort").touch()
        site.start()
        site.until("ErucaDamagedRecords")
        site.broker.stop()
        commands = _SECTIONS["damaged-records"].split("```sh\n")[2].split("```")[0]
        environment = os.environ | {"STORE": str(tmp_path / "store"), "PATH": f"{BIN}:{os.environ['PATH']}"}
        ran = subprocess.run(["bash", "-c", commands], env=environment, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        assert "the message of Orders queue" in ran.stdout


def test_will_not_start(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("listenPort=ten thousand\n")
    (command,) = re.findall(r"(?ms)^```sh\n(.*?)^```", _SECTIONS["will-not-start"])
    environment = os.environ | {"CONF": str(conf), "PATH": f"{BIN}:{os.environ['PATH']}"}
    good = f"listenPort={free_broker_port()}\nstorePathRootDir={tmp_path}/store"
    for text, code in (("listenPort=ten thousand", 78), (good, 0)):
        conf.write_text(f"{text}\n")
        ended = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True)
        assert ended.returncode == code, ended.stderr
        assert ("listenPort" in ended.stderr) == (code == 78)


def test_memory_high(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        before = site.scrape()
        site.broker.stop()
        site.write("memoryHighWater=1048576")
        site.start()
        site.until("ErucaMemoryAlarm", "ErucaMemoryHigh", before=before)
        assert "memory_bytes" in site.commands_of("memory-high")


def test_connections_refused(tmp_path: Path) -> None:
    with Site(tmp_path, "serverMaxConnectionsPerAddress=3") as site:
        before = site.scrape()
        held = [socket.create_connection(("127.0.0.1", site.port)) for _ in range(6)]
        try:
            site.until("ErucaConnectionsRefused", "ErucaLimitNear", before=before)
            assert 'reason="connections_per_address"' in site.commands_of("connections-refused")
            assert "eruca_limit_used" in site.commands_of("limit-near")
        finally:
            for each in held:
                each.close()
        site.until_silent("ErucaConnectionsRefused", "ErucaLimitNear")


def test_certificate_expiring(tmp_path: Path) -> None:
    soon = Certificates(tmp_path / "soon", server_until=datetime.now(UTC) + timedelta(days=5))
    pair = soon.server
    settings = (
        f"tls.server.certPath={pair.certificate}\ntls.server.keyPath={pair.key}\ntls.server.need.client.auth=none"
    )
    with Site(tmp_path, settings) as site:
        site.until("ErucaCertificateExpires")
        assert "notAfter" in site.commands_of("certificate-expiring")
        later = Certificates(tmp_path / "later").server
        pair.key.write_bytes(later.key.read_bytes())
        pair.certificate.write_bytes(later.certificate.read_bytes())
        site.broker.signal(signal.SIGHUP)
        site.until_silent("ErucaCertificateExpires")


def test_access_refused(tmp_path: Path) -> None:
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text("accounts:\n- accessKey: operator-key\n  secretKey: operator-secret\n  admin: true\n")
    with Site(tmp_path, f"aclEnable=true\naclFile={accounts}") as site:
        before = site.scrape()
        for _ in range(20):
            subprocess.run(
                [str(BIN / "mqadmin"), "brokerStatus", "-b", f"127.0.0.1:{site.port}"], capture_output=True, check=False
            )
        site.until("ErucaAccessRefused", before=before)
        assert "access_refused" in site.broker.output


def test_loop_lag(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        before = site.scrape()
        for _ in range(3):
            site.broker.signal(signal.SIGSTOP)
            time.sleep(1.2)
            site.broker.signal(signal.SIGCONT)
        site.until("ErucaLoopLag", before=before)
        assert "eruca_event_loop_lag_seconds_sum" in site.commands_of("loop-lag")


async def test_slave_stuck(tmp_path: Path) -> None:
    site = await asyncio.to_thread(Site, tmp_path, "brokerRole=SYNC_MASTER\nhaStuckAfter=1000\nslaveTimeout=100")
    with site:
        before = site.scrape()
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port + 1)
        try:
            for _ in range(4):  # a slave that reports one offset for ever
                writer.write((0).to_bytes(8, "big"))
                await asyncio.sleep(0.5)
                await asyncio.to_thread(site.send, 10)
            await asyncio.to_thread(site.until, "ErucaSlaveStuck", before=before)
        finally:
            writer.close()
        await asyncio.to_thread(site.until_silent, "ErucaSlaveStuck")
        assert reader is not None


@needs_lossy_disk
def test_disk_slow(tmp_path: Path) -> None:
    with (
        LossyDisk(tmp_path / "disk", journal=True) as disk,
        Site(tmp_path / "site", "flushDiskType=SYNC_FLUSH", store=disk.folder / "store") as site,
    ):
        site.send(1)
        before = site.scrape()
        disk.tell("slow", 1.3)
        for _ in range(2):
            site.send(1)
        site.until("ErucaDiskSlow", before=before)
        assert "eruca_fsync_seconds_sum" in site.commands_of("disk-slow")
        disk.tell("slow", 0)
        before = site.scrape()
        site.send(1)
        assert "ErucaDiskSlow" not in site.firing(before)


def test_log_lost(tmp_path: Path) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        with Site(tmp_path) as site:
            before = site.scrape()
            site.broker.stop()
            site.start(errors=full)
            site.until("ErucaLogLost", before=before)
            assert "eruca_log_lines_lost_total" in site.commands_of("log-lost")
            site.broker.stop()
            site.start()
            assert site.firing() == set()
    finally:
        os.close(full)


_OTHER_CLOCK = """
import os, sys, time
real, moved = time.time_ns, sys.argv.pop(1)
time.time_ns = lambda: real() + os.stat(moved).st_size * 10**9
from eruca.broker.app import main
sys.exit(main())
"""
"""A broker whose wall clock is as many seconds ahead as a file has bytes."""


def test_clock_jumped(tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    moved.touch()
    with Site(tmp_path, program=(sys.executable, "-c", _OTHER_CLOCK, str(moved))) as site:
        before = site.scrape()
        assert site.firing(before) == set()
        moved.write_bytes(bytes(300))
        site.until("ErucaClockJumped", before=before)
        assert "eruca_clock_shift_seconds" in site.commands_of("clock-jumped")
        assert site.firing() == set(), "it stays as it is"
