"""A group of brokers that elects its master, with three members of etcd and a nameserver, all as processes.

Owns the processes, and a producer that sends one message after the other to whoever takes it. Brokers keep their ports
over a restart.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from eruca.broker.coordination.etcd import Etcd
from eruca.broker.coordination.port import Unavailable
from eruca.broker.failover.group import Group
from eruca.broker.services.failover.keys import Keys, View
from eruca.broker.services.failover.messages import MAGIC, Hello
from eruca.protocol.record import decode_records
from tests.support.clocks import Clock, shifted_clock
from tests.support.disks import LossyDisk
from tests.support.eruca import ErucaNameServer
from tests.support.etcd import AS_INSTALLED, EtcdCluster, cluster, member
from tests.support.lone import LoneBroker
from tests.support.names import brokers_by
from tests.support.peers import Answered, Peer
from tests.support.ports import free_broker_port, free_port
from tests.support.proxy import Proxy
from tests.support.sends import message
from tests.support.ways import Ways

KEYS = Keys("DefaultCluster", "broker-a")


def follower(said: bytes) -> str | None:
    """Which broker follows by a connection that begins so."""
    begin = len(MAGIC) + 5
    end = begin + int.from_bytes(said[len(MAGIC) : len(MAGIC) + 4], "big")
    if len(said) < begin or len(said) < end:
        return None
    return str(msgspec.json.decode(said[begin:end], type=Hello).broker_id)


class Machine:
    """Where a broker runs: its clock and its disk are the test's, and all its ways to others go through proxies."""

    def __init__(self, folder: Path, number: int, clock: Clock | None, *, lossy: bool) -> None:
        self.disk = LossyDisk(folder / "disk", threads=True) if lossy else None
        self.store = (self.disk.folder if self.disk is not None else folder) / "store"
        self.clock = clock
        self.ha_host = f"127.0.1.{number}"
        self.to_etcd: list[Proxy] = []
        self.to_names = Proxy("")
        self.ha = Ways("", follower)
        """The ways of the others to this one as their master."""

    async def start(self, etcd: Sequence[str], names: str, ha_port: int) -> None:
        """Listen for the broker, which is not started yet."""
        self.to_etcd = [await Proxy(address).start() for address in etcd]
        self.to_names = await Proxy(names).start()
        self.ha = await Ways(f"127.0.0.1:{ha_port}", follower).start(self.ha_host, ha_port)

    def settings(self) -> dict[str, str]:
        """Where the broker finds others, and others it."""
        return {
            "namesrvAddr": self.to_names.address,
            "controllerAddr": ";".join(f"http://{proxy.address}" for proxy in self.to_etcd),
            "brokerIP2": self.ha_host,
        }

    def env(self) -> dict[str, str]:
        """What a process needs whose clock is not this machine's."""
        return self.clock.env() if self.clock is not None else {}

    async def stop(self) -> None:
        """End the proxies and the disk."""
        for proxy in (*self.to_etcd, self.to_names):
            await proxy.stop()
        await self.ha.stop()
        if self.disk is not None:
            await asyncio.to_thread(self.disk.__exit__, None, None, None)
        if self.clock is not None:
            self.clock.close()


class FailoverCluster:
    """``count`` brokers; broker 1 is configured as the master. With ``machines`` the test can harm what is around
    them."""

    def __init__(
        self,
        home: Path,
        count: int = 2,
        settings: Mapping[str, str] | None = None,
        *,
        machines: bool = False,
        lossy: bool = False,
        etcd: Sequence[str] = (),
    ) -> None:
        self.brokers: dict[int, LoneBroker] = {}
        self.numbers = range(1, count + 1)
        self.acknowledged: list[bytes] = []
        """The bodies that were answered with 0, in their order."""
        self.all_down: list[float] = []
        """Moments of the monotonic clock at which no broker ran any more."""
        self._home = home
        self._settings = dict(settings or {})
        self._names_port = free_port()
        self._ports = {number: free_broker_port() for number in self.numbers}
        self.machines: dict[int, Machine] = {}
        self._with_machines = machines
        self._lossy = lossy
        self._of_etcd = etcd
        self._to_members: list[Ways] = []
        """The ways of members of etcd to each of them."""
        self._peers: dict[int, Peer] = {}
        self._sent = 0
        self._last = 1

    async def __aenter__(self) -> Self:
        if self._with_machines:
            listens = [f"127.0.0.1:{free_port()}" for _ in range(3)]
            self._to_members = [await Ways(address, member).start() for address in listens]
            peers = [(address, ways.address) for address, ways in zip(listens, self._to_members, strict=True)]
            timing = (*AS_INSTALLED, *self._of_etcd)  # the loop of the test is between the members
            self.etcd: EtcdCluster = await cluster(self._home / "etcd", more=timing, peers=peers)
        else:
            self.etcd = await cluster(self._home / "etcd", more=self._of_etcd)
        await self.start_names()
        if self._with_machines:
            shim = await asyncio.to_thread(shifted_clock, self._home)
            for number in self.numbers:
                folder = self._home / str(number)
                folder.mkdir()
                clock = Clock(shim, folder / "clock") if shim is not None else None
                machine = Machine(folder, number, clock, lossy=self._lossy)
                await machine.start(self.etcd.addresses, self.names.address, self._ports[number] + 1)
                self.machines[number] = machine
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
        for machine in self.machines.values():
            await machine.stop()
        self.names.stop()
        self.etcd.__exit__(None, None, None)
        for ways in self._to_members:
            await ways.stop()

    async def start_names(self) -> None:
        """Start the nameserver, again at its port."""
        settings = {"listenPort": str(self._names_port)}
        self.names = await asyncio.to_thread(ErucaNameServer, self._home / "names", settings)

    async def start(self, number: int, env: Mapping[str, str] | None = None) -> None:
        """Start a broker, with more in its environment; returns when it runs."""
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
        folder, machine = self._home / str(number), self.machines.get(number)
        if machine is not None:
            settings |= machine.settings()
        all_env = {**(machine.env() if machine is not None else {}), **(env or {})}
        self.brokers[number] = await LoneBroker.start(folder, self.store(number), settings, env=all_env)

    def store(self, number: int) -> Path:
        """Where a broker's store is."""
        machine = self.machines.get(number)
        return machine.store if machine is not None else self._home / str(number) / "store"

    def address(self, number: int) -> str:
        """Where clients find a broker."""
        return f"127.0.0.1:{self._ports[number]}"

    def kill(self, number: int) -> None:
        """End a broker at once."""
        self.brokers[number].kill()
        self.brokers[number].close_pipes()
        if not any(broker.running for broker in self.brokers.values()):
            self.all_down.append(time.monotonic())

    async def view(self) -> View:
        """What etcd has of the group. Raises Unavailable."""
        etcd = Etcd(self.etcd.urls)
        try:
            return KEYS.view(await etcd.read_all(KEYS.prefix))
        finally:
            await etcd.close()

    async def found(self, wanted: Callable[[Group], bool], within: float = 30.0) -> Group:
        """Wait until etcd answers with a group that is as wanted; it may be away meanwhile."""
        async with asyncio.timeout(within):
            while True:
                with suppress(Unavailable):
                    if (known := (await self.view()).known) is not None and wanted(known.group):
                        return known.group
                await asyncio.sleep(0.02)

    async def master(self) -> int:
        """The broker that etcd names, whoever else passes on what it is sent."""
        return (await self.found(lambda group: True)).master_broker_id

    async def all_in_set(self, within: float = 30.0) -> None:
        """Wait until every broker is in the set."""
        await self.found(lambda group: group.sync_state_set == {*self.numbers}, within)

    async def led_by_another(self, than: int, within: float = 30.0) -> None:
        """Wait until etcd names another master than this one."""
        await self.found(lambda group: group.master_broker_id != than, within)

    async def known_to_clients(self, within: float = 30.0) -> None:
        """Wait until the nameserver names the master that etcd has."""
        async with asyncio.timeout(within):
            while True:
                with suppress(OSError, EOFError, TimeoutError):
                    names = await Peer().connect(self.names.address)
                    try:
                        found = (await brokers_by(names)).get("broker-a", {})
                    finally:
                        await names.close()
                    if found.get(0) == self.address(await self.master()):
                        return
                await asyncio.sleep(0.05)

    async def between(self, one: int, other: int) -> list[Proxy]:
        """The ways of two brokers to each other, whoever of them leads."""
        return [await self.machines[one].ha.of(str(other)), await self.machines[other].ha.of(str(one))]

    async def between_members(self, one: int, other: int) -> list[Proxy]:
        """The ways of two members of etcd to each other."""
        ids = await asyncio.to_thread(self.etcd.ids)
        return [await self._to_members[one].of(ids[other]), await self._to_members[other].of(ids[one])]

    async def hand_over(self, to: int, within: float = 10.0) -> None:
        """Have the master hand the mastership over, as soon as it knows that the other one is in the set; again where
        that one did not stand in time, and the group did not wait for it.

        Raises AssertionError with what it said if it did not.
        """
        until = time.monotonic() + within
        while (said := await self.asked_to_hand_over(to)) is not None and time.monotonic() < until:
            assert "is not in the syncStateSet" in said or f"was elected, and not broker {to}" in said, said
            await asyncio.sleep(0.05)
        assert said is None, said

    async def asked_to_hand_over(self, to: int) -> str | None:
        """Ask the master to hand the mastership over; what it said if it did not."""
        asked: dict[str, object] = {"clusterName": "DefaultCluster", "brokerName": "broker-a", "brokerId": to}
        master = await self.master()
        await self.hang_up(master)  # the connection may be one to a former life
        try:
            answer = await self.ask(master, 1002, asked, within=15)
        except (OSError, EOFError, TimeoutError) as fault:
            await self.hang_up(master)
            return repr(fault)
        return str(answer.remark) if answer.code else None

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

    async def ask(
        self, number: int, code: int, fields: dict[str, object], body: bytes = b"", within: float = 5.0
    ) -> Answered:
        """One request to a broker, which answers."""
        peer = self._peers.get(number)
        if peer is None:
            peer = self._peers[number] = await Peer().connect(self.address(number))
        return await peer.ask(code, fields, body, within=within)

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
        files = sorted((self.store(number) / "commitlog").iterdir())
        return b"".join(file.read_bytes() for file in files).rstrip(b"\0")


def bodies(log: bytes) -> list[bytes]:
    """The bodies of the messages of the producer in a log of one file."""
    return [record.body for record in decode_records(log) if record.topic == "T"]
