"""Apache RocketMQ's own name server and broker as processes, small and in a folder of their own.

Owns their command lines, configuration files and ports. Nothing is written outside the folder that
the caller gives. Readiness is a connection that is accepted and a route that is known. They start quickly, without TLS;
`options` of the caller come later on the command line and win (java.LONG_LIFE for who measures).
"""

import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path

from eruca.protocol.signature import Credentials
from tests.support.daemons import DaemonCluster, registered
from tests.support.java import SHORT_LIFE, jars, opened_modules, write_logback
from tests.support.ports import free_broker_port, free_port
from tests.support.processes import Process

_HEAP = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:MaxDirectMemorySize=512m")
# In the other modes each server makes keys of its own when it starts, which takes longer than all the rest of it.
_WITHOUT_TLS = "-Dtls.server.mode=disabled"
# Small files, so that a store costs little disk and opens quickly.
SMALL_STORE = {
    "mappedFileSizeCommitLog": str(16 << 20),
    "mappedFileSizeConsumeQueue": str(20_000 * 20),
    "maxHashSlotNum": "10000",
    "maxIndexNum": "40000",
    "diskMaxUsedSpaceRatio": "95",
}
# 5.x writes 38 MB each time, by default each second; 4.9.7 knows no such setting.
_CALM_TIMER = {"timerFlushIntervalMs": "30000"}


class ApacheNameServer:
    """A name server of that release; `address` is ip:port."""

    def __init__(
        self,
        release: str,
        home: Path,
        *,
        port: int | None = None,
        heap: tuple[str, ...] = _HEAP,
        options: Sequence[str] = (),
    ) -> None:
        self.port = free_port() if port is None else port
        self.address = f"127.0.0.1:{self.port}"
        home.mkdir(parents=True, exist_ok=True)
        conf = _prepare(home, "namesrv", {"listenPort": str(self.port)})
        command = _java(release, home, (*heap, *options), "namesrv")
        self.process = Process([*command, "-c", str(conf)], home / "namesrv.out")
        self.process.wait_for_port(self.port)

    def stop(self) -> None:
        """It holds nothing that a kill could lose; an orderly end takes 3 s."""
        self.process.kill()


class ApacheBroker:
    """A broker of that release, registered with `name_server`; `properties` go to its file, `options` to Java.

    `tls` is how that name server is asked for it, `account` in whose name. `port`: that of the broker before it; 0
    takes a free one.
    """

    def __init__(
        self,
        release: str,
        home: Path,
        name_server: str,
        properties: Mapping[str, str] | None = None,
        *,
        heap: tuple[str, ...] = _HEAP,
        options: Sequence[str] = (),
        tls: ssl.SSLContext | None = None,
        account: Credentials | None = None,
        port: int = 0,
    ) -> None:
        self.port = port or free_broker_port()
        self.address = f"{(properties or {}).get('brokerIP1', '127.0.0.1')}:{self.port}"
        self.store = home / "store"
        home.mkdir(parents=True, exist_ok=True)
        conf = _prepare(
            home,
            "broker",
            {
                "listenPort": str(self.port),
                "brokerIP1": "127.0.0.1",
                "brokerIP2": "127.0.0.1",
                "brokerName": "broker-a",
                "brokerClusterName": "JudgeCluster",
                "namesrvAddr": name_server,
                "storePathRootDir": str(self.store),
                "storePathCommitLog": str(self.store / "commitlog"),
                **SMALL_STORE,
                **(_CALM_TIMER if release.startswith("5.") else {}),
                **(properties or {}),
            },
        )
        command = _java(release, home, (*heap, *options), "broker")
        self.process = Process([*command, "-c", str(conf)], home / "broker.out")
        self.process.wait_for_line("boot success")
        self.process.wait_for_port(self.port)
        self.process.wait_until(lambda: registered(self.address, name_server, tls, account), "registration")

    def stop(self) -> None:
        """An orderly end: the store is flushed and `abort` removed."""
        self.process.stop(60)

    def discard(self) -> None:
        """The end of a broker whose store nobody opens again; an orderly one takes 6 s, that of 5.x 13 s."""
        self.process.kill()


class ApacheController:
    """A controller of that release, 5.x: of the brokers of a name it makes one the master; `address` is ip:port.

    One of `ports` if it has others beside it: it listens on the one of that `number`. `properties` go to its file,
    `options` to Java.
    """

    def __init__(
        self,
        release: str,
        home: Path,
        properties: Mapping[str, str] | None = None,
        *,
        ports: Sequence[int] = (),
        number: int = 0,
        options: Sequence[str] = (),
    ) -> None:
        ports = ports or [free_port()]
        self.port = ports[number]
        self.address = f"127.0.0.1:{self.port}"
        home.mkdir(parents=True, exist_ok=True)
        conf = _prepare(
            home,
            "controller",
            {
                "controllerDLegerGroup": "judges",
                "controllerDLegerPeers": ";".join(f"n{each}-127.0.0.1:{port}" for each, port in enumerate(ports)),
                "controllerDLegerSelfId": f"n{number}",
                "controllerStorePath": str(home / "controller"),
                "mappedFileSize": str(16 << 20),
                **(properties or {}),
            },
        )
        command = _java(release, home, (*_HEAP, *options), "controller")
        self.process = Process([*command, "-c", str(conf)], home / "controller.out")
        self.process.wait_for_port(self.port)

    def stop(self) -> None:
        """Its tests need nothing of its state afterwards."""
        self.process.kill()


class ApacheCluster(DaemonCluster):
    """A name server and one broker of the same release."""

    name_server: ApacheNameServer
    broker: ApacheBroker

    def __init__(
        self, release: str, home: Path, properties: Mapping[str, str] | None = None, *, options: Sequence[str] = ()
    ) -> None:
        self.name = f"apache-{release}"
        self.home = home
        self.name_server = ApacheNameServer(release, home)
        try:
            self.broker = ApacheBroker(release, home, self.name_server.address, properties, options=options)
        except BaseException:
            self.name_server.stop()
            raise


def _prepare(home: Path, role: str, properties: Mapping[str, str]) -> Path:
    """Writes the properties and the logback files of both generations; the properties' path."""
    file = write_logback(home, role).parent / f"{role}.conf"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return file


def _java(release: str, home: Path, heap: tuple[str, ...], role: str) -> list[str]:
    main = {
        "namesrv": "namesrv.NamesrvStartup",
        "broker": "broker.BrokerStartup",
        "controller": "controller.ControllerStartup",
    }[role]
    return [
        "java",
        *SHORT_LIFE,
        _WITHOUT_TLS,
        *opened_modules(),
        f"-Duser.home={home}",
        f"-Drocketmq.home.dir={home}",
        f"-Drmq.logback.configurationFile={home}/conf/rmq.{role}.logback.xml",
        "-Djava.net.preferIPv4Stack=true",
        *heap,
        "-cp",
        f"{jars(release)}/*",
        f"org.apache.rocketmq.{main}",
    ]
