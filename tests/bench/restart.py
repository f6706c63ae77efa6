"""How soon a broker with a large log answers its first send: after a clean stop, and after kill -9 under load.

Run: ``python -m tests.bench.restart [GiB] [bytes of a body]`` (10 and 1024; the disk needs that room twice over). The
log is filled by the store itself, in a process of its own, 8 queues, every message with its unique key in the index.
Seconds count from the start of the process to the answer of a send; ``cold`` is with the files out of the page cache.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from eruca.broker.store import PutStatus, Store, StoreConfig
from eruca.protocol.message import encode_properties, unique_key
from eruca.protocol.record import BatchEntry, encode_batch, host_bytes
from tests.bench.command_line import numbers
from tests.support.lone import LoneBroker
from tests.support.peers import Peer

HOST = host_bytes("127.0.0.1", 10911)
QUEUES = 8
TOPIC = "Large"
EACH = 64
LARGE_FILES = {
    "mappedFileSizeCommitLog": str(1 << 30),
    "mappedFileSizeConsumeQueue": str(300_000 * 20),
    "maxHashSlotNum": "5000000",
    "maxIndexNum": "20000000",
    "flushIntervalConsumeQueue": "1000",
    "flushConsumeQueueThoroughInterval": "60000",
}


def fill(root: Path, size: int, body: int) -> int:
    """A log of at least ``size`` bytes, closed in order; how many messages."""
    store = Store(StoreConfig(store_path_root_dir=root, disk_space_warning_level_ratio=0.98))
    store.open()
    count = 0
    text = os.urandom(body)
    while store.figures().max_offset < size:
        keys = [unique_key(HOST[:4], 4242, 0x18B4AAC2, 1_000_000 + count // 40, count + n) for n in range(EACH)]
        batch = encode_batch(BatchEntry(0, text, encode_properties({"UNIQ_KEY": key, "TAGS": "T"})) for key in keys)
        now = time.time_ns() // 1_000_000
        append = store.appender.put_batch
        put = append(TOPIC, count // EACH % QUEUES, batch, born_timestamp=now, born_host=HOST, store_host=HOST)
        assert put.status is PutStatus.OK
        count += EACH
        if count % (EACH * 1024) == 0:
            store.drain()
    store.close()
    return count


def drop_cached(root: Path) -> None:
    """Write out the files under a folder and let the kernel forget their pages."""
    for path in root.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


async def send(peer: Peer, queue: int, body: bytes, properties: str = "") -> None:
    """One message; raises RuntimeError when it is refused."""
    fields = {"a": "bench", "b": TOPIC, "c": "TBW102", "d": QUEUES, "e": queue, "f": 0, "g": 1, "h": 0}
    answer = await peer.ask(310, fields | {"i": properties, "j": 0, "k": "false", "m": "false"}, body, within=60)
    if answer.code:
        raise RuntimeError(f"a send was refused with {answer.code}: {answer.remark}")


async def first_send(home: Path, root: Path) -> tuple[LoneBroker, float]:
    """A broker, and the seconds until its first send was answered."""
    broker = await LoneBroker.start(home, root, LARGE_FILES)
    peer = await Peer().connect(broker.address)
    await send(peer, 0, b"first")
    took = time.monotonic() - broker.started
    await peer.close()
    return broker, took


async def load(broker: LoneBroker, seconds: float) -> int:
    """Sends of 1 KiB, 64 under way, for so long; how many."""
    peer = await Peer().connect(broker.address)
    end = time.monotonic() + seconds
    count = 0

    async def one(number: int) -> None:
        nonlocal count
        while time.monotonic() < end:
            await send(peer, number % QUEUES, bytes(1024), f"UNIQ_KEY\x01K{number}-{count}")
            count += 1

    await asyncio.gather(*(one(number) for number in range(64)))
    await peer.close()
    return count


async def measure(home: Path, root: Path) -> None:
    """All starts, one after the other on one store."""
    for name, cold in (("clean stop", False), ("clean stop, cold", True)):
        if cold:
            drop_cached(root)
        broker, took = await first_send(home, root)
        stopping = time.monotonic()
        assert broker.stop() == 0
        stopped = time.monotonic() - stopping
        print(f"{name:<22} first send after {took:6.2f} s, stopped within {stopped:.2f} s", flush=True)
    for seconds in (2.0, 20.0):
        broker, _ = await first_send(home, root)
        sent = await load(broker, seconds)
        broker.kill()
        drop_cached(root)
        again, took = await first_send(home, root)
        what = f"kill -9, {seconds:.0f} s load"
        print(f"{what:<22} first send after {took:6.2f} s, cold, {sent:,} sent since the start", flush=True)
        again.stop()


def main(gibibytes: float, body: int) -> None:
    """Fill, then start and stop."""
    with tempfile.TemporaryDirectory(prefix="eruca-restart-") as folder:
        root = Path(folder) / "store"
        begin = time.monotonic()
        arguments = [str(root), str(int(gibibytes * (1 << 30))), str(body)]
        count = subprocess.check_output([sys.executable, "-m", "tests.bench.restart", "--fill", *arguments], text=True)
        files = sum(1 for path in root.rglob("*") if path.is_file())
        print(f"{gibibytes:g} GiB, {int(count):,} messages, {files} files; filled in {time.monotonic() - begin:.0f} s")
        asyncio.run(measure(Path(folder), root))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--fill"]:
        print(fill(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))
    else:
        main(*numbers(__doc__, gibibytes=10.0, body=1024))
