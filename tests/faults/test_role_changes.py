"""Brokers that are master and slave by turns: nothing of the changes is left in the end.

One of a pair, as a process: three hundred changes. Two that elect their master, both in one process: as many as fit
into the time. A thousand of each with ERUCA_TORTURE=1.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.broker.elected import Group
from tests.broker.services.replication.pairs import HandSlave
from tests.support import half_messages
from tests.support.desk import Desk
from tests.support.lone import LoneBroker
from tests.support.names import Names
from tests.support.pages import page
from tests.support.peers import Peer
from tests.support.ports import free_port
from tests.support.processes import memory_of
from tests.support.programme import ENOUGH, LONG, rounds
from tests.support.sends import message

pytestmark = [pytest.mark.slow, ENOUGH]

CHANGES, WARM = 1000 if LONG else 300, 100
CHANGE, SEND, STATUS, ELECT = 25, 310, 907, 1002
WARM_OF_GROUP = 10
MEBIBYTE = 1 << 20
ROOM_OF_TEST = 4 * MEBIBYTE
"""Of a test in whose process two brokers run: its disks note each read, and the allocator takes a mebibyte at a time. A
thousand changes took 2.3 MiB; what is left of brokers is seen by the number of their objects."""


@pytest.fixture
def master(tmp_path: Path) -> Iterator[LoneBroker]:
    with LoneBroker(tmp_path / "a", tmp_path / "a" / "store", {"flushDiskType": "SYNC_FLUSH"}) as broker:
        yield broker


def ha_address(broker: LoneBroker) -> str:
    host, _, port = broker.address.rpartition(":")
    return f"{host}:{int(port) + 1}"


def sockets_of(pid: int) -> int:
    """How many sockets a process has open; what it closes meanwhile does not count."""
    count = 0
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            count += os.readlink(descriptor).startswith("socket:")
    return count


async def send_what_waits(peer: Peer) -> None:
    """Send half messages and delayed ones, which each new master finds."""
    for number in range(50):
        assert (await peer.ask(SEND, half_messages.half(f"H{number}"), b"half")).code == 0
        answer = await peer.ask(SEND, message(i=f"DELAY\x0118\x02UNIQ_KEY\x01D{number}"), b"in two hours")
        assert answer.code == 0


class Left(NamedTuple):
    """What a broker may leave behind, each by itself: one task less makes up for no socket."""

    tasks: int
    sockets: int

    def is_more_than(self, other: Left) -> bool:
        """Whether there is more of anything."""
        return any(here > there for here, there in zip(self, other, strict=True))


class Turning:
    """The broker under test: it follows the other one, or is a master with a slave by hand."""

    def __init__(self, broker: LoneBroker, metrics: int, end: int) -> None:
        self.broker = broker
        self.metrics = metrics
        self.peer = Peer()
        self._end = end

    async def become(self, role: str) -> None:
        answer = await self.peer.ask(CHANGE, {}, f"brokerRole={role}".encode())
        assert answer.code == 0, answer.remark

    async def following(self) -> None:
        """Wait until it follows its master."""
        async with asyncio.timeout(20):
            while b'"activated":true' not in (await self.peer.ask(STATUS)).body:
                pass

    async def change_twice(self) -> None:
        await self.become("SYNC_MASTER")
        hand = await HandSlave().connect(ha_address(self.broker))
        hand.report(self._end)
        await hand.any_frame()
        await self.become("SLAVE")
        assert await hand.closed()
        await hand.close()
        await self.following()

    async def left(self) -> Left:
        """The tasks and the sockets of the broker."""
        found = re.search(r"(?m)^eruca_tasks(?:\{[^}]*\})? (\d+)", (await page(self.metrics, "/metrics")).text)
        assert found is not None
        return Left(int(found.group(1)), sockets_of(self.broker.pid))


@pytest.mark.processes
async def test_changes_of_role_leave_no_task_connection_or_megabyte(
    tmp_path: Path, master: LoneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = await Peer().connect(master.address)
    await send_what_waits(peer)
    end = json.loads((await peer.ask(STATUS)).body)["masterCommitLogMaxOffset"]
    metrics = free_port()
    monkeypatch.setenv("ERUCA_METRICS_PORT", str(metrics))
    settings = {"brokerRole": "SLAVE", "brokerId": "1", "haMasterAddress": ha_address(master)}
    settings |= {"haSendHeartbeatInterval": "50", "slaveTimeout": "1000"}
    with LoneBroker(tmp_path / "b", tmp_path / "b" / "store", settings) as broker:
        turning = Turning(broker, metrics, end)
        await turning.peer.connect(broker.address)
        await turning.following()
        for _ in range(WARM // 2):
            await turning.change_twice()
        before, memory = await turning.left(), broker.memory()["anonymous"]
        for _ in range((CHANGES - WARM) // 2):
            await turning.change_twice()
        async with asyncio.timeout(10):  # a connection that only compared logs may just be ending
            while (await turning.left()).is_more_than(before):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert broker.memory()["anonymous"] - memory < MEBIBYTE
        await turning.peer.close()
        assert "copy_refused" not in (tmp_path / "b" / "broker.out").read_text()
    await peer.close()


def left_here() -> Left:
    """The tasks and the sockets of this process."""
    return Left(len(asyncio.all_tasks()), sockets_of(os.getpid()))


async def hand_over(group: Group, to: int) -> None:
    """Have the master hand the mastership over; the former one follows, and comes into the set again."""
    master: Desk = await group.led({1, 2})
    answer = await master.ask(ELECT, {"clusterName": "Lab", "brokerName": "broker-a", "brokerId": to}, within=20)
    assert answer.code == 0, answer.remark
    async with asyncio.timeout(20):
        # the former one may not have heard of it yet
        while await group.led({1, 2}) is not group.desks[to]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def there_and_back(group: Group) -> None:
    """Two changes: broker 1 leads again in the end."""
    await hand_over(group, 2)
    await hand_over(group, 1)


def ours() -> Counter[str]:
    """How many objects there are of each class of Eruca's."""
    gc.collect()
    classes = (type(each) for each in gc.get_objects())
    return Counter(each.__qualname__ for each in classes if str(each.__module__).startswith("eruca."))


class Turned(NamedTuple):
    """What many hand-overs have left in their process."""

    changes: int
    more: Counter[str]
    """Objects of Eruca's classes."""
    grown: int
    """Bytes."""


async def turned(folder: Path) -> Turned:
    """Have two brokers hand the mastership over there and back. Raises TimeoutError when a task or a socket is left."""
    async with Names(folder) as names, Group(folder, names) as group:
        one, _ = await group.start(1), await group.start(2)
        await group.led({1, 2})
        await send_what_waits(one.operator)
        for _ in range(WARM_OF_GROUP // 2):
            await there_and_back(group)
        before, objects, memory = left_here(), ours(), memory_of(os.getpid())["anonymous"]
        changes = 0
        for _ in rounds(250, (1000 - WARM_OF_GROUP) // 2, seconds=60 if LONG else 4, least=15):
            await there_and_back(group)
            changes += 2
        async with asyncio.timeout(10):  # a connection that was refused may just be ending
            while left_here().is_more_than(before):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        return Turned(changes, ours() - objects, memory_of(os.getpid())["anonymous"] - memory)


def turned_here(folder: Path) -> Turned:
    """The same, in a process that does nothing else."""
    return asyncio.run(turned(folder))


@pytest.mark.processes
def test_changes_of_a_group_leave_no_task_connection_object_or_megabyte(tmp_path: Path) -> None:
    """In a process of its own: what other tests have left in this one would count."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        left = process.submit(turned_here, tmp_path).result()
    print(f"{left.changes} changes, {left.grown >> 10} KiB, most of {left.more.most_common(3)}")
    assert {name: count for name, count in left.more.items() if count >= left.changes // 2} == {}
    assert left.grown < ROOM_OF_TEST
