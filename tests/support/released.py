"""A small store as one version of Eruca leaves it, for the versions after it.

``python -m tests.support.released`` writes that of this version to ``tests/golden/stores/<version>.tar.xz``; run it
once for each release, and keep those of the last two.
"""

from __future__ import annotations

import asyncio
import tarfile
import tempfile
from pathlib import Path

from eruca.remoting.version import version
from tests.support.desk import START, Desk

STORES = Path(__file__).parents[1] / "golden" / "stores"
TOPIC, GROUP, QUEUES, COUNT = "Kept", "readers", 2, 40
DELAYED = b"delayed"
SEND, COMMIT = 310, 15


def small_desk(folder: Path) -> Desk:
    """A broker with files small enough for the repository."""
    desk = Desk(folder)
    desk.config.store.mapped_file_size_commit_log = 4096
    desk.config.store.mapped_file_size_consume_queue = 200
    return desk


def body(queue: int, number: int) -> bytes:
    return b"message %d of queue %d" % (number, queue)


async def send(desk: Desk, queue: int, text: bytes, properties: str) -> None:
    fields = {"a": "senders", "b": TOPIC, "c": "TBW102", "d": QUEUES, "e": queue, "f": 0, "g": START, "h": 0}
    answer = await desk.ask(SEND, fields | {"i": properties, "j": 0, "k": "false", "m": "false"}, text)
    assert answer.code == 0, answer.remark


async def write(folder: Path) -> None:
    """The store, closed in order, with ``COUNT`` messages a queue, an offset, and a message that is not due."""
    async with small_desk(folder) as desk:
        desk.topic(TOPIC, QUEUES)
        for number in range(COUNT):
            for queue in range(QUEUES):
                await send(desk, queue, body(queue, number), f"KEYS\x01k{queue}-{number}\x02TAGS\x01t")
        await send(desk, 0, DELAYED, "DELAY\x013")
        fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 1, "commitOffset": 7}
        assert (await desk.ask(COMMIT, fields)).code == 0


def main() -> None:
    """Write the archive of this version."""
    STORES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(write(Path(folder)))
        with tarfile.open(STORES / f"{version()}.tar.xz", "w:xz") as archive:
            archive.add(Path(folder) / "store", "store", filter=_of_nobody)


def _of_nobody(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = START // 1000
    return entry


if __name__ == "__main__":
    main()
