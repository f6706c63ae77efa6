"""A group of brokers that elects its master, with three members of etcd and a nameserver, all as processes.

Owns the processes, and a producer that sends one message after the other to whoever takes it. Brokers keep their ports
over a restart.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from eruca.broker.coordination.etcd import Etcd
from eruca.broker.services.failover.keys import Keys, View
from eruca.protocol.record import decode_records
from tests.support.eruca import ErucaNameServer
from tests.support.etcd import EtcdCluster, cluster
from tests.support.lone import LoneBroker
from tests.support.peers import Answered, Peer
from tests.support.ports import free_broker_port
from tests.support.sends import message

KEYS = Keys("DefaultCluster", "broker-a")


class FailoverCluster:
    """``count`` brokers; broker 1 is configured as the master."""

    def __init__(self, home: Path, count: int = 2, settings: Mapping[str, str] | None = None) -> None:
        self.brokers: dict[int, LoneBroker] = {}
        self.numbers = range(1, count + 1)
        self.acknowledged: list[bytes] = []
        """The bodies that were answered with 0, in their order."""
        self._home = home
        self._settings = dict(settings or {})
        self._ports = {number: free_broker_port() for number in self.numbers}
        self._peers: dict[int, Peer] = {}
        self._sent = 0
        self._last = 1

    async def __aenter__(self) -> Self:
        self.etcd: EtcdCluster = await cluster(self._home / "etcd")
        self.names = await asyncio.to_thread(ErucaNameServer, self._home / "names")
        await asyncio.gather(*(self.start(number) for number in self.numbers))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for peer in self._peers.values():
            await peer.close()
        for broker in self.brokers.values():
            if broker.running:
                broker.kill()
            broker.close_pipes()
        self.names.stop()
        self.etcd.__exit__(None, None, None)

    async def start(self, number: int) -> None:
        """Start a broker; returns when it runs."""
        settings = {
            "namesrvAddr": self.names.address,
            "enableControllerMode": "true",
            "controllerAddr": ";".join(self.etcd.urls),
            "brokerId": str(number),
            "brokerRole": "SYNC_MASTER" if number == 1 else "SLAVE",
            "listenPort": str(self._ports[number]),
            "slaveTimeout": "1000",
            **self._settings,
        }
        folder = self._home / str(number)
        self.brokers[number] = await LoneBroker.start(folder, folder / "store", settings)

    def kill(self, number: int) -> None:
        """End a broker at once."""
        self.brokers[number].kill()
        self.brokers[number].close_pipes()

    async def view(self) -> View:
        """What etcd has of the group."""
        etcd = Etcd(self.etcd.urls)
        try:
            return KEYS.view(await etcd.read_all(KEYS.prefix))
        finally:
            await etcd.close()

    async def master(self) -> int:
        """The broker that etcd names, whoever else passes on what it is sent."""
        known = (await self.view()).known
        assert known is not None
        return known.group.master_broker_id

    async def all_in_set(self, within: float = 30.0) -> None:
        """Wait until every broker is in the set."""
        async with asyncio.timeout(within):
            while (known := (await self.view()).known) is None or known.group.sync_state_set != {*self.numbers}:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    async def led_by_another(self, than: int, within: float = 30.0) -> None:
        """Wait until etcd names another master than this one."""
        async with asyncio.timeout(within):
            while (known := (await self.view()).known) is None or known.group.master_broker_id == than:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async def hand_over(self, to: int) -> None:
        """Have the master hand the mastership over; AssertionError with what it said if it did not."""
        asked: dict[str, object] = {"clusterName": "DefaultCluster", "brokerName": "broker-a", "brokerId": to}
        answer = await self.ask(await self.master(), 1002, asked)
        assert answer.code == 0, answer.remark

    async def figure(self, number: int, name: str) -> str:
        """One line of ``brokerStatus``."""
        table = json.loads((await self.ask(number, 28, {})).body)["table"]
        return str(table[name])

    # ------------------------------------------------------------------ the producer

    async def send(self, within: float = 30.0) -> int:
        """Send the next message until somebody takes it; returns who."""
        body = b"message %d" % self._sent
        self._sent += 1
        fields = message(i="")
        until = time.monotonic() + within
        while time.monotonic() < until:
            for number in sorted(self.numbers, key=lambda each: each != self._last):
                if await self._took(number, fields, body):
                    self._last = number
                    self.acknowledged.append(body)
                    return number
            await asyncio.sleep(0.01)
        raise TimeoutError(f"nobody took a message within {within} s")

    async def ask(self, number: int, code: int, fields: dict[str, object], body: bytes = b"") -> Answered:
        """One request to a broker, which answers."""
        peer = self._peers.get(number)
        if peer is None:
            peer = self._peers[number] = await Peer().connect(f"127.0.0.1:{self._ports[number]}")
        async with asyncio.timeout(5):
            return await peer.ask(code, fields, body)

    async def hang_up(self, number: int) -> None:
        """End the connection to a broker, which may be gone; the next request makes another one."""
        peer = self._peers.pop(number, None)
        if peer is not None:
            await peer.close()

    async def _took(self, number: int, fields: dict[str, object], body: bytes) -> bool:
        try:
            async with asyncio.timeout(2):
                return (await self.ask(number, 310, fields, body)).code == 0
        except (OSError, EOFError, TimeoutError):
            await self.hang_up(number)
            return False

    # ------------------------------------------------------------------ in the end

    async def logs(self) -> dict[int, bytes]:
        """Stop all brokers, and read their logs."""
        for broker in self.brokers.values():
            await asyncio.to_thread(broker.stop)
        return {number: self._log_of(number) for number in self.numbers}

    def _log_of(self, number: int) -> bytes:
        files = sorted((self._home / str(number) / "store" / "commitlog").iterdir())
        return b"".join(file.read_bytes() for file in files).rstrip(b"\0")


def bodies(log: bytes) -> list[bytes]:
    """The bodies of the messages of the producer in a log of one file."""
    return [record.body for record in decode_records(log) if record.topic == "T"]
