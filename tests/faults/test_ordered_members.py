"""Members of an ordered group join, leave, are killed and put to sleep: each queue keeps its order all the same.

Each member is a process that writes down what its listener begins and ends. Locks live 1.5 s here instead of 60 (0.9 s
in the members, instead of 30); the connections of a member that sleeps are closed at the broker, as they are after
120 s of silence.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

import pytest

from eruca.broker.state.locks import Locks
from eruca.client import Message, MessageQueue, Producer
from eruca.protocol.queues import MessageQueue as Queue
from eruca.standalone.cluster import Cluster
from tests.client.conftest import small_broker
from tests.support.order import Event, Fates, events_in, first_of, judge, pieces_of, seen
from tests.support.ordered_members import CONVERGED, MEMBER, OF_KEYS, OF_QUEUES, TOPIC
from tests.support.processes import Process
from tests.support.programme import ENOUGH, chance, rounds

pytestmark = pytest.mark.processes

EXPIRY = 1.5
"""Seconds that a lock lives at the broker."""
IGNORES_EXPIRY = """
from eruca.client.consuming.locks import Lock
Lock.counts = lambda self, now: self.until > 0
"""


class Group:
    """The members that run, what befell them, and what they wrote down."""

    def __init__(
        self, folder: Path, cluster: Cluster, *, work: float = 0.003, planted: str = "", order: str = OF_QUEUES
    ) -> None:
        self.fates = Fates()
        self.members: dict[str, Process] = {}
        self._folder = folder
        self._address = cluster.address
        self._clients = cluster.broker.broker.clients
        self._work = work
        self._script = MEMBER.replace("{planted}", planted).replace("{order}", order)
        self._book = folder / "book"
        self._book.touch()
        self._count = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self.members.values():
            member.kill()

    async def join(self) -> str:
        """One more member; returns when it has joined."""
        self._count += 1
        name = f"m{self._count}"
        command = [sys.executable, "-c", self._script, self._address, str(self._book), name, str(self._work)]
        member = self.members[name] = Process(command, self._folder / f"{name}.out")
        await asyncio.to_thread(member.wait_for_line, "joined")
        return name

    async def leave(self, name: str) -> None:
        """A member stops properly."""
        assert await asyncio.to_thread(self.members.pop(name).stop) == 0

    def kill(self, name: str) -> None:
        """A member ends at once."""
        self.members.pop(name).kill()
        self.fates.killed[name] = time.monotonic()

    def sleep(self, name: str) -> float:
        """A member does nothing more until ``wake``; since when."""
        self.members[name].signal(signal.SIGSTOP)
        return time.monotonic()

    def forget(self, name: str) -> None:
        """Let the broker take a member for gone."""
        group = self._clients.consumer("ordered")
        assert group is not None
        for member in tuple(group.members.values()):
            if f"@{self.members[name].pid}#" in member.client_id:
                member.connection.abort()

    def wake(self, name: str, since: float) -> None:
        """It goes on."""
        self.fates.slept[name].append((since, time.monotonic()))
        self.members[name].signal(signal.SIGCONT)

    def events(self) -> list[Event]:
        """All that listeners did so far."""
        return events_in(self._book)

    async def consumed(self, wanted: Iterable[str], within: float = CONVERGED) -> float:
        """Wait until all of these were consumed; how many seconds that took."""
        begin = time.monotonic()
        wanted = set(wanted)
        async with asyncio.timeout(within):
            while not wanted <= seen(self.events()):  # noqa: ASYNC110 (other processes write)
                await asyncio.sleep(0.05)
        return time.monotonic() - begin

    def busiest(self) -> str:
        """The member that began last, or another one when that is gone."""
        last = max(self.events(), default=None)
        return last.member if last is not None and last.member in self.members else min(self.members)


def of_key(event: Event) -> Event:
    """The event as one of a queue that has the messages of its key only."""
    key, _, number = event.body.partition("/")
    return event._replace(queue=int(key), offset=int(number))


class Sender:
    """Sends numbered messages of twenty keys, each key to its queue, until it is left."""

    def __init__(self, producer: Producer, queues: int) -> None:
        self.sent: list[str] = []
        self._producer = producer
        self._queues = queues
        self._task: asyncio.Task[None] | None = None
        self._ending = False

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._send())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._ending = True
        await self._task

    async def _send(self) -> None:
        for number in itertools.count():
            if self._ending:
                return
            key = number % 20
            body = f"{key}/{number // 20}"
            queue = MessageQueue(TOPIC, "broker-a", key % self._queues)
            await self._producer.send(Message(TOPIC, body.encode()), queue=queue)
            self.sent.append(body)
            await asyncio.sleep(0.01)

    async def more(self, count: int) -> list[str]:
        """Wait until so many more were sent; all that were."""
        target = len(self.sent) + count
        async with asyncio.timeout(CONVERGED):
            while len(self.sent) < target:  # noqa: ASYNC110 (a task of this test counts)
                await asyncio.sleep(0.01)
        return list(self.sent)


def cluster_at(folder: Path) -> Cluster:
    config = small_broker()
    config.rebalance_lock_max_live_time = int(EXPIRY * 1000)
    config.default_topic_queue_nums = 8
    config.broker_fast_failure_enable = False  # all share these processors: waiting is not refused
    return Cluster(folder, broker=config)


async def suffer(group: Group, sender: Sender, random: Random, number: int) -> str:
    """One change of the group under load; all that was sent is consumed when it returns."""
    kind = ("kill", "sleep", "join", "doze", "leave")[number % 5]
    name = group.busiest()
    match kind:
        case "join":
            await group.join()
        case "leave":
            await group.leave(name)
        case "kill":
            group.kill(name)
            await group.join()
        case "doze":  # shorter than its locks live, or not much longer
            since = group.sleep(name)
            await asyncio.sleep(random.uniform(0.1, 1.2))  # the fault itself: for so long it lasts
            group.wake(name, since)
        case "sleep":  # until others have its queues and have gone on
            since = group.sleep(name)
            group.forget(name)
            await group.consumed(await sender.more(20))
            group.wake(name, since)
    return kind


@ENOUGH
@pytest.mark.parametrize(
    ("queues", "order"),
    [
        pytest.param(1, OF_QUEUES, id="one queue"),
        pytest.param(8, OF_QUEUES, id="eight queues"),
        pytest.param(4, OF_KEYS, id="keys in four queues"),
    ],
)
async def test_each_queue_keeps_its_order(tmp_path: Path, queues: int, order: str) -> None:
    """Or each key, where that is what the members keep: the same judge is told of keys in place of queues."""
    random = chance(f"ordered members {queues}")
    async with cluster_at(tmp_path) as cluster, Producer("p", nameserver=cluster.address) as producer:
        await cluster.create_topic(TOPIC, queues)
        work = 0.15 if order is OF_KEYS else 0.003  # so long that the next message of a key comes meanwhile
        async with Group(tmp_path, cluster, work=work, order=order) as group:
            await asyncio.gather(*(group.join() for _ in range(3)))
            slowest: dict[str, float] = defaultdict(float)
            async with Sender(producer, queues) as sender:
                for number in rounds(5, 100, seconds=30):
                    kind = await suffer(group, sender, random, number)
                    took = await group.consumed(await sender.more(20))
                    slowest[kind] = max(slowest[kind], took)
            await group.consumed(sender.sent)
            for name in sorted(group.members):
                await group.leave(name)
            events = group.events()
    assert judge(events if order is OF_QUEUES else [of_key(each) for each in events], group.fates) == []
    assert seen(events) == set(sender.sent)
    for key in range(20):
        numbers = [int(body.partition("/")[2]) for body in first_of(events) if body.startswith(f"{key}/")]
        assert numbers == sorted(numbers)
    again = sum(len(pieces) for pieces in pieces_of(events).values()) - len(sender.sent)
    waits = ", ".join(f"{kind} {wait:.1f} s" for kind, wait in slowest.items())
    print(f"{len(sender.sent)} messages in order, {again} again; all consumed after at most: {waits}")


@pytest.mark.parametrize("planted", ["granted to all", "never expires"])
async def test_the_judge_finds_broken_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: str) -> None:
    """A broker that grants every lock, and a member that goes on with a lock that has expired."""

    def granted(self: Locks, group: str, queues: Iterable[Queue], client_id: str, now: int) -> list[Queue]:
        return list(queues)

    to_all = planted == "granted to all"
    if to_all:
        monkeypatch.setattr(Locks, "lock", granted)
    async with cluster_at(tmp_path) as cluster, Producer("p", nameserver=cluster.address) as producer:
        await cluster.create_topic(TOPIC, 2)
        for number in range(80):
            queue = MessageQueue(TOPIC, "broker-a", number % 2)
            await producer.send(Message(TOPIC, b"%d" % number), queue=queue)
        group = Group(tmp_path, cluster, work=1.0 if to_all else 0.02, planted="" if to_all else IGNORES_EXPIRY)
        async with group:
            first = await group.join()
            await group.consumed(["0", "1"])
            if not to_all:
                since = group.sleep(first)
                group.forget(first)
                await group.join()
                await group.consumed(map(str, range(80)))
                group.wake(first, since)
            async with asyncio.timeout(CONVERGED):
                while not judge(group.events(), group.fates):
                    if to_all:  # while the first is at work on a message
                        await group.leave(await group.join())
                    await asyncio.sleep(0.1)
