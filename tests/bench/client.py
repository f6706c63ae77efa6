"""Eruca's Python client beside Apache's Java client, at one broker of Eruca: `python -m tests.bench.client`.

    --runs N        runs a row (default 3)
    --seconds S     length of a run (default 3)

The two take turns. Each cell is minimum / **median** / maximum of the client's own process: messages a second,
microseconds of CPU a message, and resident memory after the load. `make bench` has these tables, too.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.report import spread
from tests.bench.rows import BACKLOG, TOPIC, Bench
from tests.bench.systems import PROPERTIES, RELEASE
from tests.support.eruca import ErucaCluster
from tests.support.java import LONG_LIFE, ROOT, Judge, missing_tool

MIB = 1 << 20


@dataclass(frozen=True, eq=False)
class Row:
    """The same load by either client; `java` is None where Java has nothing like it."""

    kind: str
    title: str
    java: dict[str, Any] | None


ROWS = (
    Row("sync-64", "64 senders, each awaits its send", {"kind": "sync", "threads": 64}),
    Row("async", "256 sends in flight", {"kind": "async", "inFlight": 256}),
    Row("pipelined", "512 started, then awaited", None),
    Row("batch", "batches of 32, 16 senders", {"kind": "batch", "threads": 16, "each": 32}),
    Row("consume", "a backlog, one call per message", {"kind": "consume", "consumeBatch": 1, "threads": 4}),
    Row("async-for", "the same by `async for`", None),
)


@dataclass(frozen=True)
class Measured:
    """One run of one client."""

    rate: float
    cpu_us: float
    memory_mib: float


class Clients:
    """Both clients, at one cluster with a backlog of `backlog` messages."""

    def __init__(self, judge: Judge, cluster: ErucaCluster, *, seconds: float, backlog: int) -> None:
        self._judge = judge
        self._cluster = cluster
        self._seconds = seconds
        self._bench = Bench(judge)
        self._bench.prepare(cluster, "clients")
        self._bench.warm("clients", int(seconds * 1000))
        self._backlog = self._bench.fill("clients", backlog)
        self._judge.call("serialize", type="JSON")  # the default of both
        self._groups = 0

    def python(self, row: Row) -> Measured:
        """A run by Eruca's client in a new process."""
        line = [sys.executable, "-m", "tests.bench.client_load", row.kind, self._cluster.address]
        line += [self._topic(row), "--seconds", str(self._seconds), "--messages", str(self._backlog)]
        done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=600)
        if done.returncode:
            raise RuntimeError(f"{row.title}: {done.stderr[-500:]}")
        found = json.loads(done.stdout)
        return Measured(found["rate"], found["cpu_us"], found["memory"] / MIB)

    def java(self, row: Row) -> Measured:
        """A run by Apache's client, in the JVM that ran the others before."""
        request: dict[str, Any] = {
            "name": "clients",
            "topic": TOPIC,
            "ms": int(self._seconds * 1000),
            **(row.java or {}),
        }
        if row.kind == "consume":
            self._groups += 1
            request |= {"name": f"clients-{self._groups}", "group": f"bench-clients-{self._groups}"}
            request |= {"topics": {BACKLOG: "*"}, "count": self._backlog, "namesrv": self._cluster.address}
        before = self._judge.process.cpu_seconds()
        done = self._judge.call("load", within=600, **request)
        used = self._judge.process.cpu_seconds() - before
        if done["failed"]:
            raise RuntimeError(f"{row.title}: {done['failed']} of Java's messages failed; leave the machine more room")
        memory = self._judge.process.memory()["rss"] / (1 << 20)
        return Measured(done["rate"], used / max(1, done["messages"]) * 1e6, memory)

    def _topic(self, row: Row) -> str:
        return BACKLOG if row.kind in ("consume", "async-for") else TOPIC


def measure(clients: Clients, runs: int) -> dict[Row, tuple[list[Measured], list[Measured]]]:
    """All rows, the clients in turn: Java's runs and Python's."""
    found: dict[Row, tuple[list[Measured], list[Measured]]] = {}
    for row in ROWS:
        java, python = found.setdefault(row, ([], []))
        for _ in range(runs):
            if row.java is not None:
                java.append(clients.java(row))
            python.append(clients.python(row))
        print(f"{row.title}: {spread([each.cpu_us for each in python])} us of Python", file=sys.stderr, flush=True)
    return found


def tables(found: dict[Row, tuple[list[Measured], list[Measured]]]) -> str:
    """The figures as tables in Markdown."""
    parts = []
    for title, unit, name, digits in (
        ("Clients: throughput, broker of Eruca", "messages per second", "rate", 0),
        ("Clients: CPU of the client per message", "µs, user and system", "cpu_us", 1),
        ("Clients: memory after the load", "MiB, resident", "memory_mib", 0),
    ):
        lines = [f"### {title}", "", f"| {unit} | Java client {RELEASE} | Python client |", "|---|---|---|"]
        for row, (java, python) in found.items():
            cells = [cell(runs, name, digits) for runs in (java, python)]
            lines.append(f"| {row.title} | {cells[0]} | {cells[1]} |")
        parts.append("\n".join([*lines, ""]))
    return "\n".join(parts)


def cell(runs: Sequence[Measured], name: str, digits: int) -> str:
    return spread([getattr(each, name) for each in runs], digits) if runs else ""


def side_by_side(judge: Judge, home: Path, *, runs: int, seconds: float, backlog: int) -> str:
    """Everything, at a cluster of its own in that folder."""
    with ErucaCluster(home, PROPERTIES) as cluster:
        return tables(measure(Clients(judge, cluster, seconds=seconds, backlog=backlog), runs))


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--runs", type=int, default=3)
    parse.add_argument("--seconds", type=float, default=3.0)
    parse.add_argument("--backlog", type=int, default=200_000)
    given = parse.parse_args()
    if missing := missing_tool():
        sys.exit(f"The benchmark cannot run: {missing}.")
    with tempfile.TemporaryDirectory(prefix="eruca-bench-") as folder:
        home = Path(folder)
        with Judge(RELEASE, home / "judge", heap="1g", options=LONG_LIFE) as judge:
            cluster = home / "cluster"
            cluster.mkdir()
            print(side_by_side(judge, cluster, runs=given.runs, seconds=given.seconds, backlog=given.backlog))


if __name__ == "__main__":
    main()
