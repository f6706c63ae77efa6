"""What a message costs the brokers of a group: what needs no waiting is done at once, what waits keeps its order."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

from eruca.broker.failover.epochs import Epoch
from eruca.broker.failover.events import Reported
from eruca.broker.failover.group import Group
from eruca.broker.failover.in_sync import Report
from eruca.broker.services.failover.frame_room import ROOM
from eruca.broker.services.failover.ports import Frame
from tests.support.coordination import FakeClient
from tests.support.failover_groups import Machine, MemoryGroup, until


async def pair(group: MemoryGroup[FakeClient]) -> tuple[Machine[FakeClient], Machine[FakeClient]]:
    """A master and its replica that are in the set, with nothing left to do."""
    await group.start(1, 2)
    master = await group.led(by=1, members={1, 2})
    master.put(10)
    await group.all_have(10)
    replica = group.machines[2]
    await until(lambda: master.driver.member.replicas[0].tables == master.driver.member.tables)
    for _ in range(20):
        await asyncio.sleep(0)
    return master, replica


def report(master: Machine[FakeClient], end: int) -> Reported:
    """What broker 2 would report."""
    member = master.driver.member
    return Reported(Report(2, "store-2", member.epoch, end, member.tables), len(master.disk.log))


def part(replica: Machine[FakeClient], data: bytes, *, at: int | None = None, epoch: Epoch | None = None) -> Frame:
    """What the master would send next, in its newest epoch or in another one."""
    member = replica.driver.member
    offset = len(replica.disk.log) if at is None else at
    return Frame(member.epoch, epoch or member.epochs[-1], offset, data, member.confirmed)


async def test_what_all_have_is_confirmed_when_the_report_is_posted(group: MemoryGroup[FakeClient]) -> None:
    master, _ = await pair(group)
    before = master.office.confirmed
    master.put(5)
    assert master.office.confirmed == before  # the replica has to have it first
    master.driver.post(report(master, before + 5))
    assert master.office.confirmed == before + 5


async def test_what_is_written_while_a_smaller_set_is_kept_on_the_disk_is_confirmed_without_another_event(
    group: MemoryGroup[FakeClient],
) -> None:
    """Before that, reports of others would have said so."""
    master, _ = await pair(group)
    keep, end = master.office.keep, len(master.disk.log)

    async def keep_and_store(group: Group) -> None:
        await keep(group)
        if group.sync_state_set == {1}:
            master.put(5)

    master.office.keep = keep_and_store  # type: ignore[method-assign]
    await group.kill(2)
    await until(lambda: master.office.confirmed == end + 5)


async def test_a_part_of_the_log_is_there_when_it_was_taken(group: MemoryGroup[FakeClient]) -> None:
    _, replica = await pair(group)
    end = replica.driver.member.end
    assert replica.driver.take(part(replica, b"\2\2\2")) is None
    assert replica.driver.member.end == len(replica.disk.log) == end + 3


async def test_parts_behind_one_that_waits_for_the_disk_keep_their_order_and_take_room(
    group: MemoryGroup[FakeClient],
) -> None:
    _, replica = await pair(group)
    replica.office.writes.clear()
    end, newest = replica.driver.member.end, replica.driver.member.epochs[-1]
    other = Epoch(newest.epoch + 1, end)
    assert replica.driver.take(part(replica, b"\0", at=end, epoch=other)) is None
    room = [replica.driver.take(part(replica, bytes([n]), at=end + n, epoch=other)) for n in range(1, ROOM + 1)]
    assert len(replica.disk.log) == end
    assert room[0] is None and room[-1] is not None and not room[-1].done()
    replica.office.writes.set()
    await room[-1]
    await until(lambda: len(replica.disk.log) == end + ROOM + 1)
    assert bytes(replica.disk.log[end:]) == bytes(range(ROOM + 1))


def calls(act: Callable[[], object]) -> int:
    """How many functions of Python are called."""
    count = 0

    def called(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    former = sys.getprofile()
    sys.setprofile(called)
    try:
        act()
    finally:
        sys.setprofile(former)
    return count


async def test_a_message_costs_few_calls(group: MemoryGroup[FakeClient]) -> None:
    """With one sender each report and each part is one message, and most of what they cost is calls."""
    master, replica = await pair(group)
    assert calls(lambda: master.put(1)) <= 7
    said = report(master, len(master.disk.log))
    assert calls(lambda: master.driver.post(said)) <= 18
    come = part(replica, b"\2")
    assert calls(lambda: replica.driver.take(come)) <= 29  # with those of the master, to which it reports


async def test_an_error_that_nobody_expects_ends_the_driver_and_not_whoever_has_posted(
    group: MemoryGroup[FakeClient],
) -> None:
    master, _ = await pair(group)

    master.put(5)
    master.office.fault = RuntimeError("planted")
    master.driver.post(report(master, len(master.disk.log)))
    await until(lambda: master.tasks.fault is not None)
    assert "planted" in str(master.tasks.fault)
    confirmed = master.driver.member.confirmed
    master.driver.post(report(master, len(master.disk.log)))
    await asyncio.sleep(0)
    assert master.driver.member.confirmed == confirmed  # nothing is done any more
