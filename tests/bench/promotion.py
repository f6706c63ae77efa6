"""How soon a slave that is elected takes its first send, and how soon a master that was killed is in the set again.

Run: ``python -m tests.bench.promotion [messages] [halves] [MiB] [rounds]`` (1000000, 10000, 100 and 3; needs Debian's
etcd-server). A group of two stores so many messages of 128 bytes and half messages without an end. In each round the
master gets kill -9 under load (512 sends under way); a probe sends to the slave until it answers with 0. Counted is
from the moment when etcd names the slave the master, as a poll every 5 ms sees it; in brackets is from the kill. Then
the new master stores so many MiB more, and the old one starts: counted is from the start of its process until it is in
the syncStateSet. First come the medians of what an election writes to the disk: the list of epochs, and the group.
Machine load is printed beside.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median

from eruca.broker.coordination.etcd import Etcd
from eruca.broker.failover.epochs import Epoch
from eruca.broker.failover.group import found
from eruca.broker.store.epoch_file import write_epochs
from eruca.broker.store.group_file import write_group
from tests.bench.command_line import numbers
from tests.bench.flood import Flood
from tests.bench.restart import LARGE_FILES
from tests.support.failover_cluster import KEYS, FailoverCluster
from tests.support.half_messages import half
from tests.support.peers import Peer
from tests.support.sends import message

QUEUES = 8
SETTINGS = {
    **LARGE_FILES,
    "mappedFileSizeCommitLog": str(256 << 20),
    "slaveTimeout": "3000",
    "transactionCheckInterval": "600000",
}
PLACES = [("Cost", queue) for queue in range(QUEUES)]


async def flooded(address: str, body: bytes, reached: Callable[[Flood], bool], connections: int, each: int) -> Flood:
    """Begin a load, and wait until it has got so far."""
    flood = Flood(address, PLACES, connections, each, body)
    await flood.start()
    while not reached(flood):  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    return flood


async def store_halves(address: str, count: int) -> None:
    """Send half messages that nobody ends."""
    peer = await Peer().connect(address)
    for first in range(0, count, 100):
        answers = await asyncio.gather(
            *(peer.ask(310, half(f"AC{number:08X}"), b"half", within=60) for number in range(first, first + 100))
        )
        assert {each.code for each in answers} == {0}, answers[0].remark
    await peer.close()


async def first_taken(address: str) -> float:
    """When a broker has taken a send."""
    while True:
        with suppress(OSError, EOFError, TimeoutError):
            peer = await Peer().connect(address)
            try:
                while (await peer.ask(310, message(), b"probe", within=10)).code:  # noqa: ASYNC110
                    await asyncio.sleep(0.002)
                return time.monotonic()
            finally:
                await peer.close()
        await asyncio.sleep(0.01)


async def elected(group: FailoverCluster, former: int) -> float:
    """When etcd names another broker."""
    etcd = Etcd(group.etcd.urls)
    try:
        while True:
            known = KEYS.view(await etcd.read_all(KEYS.prefix)).known
            if known is not None and known.group.master_broker_id != former:
                return time.monotonic()
            await asyncio.sleep(0.005)
    finally:
        await etcd.close()


def written(write: Callable[[], None], times: int = 50) -> float:
    """The milliseconds of a durable write, the median."""
    spans = []
    for _ in range(times):
        begun = time.monotonic()
        write()
        spans.append((time.monotonic() - begun) * 1000)
    return median(spans)


async def measure(home: Path, messages: int, halves: int, mebibytes: int, rounds: int) -> None:
    """Fill, then kill and start again."""
    files = home / "files"
    (files / "config").mkdir(parents=True)
    epochs = written(lambda: write_epochs(files, tuple(Epoch(n + 1, n << 20) for n in range(20))))
    kept = written(lambda: write_group(files, found(1, "store")))
    print(f"an election writes: list of 20 epochs {epochs:.2f} ms, group {kept:.2f} ms (median of 50)")
    async with FailoverCluster(home, 2, SETTINGS) as group:
        await group.send()
        await group.all_in_set()
        master = 1
        begun = time.monotonic()
        flood = await flooded(group.brokers[1].address, bytes(128), lambda load: load.answered >= messages, 16, 32)
        rate = flood.answered / (time.monotonic() - begun)
        await flood.stop()
        await store_halves(group.brokers[1].address, halves)
        print(f"{flood.answered:,} messages at {rate:,.0f} a second, {halves:,} half messages", flush=True)
        for number in range(1, rounds + 1):
            master = await one_round(group, master, number, mebibytes)


async def one_round(group: FailoverCluster, master: int, number: int, mebibytes: int) -> int:
    """One kill and one return; the new master."""
    other = 3 - master
    begun = time.monotonic()
    load = await flooded(group.brokers[master].address, bytes(128), lambda flood: time.monotonic() > begun + 3, 16, 32)
    rate = load.answered / (time.monotonic() - begun)
    killed = time.monotonic()
    group.kill(master)
    taken = asyncio.create_task(first_taken(group.brokers[other].address))
    named = await elected(group, master)
    took = await taken
    await load.stop()
    print(
        f"{number}: first 0 {took - named:.3f} s after the election ({took - killed:.2f} s after the kill), "
        f"{rate:,.0f} messages a second before, load {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    more = mebibytes * 64
    behind = await flooded(group.brokers[other].address, bytes(16 << 10), lambda flood: flood.answered >= more, 4, 8)
    await behind.stop()
    begun = time.monotonic()
    await group.start(master)
    started = time.monotonic() - begun
    await group.all_in_set(120)
    cut = "a part of its log cut off" if "rejoining" in group.brokers[master].output else "nothing cut off"
    print(
        f"{number}: {mebibytes} MiB behind, in the set {time.monotonic() - begun:.2f} s after its start "
        f"(first boot {started:.2f} s, {cut}), load {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    return other


def main() -> None:
    """Measure what the command line says."""
    messages, halves, mebibytes, rounds = numbers(__doc__, messages=1_000_000, halves=10_000, mebibytes=100, rounds=3)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(Path(folder), messages, halves, mebibytes, rounds))


if __name__ == "__main__":
    main()
