"""Readers of an old backlog that is on the disk only, beside producers and consumers of what is new: who waits?

Run: ``python -m tests.bench.cold [GiB] [seconds a row]`` (3 and 10; the disk needs that room). The log is filled by the
store itself, then the kernel forgets its pages before each row. The probe is a sender of 100 messages a second and a
consumer that pulls each of them; milliseconds, median / 99 % / worst.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from eruca.protocol.message import unique_key
from tests.bench.command_line import numbers
from tests.bench.flood import Flood, quantiles
from tests.bench.restart import HOST, LARGE_FILES, QUEUES, TOPIC, drop_cached, send
from tests.support.lone import LoneBroker
from tests.support.peers import Peer

HOT = "Hot"
BODY = 1024


@dataclass
class Row:
    """What goes on beside the probe; ``count`` is what it got done."""

    address: str
    messages: int
    begin: int
    end: int
    """Times in ms between which the backlog was stored."""
    count: int = 0
    dice: random.Random = field(default_factory=lambda: random.Random(1))


async def pull(peer: Peer, topic: str, queue: int, offset: int, wait: int = 0) -> tuple[int, int]:
    """Ask for messages once: the code and where to go on."""
    fields = {"consumerGroup": "bench", "topic": topic, "queueId": queue, "queueOffset": offset, "maxMsgNums": 32}
    fields |= {"sysFlag": 6 if wait else 4, "commitOffset": 0, "suspendTimeoutMillis": wait, "subVersion": 0}
    answer = await peer.ask(11, fields | {"subscription": "*"}, within=60)
    return answer.code, int(answer.fields["nextBeginOffset"])


async def read_backlog(row: Row, peer: Peer, queue: int) -> None:
    """Pull a queue from its beginning."""
    offset = 0
    while offset < row.messages // QUEUES:
        _, following = await pull(peer, TOPIC, queue, offset)
        row.count += following - offset
        offset = following


async def search_times(row: Row, peer: Peer, queue: int) -> None:
    """Ask for offsets at times."""
    while True:
        fields = {"topic": TOPIC, "queueId": queue, "timestamp": row.dice.randint(row.begin, row.end)}
        assert (await peer.ask(29, fields, within=60)).code == 0
        row.count += 1


async def query_keys(row: Row, peer: Peer, queue: int) -> None:
    """Ask for messages by their unique key."""
    while True:
        number = row.dice.randrange(row.messages)
        key = unique_key(HOST[:4], 4242, 0x18B4AAC2, 1_000_000 + number // 64 * 64 // 40, number)
        fields = {"topic": TOPIC, "key": key, "maxNum": 1, "beginTimestamp": 0, "endTimestamp": row.end + 60_000}
        answer = await peer.ask(12, fields | {"_UNIQUE_KEY_QUERY": "true"}, within=60)
        assert answer.code == 0, answer
        row.count += 1


Work = Callable[[Row, Peer, int], Awaitable[None]]
ROWS: tuple[tuple[str, Work | None], ...] = (
    ("nothing else", None),
    ("4 readers of the backlog", read_backlog),
    ("4 that search offsets by time", search_times),
    ("4 that query keys", query_keys),
    ("nothing else", None),
)


async def probe(address: str, seconds: float) -> tuple[list[float], list[float]]:
    """Sends at an even pace, and how long after its send each is in the hands of the consumer."""
    sender, consumer = await Peer().connect(address), await Peer().connect(address)
    sent: list[float] = []
    sends: list[float] = []
    deliveries: list[float] = []
    fields = {"a": "probe", "b": HOT, "c": "TBW102", "d": 1, "e": 0, "f": 0, "g": 1, "h": 0}
    fields |= {"i": "", "j": 0, "k": "false", "m": "false"}
    first = await sender.ask(310, fields, b"probe", within=60)
    offset = int(first.fields["queueOffset"]) + 1
    end = time.monotonic() + seconds

    async def consume(offset: int) -> None:
        got = 0
        while True:
            code, following = await pull(consumer, HOT, 0, offset, wait=5000)
            if code == 0:
                now = time.monotonic()
                deliveries.extend((now - since) * 1000 for since in sent[got : got + following - offset])
                got += following - offset
                offset = following

    consuming = asyncio.create_task(consume(offset))
    while (due := time.monotonic()) < end:
        sent.append(due)
        assert (await sender.ask(310, fields, b"probe", within=60)).code == 0
        sends.append((time.monotonic() - due) * 1000)
        await asyncio.sleep(max(due + 0.01 - time.monotonic(), 0))
    await asyncio.sleep(0.2)
    consuming.cancel()
    await asyncio.gather(consuming, return_exceptions=True)
    await sender.close()
    await consumer.close()
    return sends, deliveries


async def measure(home: Path, root: Path, messages: int, begin: int, end: int, seconds: float) -> None:
    broker = await LoneBroker.start(home, root, {**LARGE_FILES, "brokerFastFailureEnable": "false"})
    try:
        await measure_rows(broker, root, messages, begin, end, seconds)
    finally:
        broker.kill()


async def measure_rows(broker: LoneBroker, root: Path, messages: int, begin: int, end: int, seconds: float) -> None:
    """Each row, with the log out of the page cache."""
    peer = await Peer().connect(broker.address)
    await send(peer, 0, b"the topic comes into being")
    await peer.close()
    print(f"{'beside the probe and 1 producer':<34} {'send ms':>26} {'to the consumer, ms':>26}")
    for title, work in ROWS:
        await asyncio.to_thread(drop_cached, root / "commitlog")
        await asyncio.to_thread(drop_cached, root / "index")
        await asyncio.to_thread(drop_cached, root / "consumequeue")
        row = Row(broker.address, messages, begin, end)
        flood = Flood(broker.address, [("Other", queue) for queue in range(8)], 1, 4)
        await flood.start()
        peers = [await Peer().connect(broker.address) for _ in range(4)]
        tasks = [asyncio.ensure_future(work(row, peer, number)) for number, peer in enumerate(peers) if work]
        sends, deliveries = await probe(broker.address, seconds)
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result
        await flood.stop()
        for peer in peers:
            await peer.close()
        line = f"{title:<34} {quantiles(sends):>26} {quantiles(deliveries):>26}   {row.count / seconds:,.0f} a second"
        print(line, flush=True)


def main(gibibytes: float, seconds: float) -> None:
    """Fill, then measure."""
    with tempfile.TemporaryDirectory(prefix="eruca-cold-") as folder:
        root = Path(folder) / "store"
        begin = int(time.time() * 1000)
        fill = [sys.executable, "-m", "tests.bench.restart", "--fill", str(root), str(int(gibibytes * (1 << 30)))]
        count = int(subprocess.check_output([*fill, str(BODY)], text=True))
        asyncio.run(measure(Path(folder), root, count, begin, int(time.time() * 1000), seconds))


if __name__ == "__main__":
    main(*numbers(__doc__, gibibytes=3.0, seconds=10.0))
