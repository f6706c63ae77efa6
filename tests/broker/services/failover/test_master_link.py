"""A replica's link to a master that turns it away, or whose own log cannot be read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from eruca.broker.failover.epochs import Epoch
from eruca.broker.failover.events import Event, MasterLost, Welcomed
from eruca.broker.failover.member import Member
from eruca.broker.services.failover import messages
from eruca.broker.services.failover.master_link import MasterLink
from eruca.broker.services.failover.messages import Beat, Hello
from eruca.broker.services.failover.ports import Frame, TableFrame
from eruca.remoting.clock import boottime_ms
from eruca.remoting.readiness import Readiness
from eruca.remoting.tasks import Tasks


class Master:
    """Welcomes each replica, and refuses it at once, or after ``before``."""

    address = ""

    def __init__(self) -> None:
        self.met = 0
        self.before = b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.met += 1
        welcome = messages.welcome(Welcomed(1, (Epoch(1, 0),), 0, 0))
        writer.write(welcome + self.before + messages.refused("its log was deleted here"))
        await writer.drain()
        writer.close()


class Driver:
    """Looks for the master again whenever it was lost, as the rules do."""

    def __init__(self, link: MasterLink, master: Master) -> None:
        self.member = Member(2, "store-2")
        self.lost = asyncio.Event()
        self._link = link
        self._master = master

    def post(self, event: Event) -> None:
        if isinstance(event, MasterLost):
            self.lost.set()

    def take(self, frame: Frame | TableFrame) -> None:
        """It always has room."""

    async def run(self) -> None:
        while True:
            self._link.leave()
            self._link.join(self._master.address, 1)
            await self.lost.wait()
            self.lost.clear()


@pytest.fixture
async def master() -> AsyncIterator[Master]:
    master = Master()
    server = await asyncio.start_server(master.serve, "127.0.0.1", 0)
    master.address = "{}:{}".format(*server.sockets[0].getsockname())
    yield master
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize(
    "before",
    [b"", messages.beat(Beat(1, 0, 0)), messages.tables(1, 1, b""), messages.part_head(1, Epoch(1, 0), 0, 1, 0) + b"x"],
    ids=["nothing", "a heartbeat", "tables", "a part of the log"],
)
async def test_a_master_that_turns_a_replica_away_is_met_ever_more_rarely(master: Master, before: bytes) -> None:
    """Also where the driver joins it again after each loss, and where each connection brings something."""
    master.before = before

    async def hello(epoch: int) -> Hello:
        return Hello("group", 2, "store-2", epoch)

    link = MasterLink(hello, Tasks(Readiness()), boottime_ms)
    driver = link.driver = Driver(link, master)
    running = asyncio.create_task(driver.run())
    begun = asyncio.get_running_loop().time()
    async with asyncio.timeout(20):
        while master.met < 5:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert asyncio.get_running_loop().time() - begun > 0.05 + 0.1 + 0.2 + 0.4
    running.cancel()
    await link.stop()


async def test_a_log_that_cannot_be_read_ends_no_task(master: Master) -> None:
    told: list[int] = []

    async def hello(epoch: int) -> Hello:
        told.append(epoch)
        raise OSError(5, "Input/output error")

    tasks = Tasks(Readiness())
    link = MasterLink(hello, tasks, boottime_ms)
    link.driver = Driver(link, master)
    link.join(master.address, 1)
    async with asyncio.timeout(20):
        while len(told) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert tasks.fault is None
    await link.stop()
