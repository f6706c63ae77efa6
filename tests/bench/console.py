"""Pages of the web console and lists of mqadmin in a cluster of 1,000 topics and 500 groups.

    python -m tests.bench.console [runs]

A nameserver, a broker and `mqadmin console` as processes; every group has consumed of a topic of its own. Pages are
asked for over HTTP, one after the other, while the console looks at the cluster every two seconds; their CPU is that of
the console's process. Lists are processes of mqadmin, as they come and with nameserver and broker so far away that each
answer is under way for 20 ms. Cells are minimum / median / maximum, in ms.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from threading import Event, Thread
from urllib.parse import urlsplit

import httpx

from eruca.admin.client import Admin
from eruca.admin.lookups import ask_each, create_topic
from eruca.protocol import api
from eruca.protocol.bodies import TopicConfig
from eruca.protocol.headers import offsets
from eruca.protocol.names import retry_topic
from tests.bench.command_line import numbers
from tests.bench.mqadmin import Took, measured
from tests.bench.report import spread
from tests.support.eruca import SCRIPTS, ErucaCluster
from tests.support.processes import Process
from tests.support.proxy import Proxy

TOPICS, GROUPS = 1000, 500
ROUND_TRIP = 0.02
"""Seconds that an answer is under way."""
PAGES = {
    "the overview": "/",
    "topics": "/topics",
    "a topic": "/topics/Topic0000",
    "groups": "/groups",
    "a group": "/groups/group000",
}
LISTS = ("topicList -c", "consumerProgress", "statsAll")
FAR = "127.0.0.2"
"""Where clients reach the broker, through a proxy."""


async def fill(nameserver: str, broker: str) -> None:
    """The topics, and the groups with their offsets."""
    groups = [f"group{number:03}" for number in range(GROUPS)]
    names = [*(f"Topic{number:04}" for number in range(TOPICS)), *map(retry_topic, groups)]
    async with Admin([nameserver]) as admin:
        for name in names:
            await create_topic(admin, broker, TopicConfig(topic_name=name))
        consumed = {
            group: admin.call(
                broker,
                api.UPDATE_CONSUMER_OFFSET,
                offsets.UpdateConsumerOffset(consumer_group=group, topic=topic, queue_id=0, commit_offset=0),
            )
            for group, topic in zip(groups, names, strict=False)
        }
        (await ask_each(consumed)).strict()


class Far:
    """The nameserver and the broker behind proxies, from which an answer is under way for ``distance`` seconds."""

    def __init__(self, cluster: ErucaCluster) -> None:
        self._cluster = cluster
        self._ready, self._done = Event(), Event()
        self._thread = Thread(target=lambda: asyncio.run(self._serve()))
        self.nameserver = ""
        self.distance = 0.0

    async def _serve(self) -> None:
        port = self._cluster.broker.port
        nameserver, broker = Proxy(self._cluster.name_server.address), Proxy(f"127.0.0.1:{port}")
        await nameserver.start()
        await broker.start(FAR, port)
        self.nameserver = nameserver.address
        self._ready.set()
        while not self._done.is_set():
            nameserver.distance = broker.distance = self.distance
            await asyncio.sleep(0.05)
        await nameserver.stop()
        await broker.stop()

    def __enter__(self) -> Far:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()


def pages(nameserver: str, home: Path, runs: int) -> Iterable[tuple[str, list[Took]]]:
    """Each page, once for nothing and then ``runs`` times."""
    command = [str(SCRIPTS / "mqadmin"), "console", "-n", nameserver, "--listen", "127.0.0.1:0"]
    console = Process(command, home / "console.out", env={**os.environ, "HOME": str(home)})
    try:
        address = console.wait_for_line("/?token=").strip()
        place = urlsplit(address)
        with httpx.Client(base_url=f"{place.scheme}://{place.netloc}", follow_redirects=True, timeout=60) as browser:
            browser.get(address).raise_for_status()
            while browser.get("/groups").raise_for_status().text.count("<tr>") < GROUPS:
                time.sleep(0.5)  # the console has not seen them all yet
            for title, path in PAGES.items():
                took = []
                for _ in range(runs + 1):
                    before, began = console.cpu_nanoseconds(), time.monotonic()
                    browser.get(path).raise_for_status()
                    wall, after = time.monotonic() - began, console.cpu_nanoseconds()
                    took.append(Took((after - before) / 1e6, wall * 1000))
                yield title, took[1:]
    finally:
        console.stop()


def lists(nameserver: str, home: Path, runs: int) -> Iterable[tuple[str, list[Took]]]:
    """Each list."""
    for line in LISTS:
        command = [str(SCRIPTS / "mqadmin"), *line.split(), "-n", nameserver]
        yield line, [measured(command, home) for _ in range(runs + 1)][1:]


def told(rows: Iterable[tuple[str, list[Took]]]) -> None:
    """Print each row as it comes."""
    for title, took in rows:
        cpu, wall = spread([each.cpu for each in took], 0), spread([each.wall for each in took], 0)
        print(f"{title:<24} CPU {cpu}, wall {wall}", flush=True)


def main() -> None:
    """Fill a cluster and measure."""
    (runs,) = numbers(__doc__, runs=5)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory(prefix="eruca-bench-") as folder:
        home = Path(folder)
        cluster = ErucaCluster(home, {"brokerIP1": FAR, "bindAddress": "127.0.0.1", "diskMaxUsedSpaceRatio": "95"})
        try:
            with Far(cluster) as far:
                asyncio.run(fill(cluster.name_server.address, f"127.0.0.1:{cluster.broker.port}"))
                told((f"page: {title}", took) for title, took in pages(far.nameserver, home, runs))
                told(lists(far.nameserver, home, runs))
                far.distance = ROUND_TRIP
                told((f"{title}, 20 ms", took) for title, took in lists(far.nameserver, home, runs))
        finally:
            cluster.discard()


if __name__ == "__main__":
    main()
