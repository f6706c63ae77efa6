"""Two masters, a slave of each, and two nameservers, as processes that keep their ports over a restart.

Owns the processes and their files; knows no messages. Names: ``a`` and ``b`` are the masters, ``a-slave`` and
``b-slave`` their slaves.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support import raw
from tests.support.lone import LoneBroker
from tests.support.ports import free_broker_port, free_port
from tests.support.processes import Process

MASTERS, SLAVES = ("a", "b"), ("a-slave", "b-slave")
BROKERS = (*MASTERS, *SLAVES)
_ROLES = {"a": "ASYNC_MASTER", "b": "SYNC_MASTER"}
_CLUSTER_INFO, _CREATE_TOPIC, _RUNTIME = 106, 17, 28
_PATIENCE = 60.0


class Pairs:
    """The cluster; ``a`` is an ASYNC_MASTER, ``b`` a SYNC_MASTER. ``properties`` are those of brokers, ``of_names`` of
    nameservers."""

    def __init__(
        self, home: Path, properties: Mapping[str, str] | None = None, of_names: Mapping[str, str] | None = None
    ) -> None:
        self.brokers: dict[str, LoneBroker] = {}
        self.ports = {name: free_broker_port() for name in BROKERS}
        self.name_ports = (free_port(), free_port())
        self._names: dict[int, Process] = {}
        self._home = home
        self._properties = dict(properties or {})
        self._of_names = dict(of_names or {})

    async def __aenter__(self) -> Self:
        for number in range(2):
            await self.start_nameserver(number)
        await asyncio.gather(*(self.start(name) for name in BROKERS))
        await self.followed()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in (*self.brokers.values(), *self._names.values()):
            process.kill()

    @property
    def address(self) -> str:
        """What clients are given: both nameservers."""
        return ";".join(f"127.0.0.1:{port}" for port in self.name_ports)

    def broker_address(self, name: str) -> str:
        """Where a broker listens, be it up or down."""
        return f"127.0.0.1:{self.ports[name]}"

    # ------------------------------------------------------------------ starting and stopping

    async def start(self, name: str, changed: Mapping[str, str] | None = None) -> None:
        """Start a broker, with ``changed`` settings; returns when it runs and both nameservers know it."""
        slave = name.endswith("-slave")
        properties = {
            "namesrvAddr": self.address,
            "brokerClusterName": "Pairs",
            "brokerIP2": "127.0.0.1",
            "brokerName": f"broker-{name[0]}",
            "brokerId": "1" if slave else "0",
            "brokerRole": "SLAVE" if slave else _ROLES[name],
            "listenPort": str(self.ports[name]),
            "haSendHeartbeatInterval": "500",
            "haHousekeepingInterval": "3000",
            "slaveTimeout": "1000",
            "mappedFileSizeCommitLog": str(4 << 20),
            **self._properties,
            **(changed or {}),
        }
        folder = self._home / name
        self.brokers[name] = await LoneBroker.start(folder, folder / "store", properties)
        await eventually(lambda: all(self.known(name)))

    async def start_nameserver(self, number: int) -> None:
        """Start a nameserver; returns when it listens."""
        folder = self._home / f"names-{number}"
        folder.mkdir(exist_ok=True)
        port = self.name_ports[number]
        conf = folder / "namesrv.conf"
        lines = {"listenPort": port, "bindAddress": "127.0.0.1", "kvConfigPath": folder / "kvConfig.json"}
        conf.write_text("".join(f"{name}={value}\n" for name, value in {**lines, **self._of_names}.items()))
        command = [str(Path(sys.executable).parent / "mqnamesrv"), "-c", str(conf)]
        process = self._names[number] = Process(command, folder / "namesrv.out")
        await asyncio.to_thread(process.wait_for_line, "listening on")

    async def stop(self, name: str) -> None:
        """Stop a broker in order."""
        assert await asyncio.to_thread(self.brokers.pop(name).stop) == 0

    def kill(self, name: str) -> None:
        """End a broker at once."""
        self.brokers.pop(name).kill()

    async def restart_nameserver(self, number: int) -> None:
        """Stop and start a nameserver; returns when it knows the brokers that run."""
        await asyncio.to_thread(self._names.pop(number).stop)
        await self.start_nameserver(number)
        await eventually(lambda: all(self.known(name)[number] for name in self.brokers))

    # ------------------------------------------------------------------ looking

    def known(self, name: str) -> list[bool]:
        """Whether a broker is registered, at each nameserver."""
        found = []
        for port in self.name_ports:
            try:
                _, body = raw.ask(f"127.0.0.1:{port}", _CLUSTER_INFO)
                found.append(self.broker_address(name).encode() in body)
            except OSError:
                found.append(False)
        return found

    def runtime(self, name: str) -> dict[str, str]:
        """The runtime information of a broker (28)."""
        _, body = raw.ask(self.broker_address(name), _RUNTIME)
        found: dict[str, str] = json.loads(re.sub(rb"([{,])(\d+):", rb'\1"\2":', body))["table"]
        return found

    async def followed(self) -> None:
        """Wait until each slave that runs has all that its master has."""

        def equal() -> bool:
            return all(
                self.runtime(name)["commitLogMaxOffset"] == self.runtime(f"{name}-slave")["commitLogMaxOffset"]
                and "slave_connected" in self.brokers[name].output
                for name in MASTERS
                if name in self.brokers and f"{name}-slave" in self.brokers
            )

        await eventually(equal)

    async def create_topic(self, topic: str, queues: int) -> None:
        """A topic on both masters, known to both nameservers."""
        fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(queues), "perm": "6"}
        fields |= {
            "writeQueueNums": str(queues),
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        for name in MASTERS:
            header, _ = await asyncio.to_thread(raw.ask, self.broker_address(name), _CREATE_TOPIC, fields)
            assert header["code"] == 0, header


async def eventually(condition: Callable[[], bool], within: float = _PATIENCE) -> None:
    """Wait until something holds that nobody tells of; it is asked in a thread."""
    async with asyncio.timeout(within):
        while not await asyncio.to_thread(condition):  # noqa: ASYNC110 (other processes change it)
            await asyncio.sleep(0.05)
