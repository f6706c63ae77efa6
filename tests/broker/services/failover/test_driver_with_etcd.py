"""Drivers of one group with three real members of etcd: how long a switch takes, and what is none."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eruca.broker.coordination.etcd import Etcd
from eruca.broker.services.failover.ports import Pace
from tests.support.etcd import EtcdCluster, cluster, needs_etcd
from tests.support.failover_groups import Machine, MemoryGroup

pytestmark = [needs_etcd, pytest.mark.processes, pytest.mark.slow]


@pytest.fixture
async def members(tmp_path: Path) -> AsyncIterator[EtcdCluster]:
    with await cluster(tmp_path) as members:
        yield members


@pytest.fixture
async def group(members: EtcdCluster) -> AsyncIterator[MemoryGroup[Etcd]]:
    async with MemoryGroup(lambda: Etcd(members.urls), Pace()) as group:
        yield group


async def confirmed(group: MemoryGroup[Etcd], master: Machine[Etcd], count: int, within: float = 30.0) -> None:
    """Wait until a master has had so many messages confirmed."""
    async with asyncio.timeout(within):
        while master.office.confirmed < count:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    assert group.acknowledged == bytes(master.disk.log[:count])


async def test_a_killed_master_is_replaced_within_seconds_and_one_that_stops_at_once(
    group: MemoryGroup[Etcd],
) -> None:
    await group.start(1, 2, 3)
    master = await group.led(by=1, members={1, 2, 3})
    master.put(10)
    await group.all_have(10)

    begun = time.monotonic()
    await group.kill(1)
    second = await group.led()
    second.put()
    await confirmed(group, second, 11)
    killed = time.monotonic() - begun
    assert killed < 8  # 3 s of the hold, and what a busy machine adds

    await group.start(1)
    await group.led(by=second.broker_id, members={1, 2, 3})
    begun = time.monotonic()
    await group.stop(second.broker_id)
    third = await group.led(members=set(group.machines))
    third.put()
    await group.all_have(12)
    print(
        f"until the next message is confirmed: {killed:.2f} s after a kill, {time.monotonic() - begun:.2f} s in order"
    )


async def test_without_the_leader_of_etcd_and_without_all_of_it_nobody_is_elected(
    group: MemoryGroup[Etcd], members: EtcdCluster
) -> None:
    await group.start(1, 2, 3)
    master = await group.led(by=1, members={1, 2, 3})
    epoch, count, longest = master.office.leads, 0, 0.0

    async def goes_on(seconds: float) -> None:
        nonlocal count, longest
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            count += 1
            begun = time.monotonic()
            master.put()
            await confirmed(group, master, count)
            longest = max(longest, time.monotonic() - begun)
            assert master.driver.sure

    leader = members.leader()
    members.kill(leader)
    await goes_on(2)
    members.start(leader)
    for number in range(3):
        members.pause(number)
    await goes_on(4)  # longer than a hold lasts
    for number in range(3):
        members.go_on(number)
    await goes_on(1)
    assert group.master() is master and master.office.leads == epoch and master.members == {1, 2, 3}
    print(f"{count:,} messages, the longest wait {longest:.3f} s")

    await group.stop(1)  # its key is there again: else nobody would wait for its end
    second = await group.led(members={2, 3})
    assert epoch is not None and second.office.leads == epoch + 1
