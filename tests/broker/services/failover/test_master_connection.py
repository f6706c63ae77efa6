"""One connection to a master: what comes together is handed on and reported as one, and no more than there is room."""

from __future__ import annotations

import asyncio

import pytest

from eruca.broker.failover.epochs import Epoch
from eruca.broker.failover.events import Event, MasterLost, Welcomed
from eruca.broker.failover.in_sync import Report
from eruca.broker.failover.member import Member
from eruca.broker.services.failover import messages
from eruca.broker.services.failover.master_connection import MasterConnection
from eruca.broker.services.failover.messages import Beat, Kind, MessageReader
from eruca.broker.services.failover.ports import Frame, TableFrame

EPOCH = Epoch(3, 0)
WELCOME = messages.welcome(Welcomed(3, (EPOCH,), 0, 0))


class Driver:
    """Takes what comes, and reports each part; ``room`` parts at most."""

    def __init__(self) -> None:
        self.member = Member(2, "store-2")
        self.posted: list[Event] = []
        self.taken: list[Frame | TableFrame] = []
        self.room = 1000
        self.full: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.connection: MasterConnection

    def post(self, event: Event) -> None:
        self.posted.append(event)

    def take(self, frame: Frame | TableFrame) -> asyncio.Future[None] | None:
        self.taken.append(frame)
        if isinstance(frame, Frame) and frame.part is not None:
            self.connection.tell(Report(2, "store-2", 3, frame.offset + len(frame.data)))
        return self.full if len(self.taken) >= self.room and not self.full.done() else None


class Transport(asyncio.Transport):
    """Keeps what is written; as uvloop's, it takes nothing after its end."""

    def __init__(self) -> None:
        super().__init__()
        self.said = MessageReader()
        self.kinds: list[Kind] = []
        """Of the messages that were written."""
        self.reading = True
        self.aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.aborted:
            raise RuntimeError("unable to perform operation; the handler is closed")
        self.kinds += [kind for kind, _ in self.said.feed(bytes(data))]

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True


@pytest.fixture
async def driver() -> Driver:
    return Driver()


@pytest.fixture
async def transport() -> Transport:
    return Transport()


@pytest.fixture
async def connection(driver: Driver, transport: Transport) -> MasterConnection:
    connection = driver.connection = MasterConnection(driver, lambda: 1000)
    connection.connection_made(transport)
    connection.data_received(WELCOME)
    return connection


def part(offset: int, data: bytes, *, epoch: Epoch = EPOCH) -> bytes:
    return messages.part_head(3, epoch, offset, len(data), offset) + data


async def test_parts_that_come_together_are_one_and_are_reported_once(
    driver: Driver, transport: Transport, connection: MasterConnection
) -> None:
    connection.data_received(part(0, b"abc") + part(3, b"def") + messages.beat(Beat(3, 5, 99)) + part(6, b"g"))
    assert [(each.offset, bytes(each.data), each.confirmed) for each in driver.taken if isinstance(each, Frame)] == [
        (0, b"abcdef", 3),
        (0, b"", 5),
        (6, b"g", 6),
    ]
    assert transport.kinds == [Kind.HEARD, Kind.REPORT]
    connection.leave()


async def test_parts_of_two_epochs_or_with_a_gap_stay_two(driver: Driver, connection: MasterConnection) -> None:
    connection.data_received(part(0, b"abc") + part(3, b"d", epoch=Epoch(4, 3)) + part(9, b"e", epoch=Epoch(4, 3)))
    assert [each.offset for each in driver.taken if isinstance(each, Frame)] == [0, 3, 9]
    connection.leave()


async def test_nothing_is_read_while_there_is_no_room(
    driver: Driver, transport: Transport, connection: MasterConnection
) -> None:
    driver.room = 2
    connection.data_received(b"".join(part(at, b"x", epoch=Epoch(at, at)) for at in range(1, 5)))
    assert len(driver.taken) == 2 and not transport.reading
    driver.full.set_result(None)
    await asyncio.sleep(0)
    assert len(driver.taken) == 4 and transport.reading
    connection.leave()


async def test_after_leave_nothing_is_handed_on(
    driver: Driver, transport: Transport, connection: MasterConnection
) -> None:
    connection.leave()
    connection.data_received(part(0, b"abc") + messages.beat(Beat(3, 5, 99)))
    connection.connection_lost(None)
    assert not driver.taken and MasterLost() not in driver.posted and not transport.kinds


async def test_the_loss_of_a_master_is_posted_once(driver: Driver, connection: MasterConnection) -> None:
    connection.data_received(b"\x7f" * 9)
    connection.connection_lost(None)
    assert driver.posted.count(MasterLost()) == 1
    assert "no message of a group" in await connection.ended


async def test_nothing_is_said_to_a_master_that_has_hung_up(
    driver: Driver, transport: Transport, connection: MasterConnection
) -> None:
    transport.abort()
    connection.data_received(part(0, b"abc") + messages.beat(Beat(3, 5, 99)))
    connection.tell(Report(2, "store-2", 3, 3))
    assert len(driver.taken) == 2 and not transport.kinds
    connection.connection_lost(None)
