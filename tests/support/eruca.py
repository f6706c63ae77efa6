"""Eruca's own daemons as processes, started as an operator starts them.

The same face as tests/support/apache.py, so that a test runs on either. Ports are chosen by the
daemons (listenPort=0) and read from what they print.
"""

import re
import ssl
import sys
from collections.abc import Mapping
from pathlib import Path

from eruca.protocol.signature import Credentials
from tests.support.apache import SMALL_STORE
from tests.support.daemons import DaemonCluster, registered
from tests.support.lone import MANY_PEERS
from tests.support.processes import Process

SCRIPTS = Path(sys.executable).parent


class ErucaNameServer:
    """`mqnamesrv` as a process; `address` is ip:port."""

    def __init__(self, home: Path, properties: Mapping[str, str] | None = None) -> None:
        home.mkdir(parents=True, exist_ok=True)
        settings = {"listenPort": "0", "kvConfigPath": str(home / "kvConfig.json"), **MANY_PEERS, **(properties or {})}
        conf = _write(home / "namesrv.conf", settings)
        self.process = Process([str(SCRIPTS / "mqnamesrv"), "-c", str(conf), *_pages(settings)], home / "namesrv.out")
        line = self.process.wait_for_line("listening on")
        self.port = int(line.rpartition(":")[2])
        self.address = f"127.0.0.1:{self.port}"

    def stop(self) -> None:
        self.process.stop()


class ErucaBroker:
    """`mqbroker` as a process, registered with `name_server`; `properties` go to its file.

    `tls` is how that name server is asked for it, `account` in whose name.
    """

    def __init__(
        self,
        home: Path,
        name_server: str,
        properties: Mapping[str, str] | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        account: Credentials | None = None,
    ) -> None:
        self.store = home / "store"
        home.mkdir(parents=True, exist_ok=True)
        settings = {
            "listenPort": "0",
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "brokerName": "broker-a",
            "brokerClusterName": "JudgeCluster",
            "storePathRootDir": str(self.store),
            "storePathCommitLog": str(self.store / "commitlog"),
            **SMALL_STORE,
            **MANY_PEERS,  # requests of tests have a connection each
            **(properties or {}),
        }
        conf = _write(home / "broker.conf", settings)
        command = [str(SCRIPTS / "mqbroker"), "-n", name_server, "-c", str(conf), *_pages(settings)]
        self.process = Process(command, home / "broker.out")
        found = re.search(r"\[[^,]+, ([\d.]+:(\d+))\]", self.process.wait_for_line("boot success"))
        assert found is not None
        self.address, self.port = found.group(1), int(found.group(2))
        self.process.wait_until(lambda: registered(self.address, name_server, tls, account), "registration")

    def stop(self) -> None:
        """An orderly end: the store is flushed and `abort` removed."""
        self.process.stop()

    def discard(self) -> None:
        """The end of a broker whose store nobody opens again: an orderly one, too, which is quick."""
        self.stop()


class ErucaCluster(DaemonCluster):
    """A name server and one broker."""

    name_server: ErucaNameServer
    broker: ErucaBroker

    def __init__(self, home: Path, properties: Mapping[str, str] | None = None) -> None:
        self.name = "eruca"
        self.home = home
        self.name_server = ErucaNameServer(home)
        try:
            self.broker = ErucaBroker(home, self.name_server.address, properties)
        except BaseException:
            self.name_server.stop()
            raise


def _pages(settings: Mapping[str, str]) -> list[str]:
    """Arguments for the port of the pages, which the environment of all tests switches off."""
    return ["--set", f"metricsPort={settings['metricsPort']}"] if "metricsPort" in settings else []


def _write(file: Path, properties: Mapping[str, str]) -> Path:
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return file
