"""For how long a Python producer waits when the master of a group is killed, and how many of its sends fail.

Run: ``python -m tests.bench.failover [rounds] [brokers] [send_timeout]`` (10, 2, and 3 s as by default; needs Debian's
etcd-server). Three members of etcd, a nameserver and the brokers are processes on this machine. Four senders wait for
each answer; in each round the master gets kill -9 while they send, and comes back when the next one leads. A pause is
the longest time in which no sender had an answer with 0; a fault is a send that raised an error. Its parts are those of
the new master's log: until it stands (etcd keeps the key of a silent master), is elected, has its role; then until a
sender has the next 0. Machine load is printed beside.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import tempfile
import time
from collections import Counter
from datetime import datetime
from pathlib import Path
from statistics import median

from eruca.client import ClientSettings, Message, Producer
from tests.bench.command_line import numbers
from tests.support.failover_cluster import FailoverCluster

SENDERS = 4


class Sends:
    """Senders that go on whatever comes."""

    def __init__(self, producer: Producer) -> None:
        self.over = False
        self.count = 0
        self.faults: Counter[str] = Counter()
        self.longest = 0.0
        """Seconds of the longest send, of those that failed too."""
        self.pause = 0.0
        """The longest time in which no sender had an answer with 0."""
        self.goes_on = 0.0
        """When that time ended, by the wall clock."""
        self._answered = time.monotonic()
        self._producer = producer

    def begin_round(self) -> None:
        """Measure from now on."""
        self.longest = self.pause = 0.0
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
            begun = time.monotonic()
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
            self.longest = max(self.longest, time.monotonic() - begun)


def parts(output: str, killed: float, goes_on: float) -> str:
    """Where the time from a kill to the next 0 went, by the log of the broker that leads now."""
    found = re.findall(
        r"^(\S+)Z \[[^]]*\] (?:failover_state|role_changed) .*?\b(?:state|role)=(\w+)", output, re.MULTILINE
    )
    times = {what: datetime.fromisoformat(f"{when}+00:00").timestamp() for when, what in found}
    steps = {"stands": "candidate", "elected": "master", "has its role": "SYNC_MASTER"}
    told, before = [], killed
    for name, what in steps.items():
        told.append(f"{name} {times[what] - before:.2f}")
        before = times[what]
    return ", ".join([*told, f"next 0 {goes_on - before:.2f}"])


async def measure(folder: Path, rounds: int, brokers: int, timeout: float) -> None:
    """Print a line for each round, and the figures of all."""
    pauses, longest, failed = [], [], []
    async with FailoverCluster(folder, brokers) as group:
        await group.send()
        await group.all_in_set()
        settings = ClientSettings(nameserver=group.names.address)
        async with Producer("P", settings=settings, send_timeout=timeout) as producer:
            sends = Sends(producer)
            running = [asyncio.create_task(sends.go_on(sender)) for sender in range(SENDERS)]
            for number in range(1, rounds + 1):
                await asyncio.sleep(2)
                known = (await group.view()).known
                assert known is not None
                master, before = known.group.master_broker_id, sum(sends.faults.values())
                sends.begin_round()
                killed = time.time()
                group.kill(master)
                await group.hang_up(master)
                await group.led_by_another(master)
                await sends.more(100)
                pauses.append(sends.pause)
                longest.append(sends.longest)
                failed.append(sum(sends.faults.values()) - before)
                known = (await group.view()).known
                assert known is not None
                leads = group.brokers[known.group.master_broker_id]
                print(
                    f"{number}: pause {pauses[-1]:.2f} s, longest send {longest[-1]:.2f} s, faults {failed[-1]}, "
                    f"load {os.getloadavg()[0]:.1f}; {parts(leads.output, killed, sends.goes_on)}"
                )
                await group.start(master)
                await group.all_in_set()
            sends.over = True
            await asyncio.gather(*running)
    print(f"{sends.count:,} sends by {SENDERS} senders, {rounds} kills of the master of {brokers} brokers")
    print(f"pause: {min(pauses):.2f} / {median(pauses):.2f} / {max(pauses):.2f} s (minimum / median / maximum)")
    print(f"longest send: {max(longest):.2f} s; faults in a round: {median(failed):g} (median), {max(failed)} (most)")
    for fault, count in sends.faults.most_common(5):
        print(f"{count:6} {fault}")


def main() -> None:
    """Measure what the command line says."""
    rounds, brokers, timeout = numbers(__doc__, rounds=10, brokers=2, send_timeout=3.0)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(Path(folder), rounds, brokers, timeout))


if __name__ == "__main__":
    main()
