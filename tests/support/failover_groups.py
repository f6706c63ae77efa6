"""Groups of brokers that are nothing but their drivers of failover: logs in memory, and links that a test can cut.

A log is a list of bytes, each of which is a message with the number of the epoch in which it was written (modulo 251).
What a master confirms is acknowledged; ``acknowledged`` is the longest log that anybody was promised, and each further
promise is compared with it. What the real broker does on its disk and on its sockets is not here.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Generic, TypeVar
from typing import Self as Same

from eruca.broker.coordination.port import Coordinator
from eruca.broker.failover import epochs as lists
from eruca.broker.failover.epochs import Epochs
from eruca.broker.failover.events import Asked, Copied, MasterLost, ReplicaLost, Reported, TablesChanged, Welcomed
from eruca.broker.failover.group import Group
from eruca.broker.failover.in_sync import Report
from eruca.broker.failover.member import Promise, Rules, State
from eruca.broker.services.failover.driver import Driver
from eruca.broker.services.failover.keys import Keys
from eruca.broker.services.failover.links import TcpLinks
from eruca.broker.services.failover.ports import Frame, Links, Pace, Self, TableFrame
from eruca.broker.services.failover.replicas import Pace as Batches
from eruca.broker.services.failover.tables import Pending, Tables
from eruca.broker.state.locks import Locks
from eruca.remoting.clock import boottime_ms
from eruca.remoting.tasks import Tasks

C = TypeVar("C", bound=Coordinator)
KEYS = Keys("Lab", "broker-a")
QUICK = Pace(renew=0.05, again=0.01, doubt=0.05, look=0.01, silence=0.1)
BEATS = 0.02
"""Seconds between two heartbeats."""


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what the parts of a group do; they tell nobody."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


class Disk:
    """What is left of a broker when it was killed: its log, its list of epochs, the id of its store."""

    def __init__(self, store: str) -> None:
        self.store = store
        self.log = bytearray()
        self.epochs: Epochs = ()
        self.group: Group | None = None


class MemoryOffice(Generic[C]):
    """The office: a log, and whether this broker leads."""

    def __init__(self, machine: Machine[C]) -> None:
        self._machine = machine
        self.leads: int | None = None
        """The epoch in which it leads."""
        self.barred: str | None = None
        self.confirmed = self.tables = 0
        self.promised: Promise | None = None
        """What was shown last."""
        self.writes = asyncio.Event()
        """Whether its disk goes on."""
        self.writes.set()
        self.fault: Exception | None = None
        """What ``show`` raises."""
        self.disk_failed = False
        self.unwritable = False
        """Whether its files cannot be written, or the disk hangs on them; the log's flushes have not seen that."""
        self.whole = sys.maxsize
        """Up to where its log has whole records."""

    def epochs(self) -> Epochs:
        return self._machine.disk.epochs

    def damaged_at(self) -> int | None:
        return None

    async def note(self, epochs: Epochs) -> None:
        await self.writes.wait()
        self._write()
        self._machine.disk.epochs = epochs

    def kept(self) -> Group | None:
        return self._machine.disk.group

    async def keep(self, group: Group) -> None:
        self._write()
        self._machine.disk.group = group

    def _write(self) -> None:
        if self.unwritable:
            raise OSError("the disk fails, or hangs")

    @property
    def shown_end(self) -> int:
        return min(self.whole, len(self._machine.disk.log))

    async def settle(self) -> int:
        if self.disk_failed:
            raise OSError("the disk fails, or hangs")
        return len(self._machine.disk.log)

    def append(self, frame: Frame) -> int:
        log = self._machine.disk.log
        assert frame.offset == len(log)
        log += frame.data
        return len(log)

    async def take_tables(self, frame: TableFrame) -> None:
        await self._machine.tables.take(frame)

    async def cut(self, end: int) -> None:
        del self._machine.disk.log[end:]
        self._machine.disk.epochs = lists.cut(self._machine.disk.epochs, end)

    async def lead(self, epoch: int, *, takes_sends: bool) -> None:
        self._machine.tables.lead(epoch)
        self.leads = epoch

    async def follow(self) -> None:
        self.leads = None
        self._machine.tables.resign()

    def follows(self, address: str) -> None:
        pass

    def show(self, promise: Promise) -> None:
        if self.fault is not None:
            raise self.fault
        if promise == self.promised:
            return
        self.promised = promise
        self.confirmed = confirmed = promise.confirmed
        self._machine.tables.show(promise.tables)
        self._machine.group.promised(bytes(self._machine.disk.log[:confirmed]), leads=self.leads is not None)

    def bar(self, reason: str) -> None:
        self.barred = reason

    def admit(self) -> None:
        self.barred = None


class MemoryLinks(Generic[C]):
    """Links to the drivers of the same group; those that the group cuts carry nothing."""

    def __init__(self, machine: Machine[C]) -> None:
        self._machine = machine
        self._wanted: tuple[str, int] | None = None
        self.master: Machine[C] | None = None
        self.heard: int | None = None
        self._answered: dict[int, int] = {}
        self._sent: dict[int, int] = {}
        """Up to where each replica got the log."""
        self._pending: dict[int, Pending] = {}
        """What each has to get of the tables."""

    def join(self, ha_address: str, epoch: int) -> None:
        self._wanted = ha_address, epoch

    def leave(self) -> None:
        self._wanted = self.master = None

    def tell(self, report: Report) -> None:
        if self.master is not None and self._reaches(self.master):
            self.master.driver.post(Reported(report, len(self.master.disk.log)))

    def welcome(self, broker_id: int, answer: Welcomed) -> None:
        replica = self._machine.group.machines.get(broker_id)
        if replica is not None and self._reaches(replica):
            self._sent[broker_id] = -1
            self._forget(broker_id)
            self._pending[broker_id] = self._machine.tables.replica()
            replica.links.welcomed(self._machine, answer)

    def welcomed(self, master: Machine[C], answer: Welcomed) -> None:
        self.master, self.heard = master, boottime_ms()
        self._machine.driver.post(answer)

    def _forget(self, broker_id: int) -> None:
        if (pending := self._pending.pop(broker_id, None)) is not None:
            self._machine.tables.forget(pending)

    def dismiss(self) -> None:
        for broker_id in tuple(self._pending):
            self._forget(broker_id)
        self._sent.clear()
        self._answered.clear()

    def master_heard(self) -> int | None:
        return self.heard

    def master_silent_since(self) -> int | None:
        return self.heard if self.master is not None else None

    def answered(self) -> Mapping[int, int]:
        return self._answered

    def _reaches(self, other: Machine[C]) -> bool:
        return self._machine.group.connected(self._machine, other)

    async def beat(self) -> None:
        """Shake hands where that is wanted; send what replicas lack, and a heartbeat."""
        if self._wanted is not None and self.master is None:
            self._shake_hands(*self._wanted)
        if self.master is not None and not self._reaches(self.master):
            self.master = None
            self._machine.driver.post(MasterLost())
        if self._machine.driver.member.state is State.MASTER:
            for broker_id in tuple(self._sent):
                await self._send(broker_id)

    def _shake_hands(self, ha_address: str, epoch: int) -> None:
        for other in self._machine.group.machines.values():
            its = other.driver.member
            there = other.ha_address == ha_address and self._reaches(other)
            if there and its.state is State.MASTER and its.known and its.known.group.master_epoch == epoch:
                other.driver.post(Asked(self._machine.broker_id))

    async def _send(self, broker_id: int) -> None:
        replica = self._machine.group.machines.get(broker_id)
        me, log = self._machine.driver.member, self._machine.disk.log
        if replica is None or not self._reaches(replica) or replica.links.master is not self._machine:
            del self._sent[broker_id]
            self._forget(broker_id)
            self._machine.driver.post(ReplicaLost(broker_id))
            return
        replica.links.heard = self._answered[broker_id] = boottime_ms()
        tables, pending = self._machine.tables, self._pending[broker_id]
        if replica.driver.member.state is State.FOLLOWING and pending.number < tables.number:
            body = tables.message(pending)
            await self._taken(replica, TableFrame(me.epoch, pending.number, body))
        at = len(replica.disk.log)
        part = lists.at(me.epochs, at) if at < len(log) else None
        if part is None:
            replica.driver.post(Copied(me.epoch, None, at, me.confirmed))
        elif replica.driver.member.state is State.FOLLOWING and self._sent[broker_id] < at:
            self._sent[broker_id] = at
            later = [entry.start for entry in me.epochs if entry.start > at]
            stop = min([at + 3, len(log), *later])
            await self._taken(replica, Frame(me.epoch, part, at, bytes(log[at:stop]), me.confirmed))

    async def _taken(self, replica: Machine[C], frame: Frame | TableFrame) -> None:
        full = replica.driver.take(frame)
        if full is not None:
            await full


class DiskLog:
    """The log of a disk, for replicas."""

    begin_offset = 0

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    @property
    def safe_offset(self) -> int:
        return len(self._disk.log)

    def take(self, offset: int, most: int, *, wait: bool = False) -> bytes:
        return bytes(self._disk.log[offset : offset + most])


class Machine(Generic[C]):
    """One broker that runs; with ``tcp`` its links are those of the product."""

    def __init__(
        self,
        group: MemoryGroup[C],
        broker_id: int,
        disk: Disk,
        tcp: asyncio.Server | None = None,
        address: str | None = None,
    ) -> None:
        self.group = group
        self.broker_id = broker_id
        self.disk = disk
        self.slept = 0
        """How many ms its clock is ahead of the others': as if it had slept."""
        self.ha_address = f"broker-{broker_id}:10912" if tcp is None else _address(tcp)
        self.tables = Tables({}, {"locks": Locks()}, lambda: 1.0)
        self.office = MemoryOffice(self)
        self.links = MemoryLinks(self)
        self.coordinator = group.coordinator()
        self.tasks = Tasks()
        clients = address or f"broker-{broker_id}:10911"
        me = Self(broker_id, disk.store, clients, self.ha_address, 0, founds=broker_id == 1)
        self.server = tcp
        self.tcp = TcpLinks(
            me, KEYS.prefix, DiskLog(disk), self.tasks, boottime_ms, Batches(batch=3), tables=self.tables
        )
        links: Links = self.links if tcp is None else self.tcp
        self.driver = Driver(
            me,
            KEYS,
            self.coordinator,
            self.office,
            links,
            self.tasks,
            Rules(),
            monotonic=lambda: boottime_ms() + self.slept,
            pace=group.pace,
        )
        self.tables.on_number = self._tables_changed
        self.tcp.attach(self.driver)

    def _tables_changed(self, number: int) -> None:
        self.driver.post(TablesChanged(number))
        self.tcp.replicas.changed()

    def put(self, count: int = 1) -> None:
        """Messages of a client; only a master stores them."""
        assert self.office.leads is not None
        self.disk.log += bytes([self.office.leads % 251]) * count
        self.driver.stored(len(self.disk.log))
        self.tcp.replicas.written()

    @property
    def members(self) -> frozenset[int]:
        """The set, as this broker knows it."""
        known = self.driver.member.known
        return known.group.sync_state_set if known is not None else frozenset()


def _address(server: asyncio.Server) -> str:
    host, port = server.sockets[0].getsockname()
    return f"{host}:{port}"


class MemoryGroup(Generic[C]):
    """Brokers 1, 2, ...; broker 1 is configured as the master. ``coordinator`` makes the client of each."""

    def __init__(self, coordinator: Callable[[], C], pace: Pace = QUICK, *, tcp: bool = False) -> None:
        self.coordinator = coordinator
        self._tcp = tcp
        self.pace = pace
        self.machines: dict[int, Machine[C]] = {}
        self.disks: dict[int, Disk] = {}
        self.acknowledged = b""
        self.alone: set[int] = set()
        """Brokers that reach no other one."""
        self._beats: asyncio.Task[None] | None = None

    async def start(self, *broker_ids: int) -> None:
        """Start brokers, with what is on their disks."""
        for broker_id in broker_ids:
            disk = self.disks.setdefault(broker_id, Disk(f"store-{broker_id}"))
            server = await self._server(broker_id) if self._tcp else None
            self.machines[broker_id] = machine = Machine(self, broker_id, disk, server)
            if self._tcp:
                machine.tcp.start()
            await machine.driver.start()

    async def _server(self, broker_id: int) -> asyncio.Server:
        def accept() -> asyncio.Protocol:
            return self.machines[broker_id].tcp.protocol("")

        return await asyncio.get_running_loop().create_server(accept, "127.0.0.1", 0)

    async def kill(self, broker_id: int) -> None:
        """End a broker at once: it leaves its keys behind."""
        machine = self.machines.pop(broker_id)
        if machine.server is not None:
            machine.server.close()
        running = tuple(machine.tasks.running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, machine.tcp.stop(), return_exceptions=True)
        await machine.coordinator.close()

    async def stop(self, broker_id: int) -> None:
        """End a broker in order."""
        machine = self.machines.pop(broker_id)
        if machine.server is not None:
            machine.server.close()
        await machine.driver.stop()
        await machine.tcp.stop()
        await machine.coordinator.close()

    def connected(self, one: Machine[C], other: Machine[C]) -> bool:
        """Whether two brokers reach each other."""
        run = self.machines.get(one.broker_id) is one and self.machines.get(other.broker_id) is other
        return run and not self.alone & {one.broker_id, other.broker_id}

    def promised(self, shown: bytes, *, leads: bool) -> None:
        """A broker shows this much of its log, or acknowledges it."""
        if leads and len(shown) > len(self.acknowledged):
            assert shown.startswith(self.acknowledged), "what was acknowledged is not in the new master's log"
            self.acknowledged = shown
        assert self.acknowledged.startswith(shown), "something is shown that was not acknowledged"

    def master(self) -> Machine[C] | None:
        """The one that leads in the newest epoch."""
        led = {m.office.leads: m for m in self.machines.values() if m.office.leads is not None}
        return led[max(led)] if led else None

    async def led(self, by: int | None = None, *, members: set[int] | None = None, within: float = 20.0) -> Machine[C]:
        """Wait until a broker leads, with such a set."""
        async with asyncio.timeout(within):
            while True:
                master = self.master()
                if master is not None and by in (None, master.broker_id) and members in (None, master.members):
                    return master
                await asyncio.sleep(0.005)

    async def all_have(self, count: int, within: float = 20.0) -> None:
        """Wait until every broker has so many messages, and shows them."""
        async with asyncio.timeout(within):
            while any(  # noqa: ASYNC110
                (len(m.disk.log), m.office.confirmed) != (count, count) for m in self.machines.values()
            ):
                await asyncio.sleep(0.005)
        assert {bytes(m.disk.log) for m in self.machines.values()} == {self.acknowledged}
        assert len({lists.cut(m.disk.epochs, count) for m in self.machines.values()}) == 1

    async def _beat(self) -> None:
        while True:
            for machine in tuple(self.machines.values()):
                await machine.links.beat()
            await asyncio.sleep(BEATS)

    async def __aenter__(self) -> Same:
        self._beats = asyncio.get_running_loop().create_task(self._beat())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async with AsyncExitStack() as ending:
            for broker_id in tuple(self.machines):
                ending.push_async_callback(self.kill, broker_id)
        if self._beats is not None:
            self._beats.cancel()
            await asyncio.gather(self._beats, return_exceptions=True)
