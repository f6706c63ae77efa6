"""The alarms of a group that elects its master, produced with real brokers and a real etcd."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.runbook.test_alarms import Site
from tests.support.eruca import ErucaNameServer
from tests.support.etcd import EtcdCluster, needs_etcd
from tests.support.prometheus import INSTALLED, WHY

pytestmark = [needs_etcd, pytest.mark.processes, pytest.mark.slow, pytest.mark.skipif(not INSTALLED, reason=WHY)]


class Sites:
    """Brokers of one group by their ids, with one member of etcd and a nameserver; broker 1 founds the group."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.etcd = EtcdCluster(folder / "etcd", 1)
        self.names = ErucaNameServer(folder / "names")
        self.brokers: dict[int, Site] = {}

    def settings(self, number: int, more: str = "") -> str:
        """What the configuration of a broker of the group has."""
        role = "SYNC_MASTER" if number == 1 else "SLAVE"
        return (
            f"enableControllerMode=true\ncontrollerAddr={self.etcd.urls[0]}\nbrokerId={number}\n"
            f"brokerRole={role}\nslaveTimeout=1000\n{more}"
        )

    def start(self, number: int, more: str = "") -> Site:
        settings = self.settings(number, more)
        site = self.brokers[number] = Site(self.folder / str(number), settings, nameserver=self.names.address)
        return site

    def healthy(self) -> None:
        """Wait until one leads and the others follow, and no alert of the group fires at any broker."""
        deadline = time.monotonic() + 60
        while sorted(self.states()) != ["following"] * (len(self.brokers) - 1) + ["master"]:
            assert time.monotonic() < deadline, self.states()
            time.sleep(0.2)
        for site in self.brokers.values():
            site.until_silent(*ALERTS)

    def states(self) -> list[str]:
        """What the brokers are in their group; those that do not say it are missing."""
        pages = "".join(site.scrape() for site in self.brokers.values())
        return re.findall(r'eruca_failover_state{[^}]*state="(\w+)"', pages)

    def __enter__(self) -> Sites:
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as ending:
            ending.callback(self.etcd.__exit__, None, None, None)
            ending.callback(self.names.stop)
            for site in self.brokers.values():
                ending.callback(site.broker.kill)


ALERTS = (
    "ErucaNotReady",
    "ErucaSlaveAlone",
    "ErucaStoreRefuses",
    "ErucaBelowMinimum",
    "ErucaAloneInSet",
    "ErucaNoMaster",
    "ErucaEtcdAway",
    "ErucaNoCommonHistory",
    "ErucaGroupForgotten",
)


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[Sites]:
    with Sites(tmp_path) as sites:
        yield sites


def test_below_the_minimum(sites: Sites) -> None:
    one, two = [sites.start(number, "minInSyncReplicas=2") for number in (1, 2)]
    sites.healthy()
    two.broker.kill()
    one.until("ErucaBelowMinimum", "ErucaAloneInSet")
    assert "syncStateSet " in one.commands_of("below-the-minimum")
    two.start()
    sites.healthy()
    one.send(10)


def test_no_master(sites: Sites) -> None:
    one, two = sites.start(1), sites.start(2)
    sites.healthy()
    two.broker.kill()
    one.until("ErucaAloneInSet")
    one.send(10)
    one.broker.kill()
    two.start()
    two.until("ErucaNoMaster")
    assert "syncStateSet " in two.commands_of("no-master")
    one.start()
    sites.healthy()


def test_etcd_away(sites: Sites) -> None:
    one, _ = sites.start(1), sites.start(2)
    sites.healthy()
    sites.etcd.kill(0)
    one.until("ErucaEtcdAway")
    assert "etcdSilentMillis" in one.commands_of("etcd-away")
    one.send(10)
    sites.etcd.start(0)
    sites.healthy()


def test_no_common_history(sites: Sites) -> None:
    one, _ = sites.start(1), sites.start(2)
    sites.healthy()
    one.send(10)
    other = ErucaNameServer(sites.folder / "other")
    alone = Site(sites.folder / "3", nameserver=other.address)
    sites.brokers[3] = alone
    alone.send(100)
    alone.broker.stop()
    other.stop()
    alone.nameserver = sites.names.address
    alone.write(sites.settings(3))
    alone.start()
    alone.until("ErucaNoCommonHistory")
    assert "nothing in common" in alone.commands_of("no-common-history")
    alone.broker.stop()
    alone.store.rename(alone.store.with_name("put-aside"))
    alone.start()
    sites.healthy()


def test_group_forgotten(sites: Sites) -> None:
    one, two = sites.start(1), sites.start(2)
    sites.healthy()
    one.send(10)
    data, backup = sites.folder / "etcd" / "m0", sites.folder / "backup"
    sites.etcd.kill(0)
    shutil.move(data, backup)
    sites.etcd.start(0)
    for site in (one, two):
        site.until("ErucaGroupForgotten")
    sites.etcd.kill(0)
    shutil.rmtree(data)
    shutil.copytree(backup, data)
    sites.etcd.start(0)
    sites.healthy()
    one.send(10)
    sites.etcd.kill(0)
    shutil.rmtree(data)
    sites.etcd.start(0)
    for site in (one, two):
        site.until("ErucaGroupForgotten")
    said = one.commands_of("group-forgotten")
    assert "etcd was emptied" in said and "nothing that was acknowledged is lost" in said
    sites.healthy()
    one.send(10)
    sites.etcd.kill(0)
    shutil.rmtree(data)
    shutil.move(backup, data)
    sites.etcd.start(0)
    for site in (one, two):
        site.until("ErucaGroupForgotten")
    said = one.commands_of("group-forgotten")
    assert "etcd was restored" in said or "etcd was emptied or restored" in said
    sites.healthy()
    one.send(10)
