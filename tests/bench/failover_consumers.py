"""For how long Python consumers wait when the master of a group that elects its master hangs.

Run: ``python -m tests.bench.failover_consumers [rounds]`` (5; needs Debian's etcd-server). Three members of etcd with
its own defaults, a nameserver and two brokers are processes on this machine; the consumers are in this process, each
with connections of its own. One message after the other is sent, and every consumer gets all of them. In each round the
master gets SIGSTOP; when every consumer goes on, it wakes, and the group becomes whole again. For each consumer a line
says after how many seconds it had the first message that was sent after the SIGSTOP, and how long that was after the
nameserver had named the new master; then how many messages it had twice or more, and how many never. A last part
measures consumers that have nothing to do: their CPU time a minute, and how many requests they send.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median

from eruca.client import (
    ClientSettings,
    LitePullConsumer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
)
from eruca.client.errors import ClientError
from eruca.protocol.bodies import TopicRouteData
from eruca.protocol.queues import MessageQueue
from tests.support.etcd import AS_INSTALLED
from tests.support.failover_cluster import FailoverCluster
from tests.support.peers import Peer

CALM = 2.0
"""Seconds of messages before each SIGSTOP."""
IDLE = 60.0


class Reader:
    """What one consumer got."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.got: Counter[bytes] = Counter()
        self.first: dict[bytes, float] = {}
        self.pauses: list[float] = []
        self.after_named: list[float] = []

    def take(self, body: bytes) -> None:
        """It has a message."""
        self.got[body] += 1
        self.first.setdefault(body, time.monotonic())


async def poll(consumer: LitePullConsumer, reader: Reader) -> None:
    """Poll whatever comes."""
    while True:
        for message in await consumer.poll():
            reader.take(message.body)


async def pull(consumer: PullConsumer, reader: Reader) -> None:
    """Pull the queue of the messages, as users do who keep their offsets themselves."""
    queue, offset = MessageQueue("T", "broker-a", 0), 0
    while True:
        try:
            result = await consumer.pull_block_if_not_found(queue, offset)
        except ClientError:
            await asyncio.sleep(0.1)
            continue
        for record in result.records:
            reader.take(record.body)
        offset = result.next_offset


class Readers:
    """All kinds of consumers, each with a session of its own."""

    def __init__(self, names: str) -> None:
        self._names = names
        self._stack = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        self.all: list[Reader] = []

    async def __aenter__(self) -> list[Reader]:
        enter = self._stack.enter_async_context
        for name, orderly in (("push", False), ("push, orderly", True)):
            reader = self._reader(name)
            group = name.replace(", ", "-")
            push = PushConsumer(
                group, self._listener(reader), orderly=orderly, start_from="first", settings=self._settings()
            )
            push.subscribe("T")
            await enter(push)
        reader = self._reader("lite pull")
        lite = LitePullConsumer("lite", settings=self._settings(), start_from="first").subscribe("T")
        await enter(lite)
        self._tasks.append(asyncio.create_task(poll(lite, reader)))
        reader = self._reader("pull")
        puller = await enter(PullConsumer("pull", settings=self._settings()))
        self._tasks.append(asyncio.create_task(pull(puller, reader)))
        return self.all

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()

    def _reader(self, name: str) -> Reader:
        self.all.append(Reader(name))
        return self.all[-1]

    def _settings(self) -> ClientSettings:
        return ClientSettings(nameserver=self._names, instance_name=f"reader{len(self.all)}")

    def _listener(self, reader: Reader) -> Callable[[ReceivedMessage], Awaitable[None]]:
        async def listen(message: ReceivedMessage) -> None:
            reader.take(message.body)

        return listen


class Sends:
    """Sends one message after the other."""

    def __init__(self, group: FailoverCluster) -> None:
        self.over = False
        self._group = group

    async def go_on(self) -> None:
        """Send until it is over."""
        while not self.over:
            await self._group.send(60)
            await asyncio.sleep(0.02)


async def named(names: Peer, address: str) -> None:
    """Wait until the nameserver names another master than this one."""
    while True:
        route = TopicRouteData.decode((await names.ask(105, {"topic": "T"})).body)
        masters = {each.broker_addrs.get(0) for each in route.broker_datas}
        if masters not in ({None}, {address}):
            return
        await asyncio.sleep(0.02)


async def hang(group: FailoverCluster, names: Peer, readers: list[Reader]) -> None:
    """One round."""
    master = await group.master()
    stopped = time.monotonic()
    before = len(group.acknowledged)
    group.brokers[master].signal(signal.SIGSTOP)
    await named(names, group.address(master))
    known = time.monotonic()
    for reader in readers:
        while not (new := [reader.first[body] for body in group.acknowledged[before:] if body in reader.first]):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        reader.pauses.append(min(new) - stopped)
        reader.after_named.append(min(new) - known)
    print(
        f"  new master named after {known - stopped:.1f} s;",
        ", ".join(f"{reader.name} {reader.pauses[-1]:.1f} s" for reader in readers),
        flush=True,
    )
    group.brokers[master].signal(signal.SIGCONT)
    await group.all_in_set(60)


async def idle(group: FailoverCluster) -> None:
    """What consumers cost that have nothing to do: here, and at the brokers."""

    def used() -> list[float]:
        mine = resource.getrusage(resource.RUSAGE_SELF)
        return [mine.ru_utime + mine.ru_stime, *(each.cpu_nanoseconds() / 1e9 for each in group.brokers.values())]

    async def spent() -> list[float]:
        before = used()
        await asyncio.sleep(IDLE)
        return [after - each for each, after in zip(before, used(), strict=True)]

    nothing = await spent()
    async with Readers(group.names.address):
        await asyncio.sleep(CALM)
        with_readers = await spent()
    more = [after - each for each, after in zip(nothing, with_readers, strict=True)]
    print(
        f"four idle consumers for {IDLE:.0f} s: {more[0]:.3f} s of CPU here, "
        f"{', '.join(f'{each:.2f}' for each in more[1:])} s at the brokers",
        flush=True,
    )


async def measure(folder: Path, rounds: int) -> None:
    """Print what happened."""
    async with FailoverCluster(folder, etcd=AS_INSTALLED) as group:
        await group.send()
        await group.all_in_set()
        await idle(group)
        names = await Peer().connect(group.names.address)
        async with Readers(group.names.address) as readers:
            sends = Sends(group)
            sending = asyncio.create_task(sends.go_on())
            for _ in range(rounds):
                await asyncio.sleep(CALM)
                await hang(group, names, readers)
            sends.over = True
            await sending
            await asyncio.sleep(CALM)
        await names.close()
    print("| consumer | rounds | pause: minimum / median / maximum | after the new master was named | twice | never |")
    print("|---|---|---|---|---|---|")
    for reader in readers:
        twice = sum(count > 1 for count in reader.got.values())
        never = sum(body not in reader.got for body in group.acknowledged)
        pauses, later = reader.pauses, reader.after_named
        print(
            f"| {reader.name} | {rounds} | {min(pauses):.1f} / {median(pauses):.1f} / {max(pauses):.1f} s | "
            f"{min(later):.1f} / {median(later):.1f} / {max(later):.1f} s | {twice} of {len(group.acknowledged):,} | "
            f"{never} |"
        )
    print(f"load {os.getloadavg()[0]:.1f}")


def main() -> None:
    """Measure what the command line says."""
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("rounds", nargs="?", type=int, default=5)
    chosen = parse.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(Path(folder), chosen.rounds))


if __name__ == "__main__":
    main()
