"""What a message costs as a broker grows: topics, queues, connections.

Run: ``python -m tests.bench.scale [seconds a run]`` (5; about three minutes). A name server and a broker as processes;
CPU of the broker a message acknowledged, by /proc; each row three runs, in turn with the small broker's row. The probe
is a sender of 100 messages a second beside an even load: what it waits shows how long the broker is busy with anything
at all. Then the start with all of it on disk, and what the name server takes for a registration.
"""

from __future__ import annotations

import asyncio
import resource
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from eruca.protocol.bodies import HeartbeatData, ProducerData
from tests.bench.command_line import numbers
from tests.bench.flood import Flood, Place, probe, quantiles
from tests.bench.restart import LARGE_FILES
from tests.support.eruca import ErucaBroker, ErucaNameServer
from tests.support.lone import MANY_PEERS
from tests.support.peers import Peer

RUNS = 3
FILES = {**LARGE_FILES, "brokerFastFailureEnable": "false", "diskMaxUsedSpaceRatio": "95", **MANY_PEERS}
AT_ONCE = 50
CONNECTIONS = 5000


@dataclass(frozen=True)
class Load:
    """Topics of so many queues each, sent to over so many connections with some under way on each; others idle."""

    title: str
    topics: int
    queues: int
    connections: int = 8
    under_way: int = 32
    idle: int = 0

    @property
    def places(self) -> list[Place]:
        """All queues."""
        return [(self.name(topic), queue) for queue in range(self.queues) for topic in range(self.topics)]

    def name(self, topic: int) -> str:
        """The name of a topic."""
        return f"Scale-{self.topics}-{topic}"


SMALL = Load("1 topic, 8 queues", 1, 8)
LARGE = (
    Load("1,000 topics, 8,000 queues", 1000, 8),
    Load("10 topics, 10,000 queues", 10, 1000),
    Load("5,000 topics, 10,000 queues", 5000, 2),
    Load("1 topic, 5,000 idle connections", 1, 8, idle=CONNECTIONS),
)
ONE_EACH = Load("1 topic, 50 connections, 1 send each", 1, 8, connections=50, under_way=1)
MANY_EACH = Load("1 topic, 5,000 connections, 1 send each", 1, 8, connections=CONNECTIONS, under_way=1)


async def make_topics(address: str, load: Load) -> float:
    """Create the topics as mqadmin does; seconds."""
    peers = [await Peer().connect(address) for _ in range(AT_ONCE)]
    begin = time.monotonic()

    async def make(peer: Peer, first: int) -> None:
        for number in range(first, load.topics, AT_ONCE):
            fields = {"topic": load.name(number), "defaultTopic": "TBW102", "readQueueNums": load.queues}
            fields |= {"writeQueueNums": load.queues, "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0}
            answer = await peer.ask(17, {**fields, "order": "false"}, within=60)
            assert answer.code == 0, answer

    await asyncio.gather(*(make(peer, first) for first, peer in enumerate(peers)))
    took = time.monotonic() - begin
    for peer in peers:
        await peer.close()
    return took


async def beating(address: str, count: int) -> list[Peer]:
    """Connections of producers that have shown themselves."""
    peers = []
    for number in range(count):
        peer = await Peer().connect(address)
        beat = HeartbeatData(client_id=f"idle-{number}", producer_data_set=[ProducerData(group_name=f"g{number % 50}")])
        assert (await peer.ask(34, {}, beat.encode())).code == 0
        peers.append(peer)
    return peers


async def cost(broker: ErucaBroker, load: Load, seconds: float) -> float:
    """CPU microseconds of the broker a message."""
    flood = Flood(broker.address, load.places, load.connections, load.under_way)
    await flood.start()
    await asyncio.sleep(1)
    sent, used = flood.answered, broker.process.cpu_seconds()
    await asyncio.sleep(seconds)
    sent, used = flood.answered - sent, broker.process.cpu_seconds() - used
    await flood.stop()
    return used * 1e6 / sent


def spread(costs: Sequence[float]) -> str:
    return f"{min(costs):6.1f} / {statistics.median(costs):6.1f} / {max(costs):6.1f}"


async def compare(broker: ErucaBroker, small: Load, large: Load, seconds: float) -> None:
    """Both rows, in turn."""
    found: dict[Load, list[float]] = {small: [], large: []}
    idle = await beating(broker.address, large.idle)
    await cost(broker, large, seconds)  # the files of all queues come into being
    await asyncio.sleep(3)
    for _ in range(RUNS):
        for load in (small, large):
            found[load].append(await cost(broker, load, seconds))
    waits = await waiting(broker, large, seconds * 2)
    for peer in idle:
        await peer.close()
    ratio = statistics.median(found[large]) / statistics.median(found[small])
    print(f"{small.title:<42} {spread(found[small])} us")
    print(f"{large.title:<42} {spread(found[large])} us   x {ratio:.2f}   probe {waits} ms", flush=True)


async def waiting(broker: ErucaBroker, load: Load, seconds: float) -> str:
    """What a probe waits beside one sender with little under way."""
    flood = Flood(broker.address, load.places, 1, 4)
    await flood.start()
    found = await probe(broker.address, (SMALL.name(0), 0), seconds)
    await flood.stop()
    return quantiles(found)


async def measure(home: Path, names: ErucaNameServer, seconds: float) -> None:
    broker = await asyncio.to_thread(ErucaBroker, home, names.address, FILES)
    await make_topics(broker.address, SMALL)
    print(f"{'CPU a message':<42} {'min / median / max':>24}      probe: median / 99 % / worst")
    print(f"{SMALL.title:<42} {'':>36} probe {await waiting(broker, SMALL, seconds * 2)} ms")
    for load in LARGE:
        before = names.process.cpu_seconds()
        took = await make_topics(broker.address, load)
        if load.topics > 10:
            used = names.process.cpu_seconds() - before
            print(f"{load.topics} topics made in {took:.1f} s, the name server's CPU {used:.1f} s")
        await compare(broker, SMALL, load, seconds)
    await compare(broker, ONE_EACH, MANY_EACH, seconds)
    memory = await asyncio.to_thread(broker.process.memory)
    print(f"memory of the broker: {memory['anonymous'] / (1 << 20):.0f} MiB anonymous")
    used = broker.process.cpu_seconds()
    await asyncio.sleep(20)
    print(f"idle with all of it: {(broker.process.cpu_seconds() - used) / 20:.1%} of a core")
    stopping = time.monotonic()
    await asyncio.to_thread(broker.stop)
    print(f"stopped within {time.monotonic() - stopping:.2f} s")
    broker = await asyncio.to_thread(ErucaBroker, home, names.address, FILES)
    await probe(broker.address, (SMALL.name(0), 0), 0.01)
    print(f"start to first send: {time.monotonic() - broker.process.started:.2f} s")
    used = names.process.cpu_seconds()
    await asyncio.sleep(31)
    print(f"the name server's CPU for a registration of all: {names.process.cpu_seconds() - used:.2f} s")
    await asyncio.to_thread(broker.stop)


def main(seconds: float) -> None:
    """Measure everything."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536), hard))
    with tempfile.TemporaryDirectory(prefix="eruca-scale-") as folder:
        names = ErucaNameServer(Path(folder) / "names")
        try:
            asyncio.run(measure(Path(folder), names, seconds))
        finally:
            names.stop()


if __name__ == "__main__":
    main(*numbers(__doc__, seconds=5.0))
