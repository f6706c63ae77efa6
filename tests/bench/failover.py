"""For how long a Python producer waits when something happens to a group that elects its master, and what fails.

Run: ``python -m tests.bench.failover [rounds] [send_timeout] [--only ROW,...]`` (10 and 8 s; needs Debian's
etcd-server). Three members of etcd with its own defaults, a nameserver and two or three brokers are processes on this
machine; in ``two-groups-killed`` two brokers of another name, too, and each send may go to either. Four senders wait
for each answer. In each round one thing happens while they send, and when it is over the group is whole again. A pause
is the longest time in which no sender had an answer with 0; a fault is a send that raised an error; a switch is a round
after which another broker leads. With ``parts`` the time from a kill to the next 0 is cut up by the log of the new
master: until it stands (etcd keeps the key of a silent master), is elected, has its role, and until a sender has the
next 0. Machine load is printed beside.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import re
import signal
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import NamedTuple

from eruca.broker.coordination.etcd import Etcd
from eruca.broker.services.failover.keys import Keys
from eruca.client import ClientSettings, Message, Producer
from tests.bench.command_line import some_of
from tests.support.etcd import AS_INSTALLED
from tests.support.failover_cluster import FailoverCluster
from tests.support.lone import LoneBroker
from tests.support.peers import Peer
from tests.support.sends import message

SEND = 310
SENDERS = 4
CALM = 2.0
"""Seconds of sends before something happens."""


class Sends:
    """Senders that go on whatever comes."""

    def __init__(self, producer: Producer) -> None:
        self.over = False
        self.count = 0
        self.faults: Counter[str] = Counter()
        self.pause = 0.0
        """The longest time in which no sender had an answer with 0."""
        self.goes_on = 0.0
        """When that time ended, by the wall clock."""
        self._answered = time.monotonic()
        self._producer = producer

    def begin_round(self) -> None:
        """Measure from now on."""
        self.pause = 0.0
        self._answered = time.monotonic()

    async def more(self, count: int) -> None:
        """Wait until so many more sends were answered with 0."""
        until = self.count + count
        while self.count < until:  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    async def go_on(self, sender: int) -> None:
        """Send until it is over."""
        for number in itertools.count():
            if self.over:
                return
            try:
                await self._producer.send(Message("T", b"sender %d %d" % (sender, number)))
            except Exception as fault:  # whatever it is, it is counted
                self.faults[f"{type(fault).__name__}: {fault}"[:160]] += 1
                await asyncio.sleep(0.01)
            else:
                now = time.monotonic()
                self.count += 1
                if now - self._answered > self.pause:
                    self.pause, self.goes_on = now - self._answered, time.time()
                self._answered = now


# ---- what happens; each ends when it is over, and the group may be whole again

Harm = Callable[[FailoverCluster, Sends, int], Awaitable[None]]
"""Gets the group, its senders, and which broker leads."""


def another(group: FailoverCluster, master: int) -> int:
    """A broker that does not lead."""
    return next(number for number in group.numbers if number != master)


async def replaced(group: FailoverCluster, sends: Sends, master: int) -> None:
    """Wait until another broker leads, and sends are taken."""
    await group.led_by_another(master)
    await sends.more(100)


async def kill_master(group: FailoverCluster, sends: Sends, master: int) -> None:
    """kill -9 of the master, which comes back when another one leads."""
    group.kill(master)
    await replaced(group, sends, master)
    await group.start(master)


async def stop_master(group: FailoverCluster, sends: Sends, master: int) -> None:
    """SIGSTOP of the master, which wakes when another one leads."""
    group.brokers[master].signal(signal.SIGSTOP)
    await replaced(group, sends, master)
    group.brokers[master].signal(signal.SIGCONT)


async def kill_master_and_leader(group: FailoverCluster, sends: Sends, master: int) -> None:
    """kill -9 of the master and of etcd's leader, as of one machine."""
    leader = await asyncio.to_thread(group.etcd.leader)
    group.etcd.kill(leader)
    group.kill(master)
    await replaced(group, sends, master)
    await asyncio.to_thread(group.etcd.start, leader)
    await group.start(master)


async def kill_slave(group: FailoverCluster, sends: Sends, master: int) -> None:
    """kill -9 of a slave, which comes back after five seconds."""
    slave = another(group, master)
    group.kill(slave)
    await asyncio.sleep(5)
    await group.start(slave)


async def stop_slave(group: FailoverCluster, sends: Sends, master: int) -> None:
    """SIGSTOP of a slave for eight seconds."""
    slave = group.brokers[another(group, master)]
    slave.signal(signal.SIGSTOP)
    await asyncio.sleep(8)
    slave.signal(signal.SIGCONT)


async def kill_leader(group: FailoverCluster, sends: Sends, master: int) -> None:
    """kill -9 of etcd's leader, which comes back after five seconds."""
    leader = await asyncio.to_thread(group.etcd.leader)
    group.etcd.kill(leader)
    await asyncio.sleep(5)
    await asyncio.to_thread(group.etcd.start, leader)


async def stop_leader(group: FailoverCluster, sends: Sends, master: int) -> None:
    """SIGSTOP of etcd's leader for ten seconds."""
    leader = await asyncio.to_thread(group.etcd.leader)
    group.etcd.pause(leader)
    await asyncio.sleep(10)
    group.etcd.go_on(leader)


async def stop_etcd(group: FailoverCluster, sends: Sends, master: int) -> None:
    """SIGSTOP of all of etcd for a minute."""
    for number in range(len(group.etcd.members)):
        group.etcd.pause(number)
    await asyncio.sleep(60)
    for number in range(len(group.etcd.members)):
        group.etcd.go_on(number)
    await asyncio.sleep(CALM)


async def cut_off_from_etcd(group: FailoverCluster, sends: Sends, master: int) -> None:
    """The ways of the master to etcd carry nothing for fifteen seconds."""
    ways = group.machines[master].to_etcd
    for proxy in ways:
        proxy.lost = frozenset(("there", "back"))
    await asyncio.sleep(15)
    for proxy in ways:
        proxy.lost = frozenset()
        proxy.cut()
    await asyncio.sleep(CALM)


async def hand_over(group: FailoverCluster, sends: Sends, master: int) -> None:
    """``mqadmin electMaster``."""
    await group.hand_over(another(group, master))
    await sends.more(100)


async def stop_in_order(group: FailoverCluster, sends: Sends, master: int) -> None:
    """SIGTERM of the master, and its start."""
    await asyncio.to_thread(group.brokers[master].stop)
    await sends.more(100)
    await group.start(master)


class Row(NamedTuple):
    """What happens, and to how many brokers; with ``second`` beside a second group, which has the topic, too."""

    harm: Harm
    brokers: int = 2
    second: bool = False


ROWS = {
    "master-killed": Row(kill_master),
    "master-killed-3": Row(kill_master, 3),
    "two-groups-killed": Row(kill_master, second=True),
    "master-stopped": Row(stop_master),
    "master-and-leader-killed": Row(kill_master_and_leader),
    "slave-killed": Row(kill_slave),
    "slave-killed-3": Row(kill_slave, 3),
    "slave-stopped": Row(stop_slave),
    "slave-stopped-3": Row(stop_slave, 3),
    "leader-killed": Row(kill_leader),
    "leader-stopped": Row(stop_leader),
    "etcd-away": Row(stop_etcd),
    "cut-off-from-etcd": Row(cut_off_from_etcd),
    "electMaster": Row(hand_over),
    "SIGTERM": Row(stop_in_order),
}
"""A 3 at the end of a name: of three brokers."""


@asynccontextmanager
async def second_group(folder: Path, group: FailoverCluster) -> AsyncIterator[None]:
    """Two brokers of another name, with the etcd and the nameserver of the first group, and its topic."""
    settings = {
        **{"brokerName": "broker-b", "namesrvAddr": group.names.address},
        **{"enableControllerMode": "true", "controllerAddr": ";".join(group.etcd.urls)},
    }
    brokers, etcd, keys = [], Etcd(group.etcd.urls), Keys("DefaultCluster", "broker-b")
    try:
        for number, role in ((1, "SYNC_MASTER"), (2, "SLAVE")):
            own = {"brokerId": str(number), "brokerRole": role}
            brokers.append(await LoneBroker.start(folder / f"{number}", folder / f"{number}/store", settings | own))
        async with asyncio.timeout(30):
            known = None
            while known is None or known.group.sync_state_set != {1, 2}:
                await asyncio.sleep(0.1)
                known = keys.view(await etcd.read_all(keys.prefix)).known
        peer = await Peer().connect(brokers[known.group.master_broker_id - 1].address)
        assert (await peer.ask(SEND, message(i=""), b"makes the topic")).code == 0
        await peer.close()
        yield
    finally:
        await etcd.close()
        for broker in brokers:
            broker.kill()


def parts(output: str, begun: float, goes_on: float) -> str:
    """Where the time until the next 0 went, by the log of the broker that leads now; nothing if it was not elected."""
    found = re.findall(
        r"^(\S+)Z \[[^]]*\] (?:failover_state|role_changed) .*?\b(?:state|role)=(\w+)", output, re.MULTILINE
    )
    times = {what: datetime.fromisoformat(f"{when}+00:00").timestamp() for when, what in found}
    steps = {"stands": "candidate", "elected": "master", "has its role": "SYNC_MASTER"}
    told, before = [], begun
    for name, what in steps.items():
        if times.get(what, 0.0) < begun:
            return ""
        told.append(f"{name} {times[what] - before:.2f}")
        before = times[what]
    return ", ".join([*told, f"next 0 {goes_on - before:.2f}"])


async def measure(folder: Path, name: str, rounds: int, timeout: float, *, cut_up: bool) -> None:
    """Print a line for a row."""
    row = ROWS[name]
    pauses, failed, switches, loads = [], 0, 0, []
    async with AsyncExitStack() as ending:
        group = await ending.enter_async_context(
            FailoverCluster(folder / "a", row.brokers, machines=True, etcd=AS_INSTALLED)
        )
        await group.send()
        await group.all_in_set()
        if row.second:
            await ending.enter_async_context(second_group(folder / "b", group))
        settings = ClientSettings(nameserver=group.names.address)
        async with Producer("P", settings=settings, send_timeout=timeout) as producer:
            sends = Sends(producer)
            running = [asyncio.create_task(sends.go_on(sender)) for sender in range(SENDERS)]
            for number in range(1, rounds + 1):
                await asyncio.sleep(CALM)
                master = await group.master()
                sends.begin_round()
                begun = time.time()
                await row.harm(group, sends, master)
                await group.all_in_set(60)
                leads = await group.master()
                pauses.append(sends.pause)
                switches += leads != master
                loads.append(os.getloadavg()[0])
                if cut_up:
                    print(f"  {number}: {pauses[-1]:.2f} s; {parts(group.brokers[leads].output, begun, sends.goes_on)}")
            sends.over = True
            await asyncio.gather(*running)
        failed = sends.faults.total()
    print(
        f"| {name} | {rounds} | {min(pauses):.2f} / {median(pauses):.2f} / {max(pauses):.2f} s | {failed} of "
        f"{sends.count:,} | {switches} | {min(loads):.1f} to {max(loads):.1f} |",
        flush=True,
    )
    for fault, count in sends.faults.most_common(5):
        print(f"{count:6} {fault}")


def main() -> None:
    """Measure what the command line says."""
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("rounds", nargs="?", type=int, default=10)
    parse.add_argument("send_timeout", nargs="?", type=float, default=8.0)
    parse.add_argument("--only", type=some_of(ROWS), default=[*ROWS], metavar="ROW,...", help=", ".join(ROWS))
    parse.add_argument("--parts", action="store_true", help="a line for each round, with the parts of its pause")
    chosen = parse.parse_args()
    print("| row | rounds | pause: minimum / median / maximum | failed sends | switches | load |")
    print("|---|---|---|---|---|---|", flush=True)
    for name in chosen.only:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(measure(Path(folder), name, chosen.rounds, chosen.send_timeout, cut_up=chosen.parts))


if __name__ == "__main__":
    main()
