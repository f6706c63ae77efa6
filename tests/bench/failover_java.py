"""For how long Java's producers wait when a group has another master, and how many of their sends fail.

Run: ``python -m tests.bench.failover_java [rounds]`` (1; needs Debian's etcd-server, Java and Maven). Three members of
etcd, a nameserver and two brokers of one group are processes on this machine; with two groups also a broker of another
name, which has the topic, too. Four threads of Apache's client (4.9.7 and 5.3.3, its default timeouts and retries)
wait for each answer, and rest for 10 ms after a failure. In each round the master gets kill -9, or hands over
(``electMaster``) to the other broker. The pause is the longest time in which no thread had a success; it ends with the
measure, of 45 s with the default pollNameServerInterval. Machine load is printed beside, and below a line what the
first failures said.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.command_line import numbers
from tests.support.failover_cluster import FailoverCluster
from tests.support.java import Judge
from tests.support.lone import LoneBroker
from tests.support.peers import Peer

TOPIC = {
    **{"topic": "T", "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6"},
    **{"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"},
}
CREATE_TOPIC = 17
BEFORE = 2.0
"""Seconds of sends before something happens."""


class Case(NamedTuple):
    """One row of the table."""

    happens: str
    kind: str
    groups: int
    poll: int
    """pollNameServerInterval in ms."""
    seconds: int
    """Of the measure."""


CASES = (
    Case("kill -9", "sync", 1, 30_000, 45),
    Case("kill -9", "sync", 1, 1000, 12),
    Case("kill -9", "sync", 2, 30_000, 15),
    Case("kill -9", "sync", 2, 1000, 12),
    Case("electMaster", "sync", 1, 30_000, 8),
    Case("electMaster", "ordered", 1, 30_000, 8),
    Case("electMaster", "sync", 2, 30_000, 8),
)


async def happen(group: FailoverCluster, case: Case) -> Callable[[], Awaitable[None]]:
    """Do it; what mends it is returned."""
    master = await group.master()
    if case.happens == "kill -9":
        group.kill(master)
        return lambda: group.start(master)
    await group.hand_over(next(number for number in group.numbers if number != master))
    return lambda: asyncio.sleep(0)


async def row(group: FailoverCluster, judge: Judge, case: Case, number: int) -> None:
    """Measure one row, and print it."""
    name = f"{case.happens}-{case.kind}-{case.groups}-{case.poll}-{number}"
    names, poll = group.names.address, case.poll
    begun = judge.begin("producer", name=name, group="P", namesrv=names, timeoutMs=3000, pollMs=poll)
    await asyncio.wrap_future(begun)
    load: dict[str, Any] = {"name": name, "kind": case.kind, "topic": "T", "threads": 4, "restMs": 10}
    await asyncio.wrap_future(judge.begin("load", ms=1000, **load))
    measured = judge.begin("load", ms=case.seconds * 1000, **load)
    await asyncio.sleep(BEFORE)
    mend = await happen(group, case)
    found = await asyncio.wrap_future(measured)
    print(
        f"| {judge.release} | {case.happens}, {case.kind} | {case.groups} | {case.poll / 1000:g} s | "
        f"{found['pauseMs'] / 1000:.2f} s | {found['failed']:.0f} | {found['messages']:.0f} | "
        f"load {os.getloadavg()[0]:.1f} |",
        flush=True,
    )
    for words, times in Counter(found["failures"]).most_common():
        print(f"  {times}: {words}", flush=True)
    await asyncio.wrap_future(judge.begin("stop", name=name))
    await mend()
    await group.all_in_set()


async def made(address: str) -> None:
    """Have the topic."""
    peer = await Peer().connect(address)
    answer = await peer.ask(CREATE_TOPIC, dict(TOPIC))
    assert answer.code == 0, answer.remark
    await peer.close()


async def measure(folder: Path, rounds: int) -> None:
    """Print a line for each row."""
    print("| client | what happens | groups | pollNameServerInterval | pause | failed | sent | |")
    async with FailoverCluster(folder) as group:
        await group.send()
        await group.all_in_set()
        await made(group.address(await group.master()))
        for groups in (1, 2):
            other = None
            if groups == 2:
                settings = {"namesrvAddr": group.names.address, "brokerName": "broker-b"}
                other = await LoneBroker.start(folder / "b", folder / "b" / "store", settings)
                await made(other.address)
            for release in ("4.9.7", "5.3.3"):
                with Judge(release, folder / f"judge-{release}-{groups}") as judge:
                    for case in CASES:
                        for number in range(rounds if case.groups == groups else 0):
                            await row(group, judge, case, number)
            if other is not None:
                await asyncio.to_thread(other.stop)


def main() -> None:
    """Measure what the command line says."""
    [rounds] = numbers(__doc__, rounds=1)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(Path(folder), int(rounds)))


if __name__ == "__main__":
    main()
