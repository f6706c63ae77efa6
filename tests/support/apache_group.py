"""Two brokers of Apache RocketMQ 5.3.3 in controller mode, with three controllers and a nameserver, all as processes.

Owns the processes. The face is that of failover_cluster.py, as far as whoever harms a group needs it; what there is
asked of etcd is asked of the controllers here. Settings are Apache's own, but for small files and what the caller says.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tests.support import raw
from tests.support.apache import ApacheBroker, ApacheController, ApacheNameServer
from tests.support.java import LONG_LIFE
from tests.support.ports import free_broker_port, free_port
from tests.support.processes import Process

RELEASE = "5.3.3"
CONTROLLERS = 3
CONTROLLER_GET_SYNC_STATE_DATA = 1006


class Known(NamedTuple):
    """What the controllers have of the group."""

    master: int | None
    in_set: set[int]


class ApacheGroup:
    """Brokers 1 and 2; which is the master the controllers say."""

    def __init__(self, home: Path, settings: Mapping[str, str] | None = None) -> None:
        self.brokers: dict[int, Process] = {}
        self.numbers = range(1, 3)
        self._home = home
        self._settings = dict(settings or {})
        self._ports = {number: free_broker_port() for number in self.numbers}
        self._controllers: list[ApacheController] = []
        self._names: ApacheNameServer | None = None

    async def __aenter__(self) -> Self:
        try:
            await asyncio.to_thread(self._start_controllers)
            for number in self.numbers:
                await self.start(number)
        except BaseException:
            self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _start_controllers(self) -> None:
        ports = [free_port() for _ in range(CONTROLLERS)]
        for number in range(CONTROLLERS):
            home = self._home / f"controller-{number}"
            self._controllers.append(ApacheController(RELEASE, home, ports=ports, number=number, options=LONG_LIFE))
        self._names = ApacheNameServer(RELEASE, self._home / "names", options=LONG_LIFE)

    def _end(self) -> None:
        """The end of processes whose files nobody opens again."""
        for process in self.brokers.values():
            process.kill()
        for daemon in (*self._controllers, self._names):
            if daemon is not None:
                daemon.stop()

    async def start(self, number: int) -> None:
        """Start a broker; returns when the nameserver knows it. Raises NotReady when it does not come."""
        assert self._names is not None
        settings = {
            "brokerClusterName": "DefaultCluster",
            "brokerId": "-1",
            "brokerRole": "SLAVE",
            "enableControllerMode": "true",
            "controllerAddr": ";".join(controller.address for controller in self._controllers),
            **self._settings,
        }
        home, names, port = self._home / str(number), self._names.address, self._ports[number]
        broker = await asyncio.to_thread(ApacheBroker, RELEASE, home, names, settings, options=LONG_LIFE, port=port)
        self.brokers[number] = broker.process

    def store(self, number: int) -> Path:
        """Where a broker's store is."""
        return self._home / str(number) / "store"

    def address(self, number: int) -> str:
        """Where clients find a broker."""
        return f"127.0.0.1:{self._ports[number]}"

    def kill(self, number: int) -> None:
        """End a broker at once."""
        self.brokers[number].kill()

    async def master(self) -> int:
        """The broker that the controllers name."""
        known = await self._known()
        assert known is not None and known.master is not None, f"no master: {known}"
        return known.master

    async def all_in_set(self, within: float = 30.0) -> None:
        """Wait until a master stands and every broker is in the set."""
        async with asyncio.timeout(within):
            while (known := await self._known()) is None or not known.master or known.in_set != {*self.numbers}:  # noqa: ASYNC110
                await asyncio.sleep(0.1)

    async def led_by_another(self, than: int, within: float = 30.0) -> None:
        """Wait until the controllers name another master than this one."""
        async with asyncio.timeout(within):
            while (known := await self._known()) is None or known.master in (None, than):  # noqa: ASYNC110
                await asyncio.sleep(0.1)

    async def _known(self) -> Known | None:
        """What the controller that leads says; None when none does."""
        for controller in self._controllers:
            with suppress(OSError):
                head, body = await asyncio.to_thread(
                    raw.ask, controller.address, CONTROLLER_GET_SYNC_STATE_DATA, {}, b'["broker-a"]'
                )
                if head["code"] == 0 and (group := json.loads(body)["replicasInfoTable"].get("broker-a")):
                    numbers = {self.address(number): number for number in self.numbers}
                    in_set = {numbers[each["brokerAddress"]] for each in group["inSyncReplicas"]}
                    return Known(numbers.get(group.get("masterAddress")), in_set)
        return None
