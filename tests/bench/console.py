"""Pages of the web console and lists of mqadmin in a cluster of 1,000 topics and 500 groups.

    python -m tests.bench.console [runs]

A nameserver, a broker and `mqadmin console` as processes; every group has consumed of a topic of its own. Pages are
asked for over HTTP, one after the other, while the console looks at the cluster every two seconds; their CPU is that of
the console's process. Lists are processes of mqadmin, Apache's and Eruca's in turn; Eruca's also with nameserver and
broker so far away that each answer is under way for 20 ms. Prints its tables as Markdown and writes them to
docs/benchmarks.md.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
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
from tests.bench import report
from tests.bench.command_line import numbers
from tests.bench.mqadmin import ERUCA, Took, in_turn, of_eruca, side_by_side
from tests.bench.systems import SYSTEMS
from tests.support.eruca import ErucaCluster
from tests.support.java import missing_tool
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


def pages(nameserver: str, home: Path, runs: int) -> dict[str, list[Took]]:
    """Each page, once for nothing and then ``runs`` times."""
    command = [*ERUCA.command(home, "console"), "-n", nameserver, "--listen", "127.0.0.1:0"]
    console = Process(command, home / "console.out", env={**os.environ, "HOME": str(home)})
    found: dict[str, list[Took]] = {}
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
                found[title] = took[1:]
    finally:
        console.stop()
    return found


def tables(cluster: ErucaCluster, home: Path, runs: int) -> str:
    """Measure pages and lists."""
    with Far(cluster) as far:
        asyncio.run(fill(cluster.name_server.address, f"127.0.0.1:{cluster.broker.port}"))
        shown = pages(far.nameserver, home, runs)
        lines = {line: (*line.split(), "-n", far.nameserver) for line in LISTS}
        near = {
            line: in_turn({system: system.command(home, *words) for system in SYSTEMS}, home, runs)
            for line, words in lines.items()
        }
        far.distance = ROUND_TRIP
        away = {line: in_turn({ERUCA: ERUCA.command(home, *words)}, home, runs)[ERUCA] for line, words in lines.items()}
    return "\n".join(
        [
            f"Measured on {time.strftime('%Y-%m-%d %H:%M')}: {runs} runs per row; {TOPICS:,} topics and {GROUPS} "
            "groups at one broker of Eruca.",
            "",
            of_eruca("Console: a page", shown),
            side_by_side("mqadmin: long lists", near),
            of_eruca("mqadmin: long lists of servers 20 ms away", away),
        ]
    )


def main() -> None:
    """Fill a cluster and measure."""
    (runs,) = numbers(__doc__, runs=5)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if missing := missing_tool():
        sys.exit(f"The benchmark cannot run: {missing}.")
    with tempfile.TemporaryDirectory(prefix="eruca-bench-") as folder:
        home = Path(folder)
        cluster = ErucaCluster(home, {"brokerIP1": FAR, "bindAddress": "127.0.0.1", "diskMaxUsedSpaceRatio": "95"})
        try:
            figures = tables(cluster, home, runs)
        finally:
            cluster.discard()
    print(figures)
    report.write_page(figures, "console")


if __name__ == "__main__":
    main()
