"""The links of a group over TCP: drivers with the HA protocol of epochs, and peers by hand who say something else."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import AsyncIterator, Callable

import pytest
from structlog.testing import capture_logs

from eruca.broker.failover.epochs import Epoch
from eruca.broker.failover.events import MasterLost, Welcomed
from eruca.broker.failover.member import State
from eruca.broker.services.failover import messages
from eruca.broker.services.failover.messages import Beat, Hello, Kind, MessageReader
from eruca.broker.services.failover.ports import Frame, TableFrame
from eruca.protocol.errors import ProtocolError
from tests.support.coordination import FakeClient, FakeCoordinator
from tests.support.failover_groups import KEYS, Disk, Machine, MemoryGroup, until


@pytest.fixture
async def group(etcd: FakeCoordinator) -> AsyncIterator[MemoryGroup[FakeClient]]:
    async with MemoryGroup(lambda: FakeClient(etcd), tcp=True) as group:
        yield group


class ByHand:
    """A peer of a broker's HA port."""

    tables = 0
    """The number of the tables that was sent to it last."""

    async def connect(self, machine: Machine[FakeClient]) -> ByHand:
        host, _, port = machine.ha_address.rpartition(":")
        self.reader, self.writer = await asyncio.open_connection(host, int(port))
        self.messages = MessageReader()
        self.came: deque[tuple[Kind, bytes]] = deque()
        return self

    async def greet(self, machine: Machine[FakeClient], **changes: object) -> tuple[Kind, bytes]:
        """Connect and shake hands; the answer."""
        await self.connect(machine)
        said = {"group": KEYS.prefix, "broker_id": 9, "store": "by hand", "epoch": machine.driver.member.epoch}
        self.writer.write(messages.hello(Hello(**(said | changes))))  # type: ignore[arg-type]
        return await self.next()

    async def next(self) -> tuple[Kind, bytes]:
        async with asyncio.timeout(5):
            while not self.came:
                data = await self.reader.read(4096)
                assert data, "the broker has closed the connection"
                self.came += self.messages.feed(data)
            return self.came.popleft()

    async def next_part(self) -> Frame:
        """The next part of the log; heartbeats on the way are answered."""
        while True:
            kind, body = await self.next()
            if kind is Kind.PART:
                return messages.read_part(body)
            if kind is Kind.TABLES:
                self.tables = messages.read_tables(body).number
                continue
            assert kind is Kind.BEAT
            self.writer.write(messages.heard(messages.read_beat(body).stamp))

    async def end(self) -> None:
        """Wait until the broker has closed the connection."""
        async with asyncio.timeout(5):
            while await self.reader.read(4096):
                pass
        await self.close()

    async def close(self) -> None:
        self.writer.transport.abort()


# ---------------------------------------------------------------------- groups


async def test_a_group_replicates_and_what_is_confirmed_survives_its_masters(
    group: MemoryGroup[FakeClient], etcd: FakeCoordinator
) -> None:
    await group.start(1, 2, 3)
    master = await group.led(by=1, members={1, 2, 3})
    count = 0
    for _ in range(3):
        master.put(20)
        count += 20
        await group.all_have(count)
        killed = master.broker_id
        await group.kill(killed)
        etcd.expire(KEYS.master)
        master = await group.led()
        await group.start(killed)
        master = await group.led(members={1, 2, 3})
    assert [entry.epoch for entry in master.disk.epochs][:3] == [2, 3, 4]
    assert len(group.acknowledged) == count


async def test_what_a_killed_master_alone_had_is_cut_off_when_it_returns(
    group: MemoryGroup[FakeClient], etcd: FakeCoordinator
) -> None:
    await group.start(1, 2)
    master = await group.led(by=1, members={1, 2})
    master.put(10)
    await group.all_have(10)
    await group.kill(1)
    group.disks[1].log += b"\2" * 5  # it was stored, and nobody else got it
    etcd.expire(KEYS.master)
    second = await group.led(by=2)
    second.put(3)
    await group.start(1)
    await group.led(by=2, members={1, 2})
    await group.all_have(13)


async def test_a_replica_that_is_killed_leaves_the_set_at_once(group: MemoryGroup[FakeClient]) -> None:
    await group.start(1, 2, 3)
    master = await group.led(by=1, members={1, 2, 3})
    await group.kill(2)
    await group.led(by=1, members={1, 3})
    master.put(4)
    await until(lambda: master.office.confirmed == 4)
    assert master.driver.sure


async def test_a_replica_follows_over_the_connection_that_it_has_after_the_welcome_of_one_that_it_has_left(
    group: MemoryGroup[FakeClient],
) -> None:
    """The link may have connected again while the loss of the former connection waits; then it connects once more."""
    await group.start(1, 2)
    master = await group.led(by=1, members={1, 2})
    master.put(10)
    await group.all_have(10)
    replica = group.machines[2]
    its = master.driver.member
    with capture_logs() as said:
        replica.driver.post(MasterLost())
        replica.driver.post(Welcomed(its.epoch, its.epochs, its.end, its.confirmed))
        await group.led(by=1, members={1})
        await group.led(by=1, members={1, 2})
    connected = [line for line in said if line["event"] == "replica_connected"]
    assert len(connected) == 1, "it was let in, and said nothing before it was given up"
    master.put(5)
    await group.all_have(15)


# ---------------------------------------------------------------------- by hand


async def alone(group: MemoryGroup[FakeClient]) -> Machine[FakeClient]:
    await group.start(1)
    master = await group.led(by=1, members={1})
    master.put(10)
    await until(lambda: master.office.confirmed == 10)
    return master


async def test_a_replica_gets_the_log_from_where_its_own_ends_and_each_part_is_of_one_epoch(
    group: MemoryGroup[FakeClient],
) -> None:
    master = await alone(group)
    await group.kill(1)
    await group.start(1)
    master = await group.led(by=1, members={1})
    master.put(5)
    hand = ByHand()
    kind, body = await hand.greet(master)
    assert kind is Kind.WELCOME
    assert messages.read_welcome(body) == Welcomed(3, (Epoch(2, 0), Epoch(3, 10)), 15, 15)
    hand.writer.write(messages.report(3, 4, 0))
    parts = [await hand.next_part() for _ in range(4)]
    assert [(each.offset, each.part, each.data) for each in parts] == [
        (4, Epoch(2, 0), b"\2\2\2"),
        (7, Epoch(2, 0), b"\2\2\2"),
        (10, Epoch(3, 10), b"\3\3\3"),
        (13, Epoch(3, 10), b"\3\3"),
    ]
    assert hand.tables == 1  # they come first
    hand.writer.write(messages.report(3, 15, 1))
    await group.led(by=1, members={1, 9})
    await hand.close()
    await group.led(by=1, members={1})


async def test_who_shakes_hands_again_has_one_connection(group: MemoryGroup[FakeClient]) -> None:
    master = await alone(group)
    first, second = ByHand(), ByHand()
    assert (await first.greet(master))[0] is Kind.WELCOME
    assert (await second.greet(master))[0] is Kind.WELCOME
    await first.end()
    await second.close()


async def test_of_two_brokers_with_one_broker_id_the_first_one_stays_until_it_is_lost(
    group: MemoryGroup[FakeClient],
) -> None:
    master = await alone(group)
    first, second = ByHand(), ByHand()
    assert (await first.greet(master))[0] is Kind.WELCOME
    kind, reason = await second.greet(master, store="another")
    assert kind is Kind.REFUSED and b"another broker with brokerId 9 is connected, 127.0.0.1:" in reason
    await second.end()
    first.writer.write(messages.report(2, 10, 0))
    assert (await first.next())[0] is Kind.TABLES
    first.writer.write(messages.report(2, 10, 1))
    await group.led(by=1, members={1, 9})
    await first.close()
    await group.led(by=1, members={1})
    assert (await second.greet(master, store="another"))[0] is Kind.WELCOME
    await second.close()


async def test_a_replica_that_is_refused_again_and_again_is_one_line(group: MemoryGroup[FakeClient]) -> None:
    """It tries every second, for as long as nobody leads or as another one has its brokerId."""
    master = await alone(group)
    hand = ByHand()
    with capture_logs() as said:
        for changes in [{"epoch": 7}] * 3 + [{"epoch": 8}] * 2:
            assert (await hand.greet(master, **changes))[0] is Kind.REFUSED
            await hand.end()
        assert (await hand.greet(master))[0] is Kind.WELCOME
        await hand.close()
        assert (await hand.greet(master, epoch=8))[0] is Kind.REFUSED
        await hand.end()
    assert [(line["broker_id"], line["reason"]) for line in said if line["event"] == "replica_refused"] == [
        (9, "this broker is no master of epoch 7: it is master in epoch 2"),
        (9, "this broker is no master of epoch 8: it is master in epoch 2"),
        (9, "this broker is no master of epoch 8: it is master in epoch 2"),
    ]


@pytest.mark.slow
async def test_a_replica_that_was_let_in_and_never_reports_is_given_up(group: MemoryGroup[FakeClient]) -> None:
    master = await alone(group)
    hand = ByHand()
    assert (await hand.greet(master))[0] is Kind.WELCOME
    await hand.end()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"group": "/eruca/1/Lab/other/"}, "this broker is of the group /eruca/1/Lab/broker-a/"),
        ({"epoch": 7}, "this broker is no master of epoch 7: it is master in epoch 2"),
        ({"broker_id": 1}, "it has the brokerId of the master, 1: give each broker of the name its own"),
    ],
)
async def test_who_does_not_belong_to_the_master_is_told_why(
    group: MemoryGroup[FakeClient], changes: dict[str, object], reason: str
) -> None:
    master = await alone(group)
    hand = ByHand()
    assert await hand.greet(master, **changes) == (Kind.REFUSED, reason.encode())
    await hand.end()


@pytest.mark.parametrize("said", [struct.pack(">q", 1000), b"GET / HTTP/1.1\r\n\r\n", messages.MAGIC + b"\x7f" * 9])
async def test_what_is_no_replica_is_turned_away(group: MemoryGroup[FakeClient], said: bytes) -> None:
    master = await alone(group)
    hand = await ByHand().connect(master)
    hand.writer.write(said)
    await hand.end()
    assert master.driver.member.state is State.MASTER


async def test_a_replica_cannot_have_more_than_the_master(group: MemoryGroup[FakeClient]) -> None:
    master = await alone(group)
    hand = ByHand()
    await hand.greet(master)
    hand.writer.write(messages.report(2, 11, 0))
    await hand.end()
    assert master.members == {1}


async def test_a_replica_that_reports_of_another_epoch_does_not_count(group: MemoryGroup[FakeClient]) -> None:
    master = await alone(group)
    hand = ByHand()
    await hand.greet(master)
    hand.writer.write(messages.report(1, 10, 0))
    while (await hand.next())[0] is not Kind.BEAT:
        pass
    assert master.members == {1}
    await hand.close()


# ---------------------------------------------------------------------- messages


@pytest.mark.parametrize("size", [1, 3, 17, 1000])
def test_messages_come_back_as_they_were_in_any_chunking(size: int) -> None:
    said = messages.welcome(Welcomed(3, (Epoch(1, 0), Epoch(3, 1 << 40)), 1 << 41, 5))
    said += messages.part_head(3, Epoch(1, 0), 7, 2, 5) + b"xy" + messages.beat(Beat(3, 5, 99))
    said += messages.heard(99) + messages.report(3, 8, 6) + messages.tables(3, 6, b"abc")
    reader, found = MessageReader(), list[tuple[Kind, bytes]]()
    for at in range(0, len(said), size):
        found += reader.feed(said[at : at + size])
    assert messages.read_welcome(found[0][1]) == Welcomed(3, (Epoch(1, 0), Epoch(3, 1 << 40)), 1 << 41, 5)
    assert messages.read_part(found[1][1]) == Frame(3, Epoch(1, 0), 7, b"xy", 5)
    assert messages.read_beat(found[2][1]) == Beat(3, 5, 99)
    assert messages.read_heard(found[3][1]) == 99 and messages.read_report(found[4][1]) == (3, 8, 6)
    assert messages.read_tables(found[5][1]) == TableFrame(3, 6, b"abc")


@pytest.mark.parametrize(
    "read",
    [
        messages.read_hello,
        messages.read_welcome,
        messages.read_part,
        messages.read_beat,
        messages.read_report,
        messages.read_tables,
    ],
)
def test_a_message_that_is_cut_short_is_none(read: Callable[[bytes], object]) -> None:
    with pytest.raises(ProtocolError):
        read(b"{}"[:1])


def as_a_pair(group: MemoryGroup[FakeClient], first: bytes, second: bytes) -> None:
    """Brokers 1 and 2 have logs of before there was a group."""
    group.disks = {1: Disk("store-1"), 2: Disk("store-2")}
    group.disks[1].log += first
    group.disks[2].log += second


@pytest.mark.parametrize("behind", [0, 7, 20])
async def test_logs_of_a_pair_are_taken_over_where_one_is_the_beginning_of_the_other(
    group: MemoryGroup[FakeClient], behind: int
) -> None:
    log = bytes(range(200, 220))
    as_a_pair(group, log, log[: 20 - behind])
    await group.start(1, 2)
    master = await group.led(by=1, members={1, 2})
    assert group.disks[1].epochs == (Epoch(1, 0), Epoch(2, 20))
    master.put(5)
    await group.all_have(25)
    await until(lambda: group.disks[2].epochs == group.disks[1].epochs)
    await group.stop(1)
    second = await group.led(by=2)
    second.put(5)
    await group.start(1)
    await group.led(by=2, members={1, 2})
    await group.all_have(30)


@pytest.mark.parametrize("other", [bytes(range(200, 219)) + b"x", bytes(range(200, 221)), b"x"])
async def test_a_log_that_is_not_the_beginning_of_the_masters_is_left_alone(
    group: MemoryGroup[FakeClient], other: bytes
) -> None:
    as_a_pair(group, bytes(range(200, 220)), other)
    await group.start(1, 2)
    master = await group.led(by=1)
    second = group.machines[2]
    await until(lambda: second.office.barred is not None)
    assert "nothing in common" in str(second.office.barred) and bytes(second.disk.log) == other
    master.put(5)
    await until(lambda: master.office.confirmed == 25)
