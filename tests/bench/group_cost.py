"""What a group that elects its master costs more than a pair with SYNC_MASTER: CPU and rate of sends, start, memory.

Run: ``python -m tests.bench.group_cost [messages] [rounds]`` (2000 and 25; needs Debian's etcd-server). First a broker
starts again and again, with and without the mode, alone on its store: seconds and CPU to "boot success", and the memory
that is not of files. Then a pair and a group of two, with the same settings, get the same load in turns, one short
round after the other, since a shared machine changes its pace: 1, 4 and 64 senders that wait for each answer, bodies of
1 KiB of Chinese text. Printed are medians of the rounds: CPU of master and slave a message (user and system, by the
clocks of the processes), messages a second, and the median of the ratios of two rounds that follow one another.
Machine load is beside.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tests.bench.command_line import numbers
from tests.bench.flood import Flood
from tests.bench.restart import LARGE_FILES
from tests.support.failover_cluster import FailoverCluster
from tests.support.lone import LoneBroker
from tests.support.pairs import eventually
from tests.support.ports import free_broker_port

SENDERS = (1, 4, 64)
QUEUES = 8
STARTS = 5
TEXT = ("消息队列：每一条已确认的消息，组中所有成员都有。" * 20).encode()[:1023] + b"."
SETTINGS = {**LARGE_FILES, "mappedFileSizeCommitLog": str(256 << 20), "slaveTimeout": "3000"}


TITLES = {"master": "CPU us/msg, master", "slave": "CPU us/msg, slave", "rate": "messages a second"}


class Cost(NamedTuple):
    """One run: microseconds of CPU a message, and messages a second."""

    master: float
    slave: float
    rate: float


class Two(NamedTuple):
    """A master and its slave."""

    master: LoneBroker
    slave: LoneBroker

    async def cost(self, senders: int, messages: int) -> Cost:
        """Send so many messages, and see what each cost."""
        flood = Flood(self.master.address, [("Cost", queue) for queue in range(QUEUES)], senders, 1, TEXT)
        await flood.start()
        while flood.answered < messages // 10:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        before, count, begun = [each.cpu_nanoseconds() for each in self], flood.answered, time.monotonic()
        while flood.answered < count + messages:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        sent, took = flood.answered - count, time.monotonic() - begun
        master, slave = (each.cpu_nanoseconds() - was for each, was in zip(self, before, strict=True))
        await flood.stop()
        return Cost(master / sent / 1000, slave / sent / 1000, sent / took)


async def pair(home: Path, names: str) -> Two:
    """A pair with SYNC_MASTER whose slave has all that its master has."""
    settings = {**SETTINGS, "namesrvAddr": names, "brokerName": "pair"}
    ports = free_broker_port(), free_broker_port()
    master = await LoneBroker.start(
        home / "0", home / "0" / "store", {**settings, "brokerRole": "SYNC_MASTER", "listenPort": str(ports[0])}
    )
    follows = {"brokerRole": "SLAVE", "brokerId": "1", "listenPort": str(ports[1])}
    slave = await LoneBroker.start(home / "1", home / "1" / "store", {**settings, **follows})
    await eventually(lambda: "slave_follows" in master.output)
    return Two(master, slave)


def row(name: str, values: Sequence[Sequence[float]], form: str = ",.1f") -> str:
    """Medians of pair and group, and of the ratios of their rounds."""
    one, other = map(median, values)
    ratio = median([group / pair for pair, group in zip(*values, strict=True)])
    return f"  {name:<22} {one:>10{form}} {other:>10{form}} {ratio:>8.3f}"


async def starts(home: Path, cluster: FailoverCluster, times: int) -> None:
    """Start a broker without the mode, and with it, in turns."""
    alone = {**SETTINGS, "namesrvAddr": cluster.names.address, "brokerName": "alone", "brokerRole": "SYNC_MASTER"}
    elects = {"enableControllerMode": "true", "controllerAddr": ";".join(cluster.etcd.urls), "brokerId": "1"}
    both = (alone, {**alone, **elects, "brokerName": "elects"})
    found: list[list[tuple[float, float, float]]] = [[], []]
    for _ in range(times):
        for settings, values in zip(both, found, strict=True):
            folder = home / settings["brokerName"]
            broker = await LoneBroker.start(folder, folder / "store", settings)
            cpu = broker.cpu_nanoseconds() / 1e9
            await asyncio.sleep(1)
            values.append((broker.startup, cpu, broker.memory()["anonymous"] / (1 << 20)))
            await asyncio.to_thread(broker.stop)
    print(f"{times} starts, load {os.getloadavg()[0]:.1f}; without, with, ratio")
    for name, place in (("seconds", 0), ("seconds of CPU", 1), ("MiB after a second", 2)):
        print(row(name, [[each[place] for each in values] for values in found], ",.2f"))


async def measure(home: Path, messages: int, rounds: int) -> None:
    """Starts, then loads."""
    async with FailoverCluster(home / "group", 2, SETTINGS) as cluster:
        await cluster.send()
        await cluster.all_in_set()
        await starts(home, cluster, STARTS)
        group = Two(cluster.brokers[1], cluster.brokers[2])
        the_pair = await pair(home / "pair", cluster.names.address)
        try:
            await compare(the_pair, group, messages, rounds)
        finally:
            for broker in the_pair:
                broker.kill()


async def compare(the_pair: Two, group: Two, messages: int, rounds: int) -> None:
    """Loads in turns, then the figures."""
    print(f"load {os.getloadavg()[0]:.1f}; pair, group, ratio")
    for senders in SENDERS:
        costs: tuple[list[Cost], list[Cost]] = [], []
        for _ in range(rounds):
            for two, found in zip((the_pair, group), costs, strict=True):
                found.append(await two.cost(senders, messages))
        print(f"{senders} senders, {rounds} times {messages:,} messages of 1 KiB, load {os.getloadavg()[0]:.1f}")
        for name in Cost._fields:
            form = ",.0f" if name == "rate" else ",.1f"
            print(row(TITLES[name], [[getattr(cost, name) for cost in found] for found in costs], form), flush=True)
        both = [[cost.master + cost.slave for cost in found] for found in costs]
        print(row("CPU us/msg, both", both), flush=True)
    memory = [[sum(each.memory()["anonymous"] for each in two) / (1 << 20)] for two in (the_pair, group)]
    print(row("MiB of both, at the end", memory, ",.2f"))


def main() -> None:
    """Measure what the command line says."""
    messages, rounds = numbers(__doc__, messages=2000, rounds=25)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(Path(folder), messages, rounds))


if __name__ == "__main__":
    main()
