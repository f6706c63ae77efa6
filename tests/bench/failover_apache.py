"""What a change of the master costs in Eruca and in Apache RocketMQ 5.3.3: pauses, and acknowledged messages.

Run: ``python -m tests.bench.failover_apache [--of SYSTEM,...] [--happens HARM,...] [--rounds N]`` (all, and 10 rounds
of each; needs Debian's etcd-server, Java and Maven). Each system is two brokers of one group, a nameserver, and three
members of what elects (etcd; RocketMQ's controllers), all on this machine, with the settings of their makers but for
small files, small heaps and no fast failure of sends that wait. RocketMQ runs with ``allAckInSyncStateSet=false``, its
default: one machine acknowledges; and with true: all of its set do.

In each round the master gets kill -9, and starts again when another one leads; or SIGSTOP, and after 20 s SIGCONT.
Meanwhile eight producers send, each waits for its answer. Half of them look elsewhere after each failure; the others
keep to the master that they know for up to 30 s, as Apache's client does between two looks at the route. A pause is the
longest time in which nobody was answered with 0 (a send to a broker that stands still takes 2 s to fail); what failed
is counted of the first half. A round ends when both are in the set again; one that is not there after 180 s is told as
such, and a new group goes on. After it, and at the end of all rounds, the master is asked for all messages: only what
it has not got after 20 s more is called lost. Machine load is printed beside.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from tests.bench.command_line import some_of
from tests.support.apache_group import ApacheGroup
from tests.support.failover_cluster import FailoverCluster
from tests.support.failover_load import GroupLoad, Witness, differences
from tests.support.load import QUEUES, read
from tests.support.peers import Peer
from tests.support.processes import NotReady
from tests.support.programme import SEED

Cluster = FailoverCluster | ApacheGroup
NO_ANSWER = (OSError, EOFError, TimeoutError, AssertionError)
"""A broker is silent, or answers with an error, or the group has no master."""
HEAD = (
    "| what happens | system | rounds | pause: minimum / median / maximum | failed | acknowledged | lost | moved "
    "| acknowledged twice | seen and gone | logs not equal | not together again | |"
)
CREATE_TOPIC, GET_ALL_TOPIC_CONFIG, GET_BROKER_RUNTIME_INFO = 17, 21, 28
SMALL = {"mappedFileSizeCommitLog": str(32 << 20), "brokerFastFailureEnable": "false"}
ASLEEP = 20.0
ROUTE = 30.0
"""Seconds between two looks of Apache's client at the route."""
LED, TOGETHER, PATIENCE = 120.0, 180.0, 20.0
"""Seconds for an election, for a group to be together again, and for what is judged to be as it should."""
AWAKE = 10.0
"""Seconds of sends after a master has woken: by then it has heard of the other one."""


@asynccontextmanager
async def eruca(home: Path) -> AsyncIterator[Cluster]:
    """Ours, with ``slaveTimeout`` as by default."""
    async with FailoverCluster(home, settings={**SMALL, "slaveTimeout": "3000"}) as group:
        yield group


@asynccontextmanager
async def apache(home: Path, *, all_ack: bool = False) -> AsyncIterator[Cluster]:
    """RocketMQ; its set acknowledges only with ``all_ack``."""
    async with ApacheGroup(home, {**SMALL, "allAckInSyncStateSet": str(all_ack).lower()}) as group:
        yield group


SYSTEMS = {
    "eruca": ("Eruca", eruca),
    "apache": ("RocketMQ 5.3.3", apache),
    "apache-all": ("RocketMQ 5.3.3, `allAckInSyncStateSet=true`", lambda home: apache(home, all_ack=True)),
}


async def killed(group: Cluster, load: GroupLoad, master: int) -> bool:
    """kill -9, and a start after another one leads; whether one did."""
    group.kill(master)
    led = await another_led(group, master, LED)
    await load.more(200 if led else 0)
    await group.start(master)
    return led


async def stopped(group: Cluster, load: GroupLoad, master: int) -> bool:
    """SIGSTOP, and SIGCONT; whether another one led."""
    group.brokers[master].signal(signal.SIGSTOP)
    begun = time.monotonic()
    led = await another_led(group, master, ASLEEP)
    await asyncio.sleep(begun + ASLEEP - time.monotonic())
    group.brokers[master].signal(signal.SIGCONT)
    await asyncio.sleep(AWAKE)
    return led


async def another_led(group: Cluster, than: int, within: float) -> bool:
    """Whether another master was elected by then."""
    try:
        await group.led_by_another(than, within)
    except TimeoutError:
        return False
    return True


HARMS: dict[str, tuple[str, Callable[[Cluster, GroupLoad, int], Awaitable[bool]]]] = {
    "kill": ("kill -9", killed),
    "stop": ("SIGSTOP for 20 s", stopped),
}


@dataclass
class Round:
    """What one round came to."""

    topic: str
    witness: Witness = field(default_factory=Witness)
    pause: float = 0.0
    failed: int = 0
    led: bool = False
    """Whether another broker was elected."""
    together: bool = False
    """Whether both brokers were in the set at its end."""
    joined: float = 0.0
    """Seconds until then, since the former master was started again, or had been awake for a while."""
    equal: bool = False
    """Whether both had the same log then."""
    counts: Counter[str] = field(default_factory=Counter)
    """What is wrong with it, by the last look."""
    seen: bool = False
    """Whether there was a master for the last look."""

    def __str__(self) -> str:
        wrong = ", ".join(f"{count} {what}" for what, count in self.counts.items() if count) or "0 lost"
        wrong = wrong if self.seen else "NOT SEEN"
        return (
            f"pause {self.pause:.2f} s, {self.failed} failed, {self.witness.history.acknowledged:,} acknowledged: "
            f"{wrong}; {'another one led' if self.led else 'nobody else led'}, "
            f"{f'together after {self.joined:.1f} s more' if self.together else 'NOT TOGETHER AGAIN'}, "
            f"logs {'equal' if self.equal else 'NOT EQUAL'}, load {os.getloadavg()[0]:.1f}"
        )


async def one_round(group: Cluster, happens: str, this: Round) -> None:
    """Send while it happens, until the group is together again, and judge."""
    try:
        master = await group.master()
        dice = random.Random(f"{SEED}/{this.topic}")
        async with GroupLoad(group, this.witness, dice, topic=this.topic, master=master, looks=ROUTE) as load:
            await load.more(500)
            load.begin_round()
            try:
                this.led = await HARMS[happens][1](group, load, master)
                mended = time.monotonic()
                await group.all_in_set(TOGETHER)
                this.joined = time.monotonic() - mended
                await load.more(100)
                this.together = True
            finally:
                this.pause, this.failed = load.pause, load.failed
    except (TimeoutError, NotReady) as why:
        print(f"    {type(why).__name__} {str(why)[-300:]}", flush=True)
    await look(group, [this])
    this.equal = await same_log(group)


async def look(group: Cluster, judged: list[Round]) -> None:
    """Count what the master has not got; it is given time where something is missing."""
    until = time.monotonic() + PATIENCE
    for each in judged:
        each.seen = False
        while True:
            with suppress(*NO_ANSWER):
                found = await read(group.address(await group.master()), topic=each.topic)
                each.counts, each.seen = each.witness.counts(found), True
            if (each.seen and not each.counts.total()) or time.monotonic() > until:
                break
            await asyncio.sleep(1)


async def same_log(group: Cluster) -> bool:
    """Whether all brokers come to have the same bytes up to the same end."""
    until = time.monotonic() + PATIENCE
    while True:
        with suppress(*NO_ANSWER):
            ends = {number: await end(group.address(number)) for number in group.numbers}
            logs = {number: log(group.store(number), ends[number]) for number in group.numbers}
            if not differences(logs):
                return True
        if time.monotonic() > until:
            return False
        await asyncio.sleep(0.5)


async def end(address: str) -> int:
    """Where the log of a broker ends, as it says."""
    peer = await Peer().connect(address)
    try:
        table = json.loads((await peer.ask(GET_BROKER_RUNTIME_INFO)).body)["table"]
        return int(table["commitLogMaxOffset"])
    finally:
        await peer.close()


def log(store: Path, end: int) -> bytes:
    """The bytes of a log up to its end; what an earlier one left behind that does not count."""
    files = sorted((store / "commitlog").iterdir())
    return b"".join(file.read_bytes() for file in files)[: end - int(files[0].name)]


async def make_topics(group: Cluster, topics: list[str]) -> None:
    """Have the topics on all brokers; RocketMQ's slaves copy them every 10 s."""
    fields = {"defaultTopic": "TBW102", "readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6}
    fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}
    peer = await Peer().connect(group.address(await group.master()))
    for topic in topics:
        answer = await peer.ask(CREATE_TOPIC, {"topic": topic, **fields}, within=30)
        assert answer.code == 0, answer.remark
    await peer.close()
    async with asyncio.timeout(TOGETHER):
        for number in group.numbers:
            while not await has(group.address(number), topics):  # noqa: ASYNC110
                await asyncio.sleep(0.5)


async def has(address: str, topics: list[str]) -> bool:
    """Whether a broker has all these topics."""
    peer = await Peer().connect(address)
    try:
        body = (await peer.ask(GET_ALL_TOPIC_CONFIG, within=30)).body
    finally:
        await peer.close()
    return all(f'"{topic}"'.encode() in body for topic in topics)


async def measure(folder: Path, system: str, happens: str, rounds: int) -> list[Round]:
    """All rounds of one system and one harm; a line is printed for each."""
    done: list[Round] = []
    while len(done) < rounds:
        async with SYSTEMS[system][1](folder / str(len(done))) as group:
            await group.all_in_set(TOGETHER)
            topics = [f"Round-{number}" for number in range(len(done) + 1, rounds + 1)]
            await make_topics(group, topics)
            here: list[Round] = []
            for topic in topics:
                here.append(Round(topic))
                await one_round(group, happens, here[-1])
                print(f"  {topic}: {here[-1]}", flush=True)
                if not here[-1].together:
                    break
            await look(group, here)
            done += here
    return done


def row(system: str, happens: str, done: list[Round]) -> str:
    """The row of a table."""
    pauses, counts = [each.pause for each in done], sum((each.counts for each in done), Counter[str]())
    acknowledged = sum(each.witness.history.acknowledged for each in done)
    worse = sum(bool(each.counts["lost"]) for each in done)
    return (
        f"| {HARMS[happens][0]} | {SYSTEMS[system][0]} | {len(done)} "
        f"| {min(pauses):.1f} / {median(pauses):.1f} / {max(pauses):.1f} s | {median(each.failed for each in done):g} "
        f"| {acknowledged:,} | {counts['lost']} in {worse} rounds | {counts['moved']} | {counts['twice']} "
        f"| {counts['gone']} | {sum(not each.equal for each in done)} "
        f"| {sum(not each.together for each in done)}, {sum(not each.seen for each in done)} not seen "
        f"| load {os.getloadavg()[0]:.1f} |"
    )


def main() -> None:
    """Measure what the command line says."""
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--of", type=some_of(SYSTEMS), default=[*SYSTEMS], metavar="SYSTEM,...", help=", ".join(SYSTEMS))
    parse.add_argument("--happens", type=some_of(HARMS), default=[*HARMS], metavar="HARM,...", help=", ".join(HARMS))
    parse.add_argument("--rounds", type=int, default=10, help="default 10")
    wanted = parse.parse_args()
    rows = []
    for happens in wanted.happens:
        for system in wanted.of:
            print(f"{SYSTEMS[system][0]}, {HARMS[happens][0]}", flush=True)
            with tempfile.TemporaryDirectory(prefix=f"failover-{system}-") as folder:
                rows.append(row(system, happens, asyncio.run(measure(Path(folder), system, happens, wanted.rounds))))
            print(rows[-1], flush=True)
    print(HEAD, *rows, sep="\n")


if __name__ == "__main__":
    main()
