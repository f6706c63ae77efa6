"""Apache RocketMQ 4.9.7 and Eruca side by side on this machine: `python -m tests.bench.run`.

    --short          one second per run and three runs per row (about five minutes)
    --runs N         runs per row; default 5, short 3
    --only ROW,...   these rows only; the page stays as it is

The two systems alternate, run by run, so that other load on the machine affects both. Prints its tables as
Markdown and writes them to docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.bench import client, report
from tests.bench.command_line import some_of
from tests.bench.rows import ALL, BACKLOG, LATENCY, Bench, Cluster, Measured, Row
from tests.bench.systems import RELEASE, SYSTEMS, System
from tests.support.java import LONG_LIFE, Judge, missing_tool

Figures = dict[System, list[float]]
MIB = 1 << 20


class Run:
    """One benchmark: a folder for everything, one JVM for the load."""

    def __init__(self, home: Path, judge: Judge, *, runs: int, ms: int, backlog: int) -> None:
        self._home = home
        self._judge = judge
        self.bench = Bench(judge)
        self._runs = runs
        self._ms = ms
        self._backlog = backlog

    @contextlib.contextmanager
    def clusters(self, kind: str, properties: dict[str, str]) -> Iterator[dict[System, Cluster]]:
        """Both systems at once, warmed up; each has its own store."""
        with contextlib.ExitStack() as stack:
            found: dict[System, Cluster] = {}
            for system in SYSTEMS:
                found[system] = system.start(self._home / f"{kind}-{system.name}", properties)
                stack.callback(found[system].stop)
            yield found

    def rows(
        self, rows: list[Row], clusters: dict[System, Cluster], kind: str
    ) -> dict[Row, dict[System, list[Measured]]]:
        """All runs of those rows, the systems in turn."""
        backlogs = {}
        for system, cluster in clusters.items():
            name = f"{kind}-{system.name}"
            self.bench.prepare(cluster, name)
            say(f"{system.title}: warming up")
            self.bench.warm(name, self._ms)
            backlogs[system] = self.bench.fill(name, self._backlog) if any(row.name == "consume" for row in rows) else 0
        measured: dict[Row, dict[System, list[Measured]]] = {row: {system: [] for system in SYSTEMS} for row in rows}
        for row in rows:
            for _ in range(self._runs):
                for system, cluster in clusters.items():
                    one = self.bench.measure(row, cluster, f"{kind}-{system.name}", self._ms, backlogs[system])
                    measured[row][system].append(one)
            say(row.title, *(f"{s.title} {report.spread([m.cpu_us for m in measured[row][s]])} us" for s in SYSTEMS))
        return measured

    def clients(self) -> str:
        """The tables of both clients, at a broker of Eruca."""
        home = self._home / "clients"
        home.mkdir()
        return client.side_by_side(
            self._judge, home, runs=self._runs, seconds=self._ms / 1000, backlog=min(self._backlog, 200_000)
        )

    def repeated(self, what: str, measure: Callable[[System, Path], float]) -> Figures:
        """A figure of each system, so many times, in turn."""
        found: Figures = {system: [] for system in SYSTEMS}
        for n in range(self._runs):
            for system in SYSTEMS:
                home = self._home / f"{what}-{system.name}-{n}".replace(" ", "-")
                home.mkdir()
                found[system].append(measure(system, home))
        say(what, *(f"{system.title} {report.spread(found[system], 2)}" for system in SYSTEMS))
        return found


def say(*parts: str) -> None:
    print("; ".join(parts), file=sys.stderr, flush=True)


def memory(clusters: dict[System, Cluster]) -> tuple[Figures, Figures]:
    """Resident memory of name server and broker, and of it the anonymous part of the broker, in MiB."""
    resident: Figures = {}
    anonymous: Figures = {}
    for system, cluster in clusters.items():
        broker, names = cluster.broker.process.memory(), cluster.name_server.process.memory()
        resident[system] = [(broker["rss"] + names["rss"]) / MIB]
        anonymous[system] = [(broker["anonymous"] + names["anonymous"]) / MIB]
    return resident, anonymous


def mqadmin(run: Run, clusters: dict[System, Cluster]) -> list[tuple[str, Figures]]:
    """Wall time of commands as processes."""

    def topic_list(system: System, home: Path) -> float:
        return system.mqadmin(home, "topicList", "-n", clusters[system].address)

    def reset(system: System, home: Path) -> float:
        target = ("-g", run.bench.consumed[f"async-{system.name}"], "-t", BACKLOG)
        return system.mqadmin(home, "resetOffsetByTime", "-n", clusters[system].address, *target, "-s", "now")

    return [
        ("mqadmin topicList", run.repeated("mqadmin topicList", topic_list)),
        ("mqadmin resetOffsetByTime", run.repeated("mqadmin resetOffsetByTime", reset)),
    ]


def everything(run: Run, rows: list[Row]) -> str:
    """All tables."""
    with run.clusters("async", {}) as clusters:
        idle, idle_anonymous = memory(clusters)
        measured = run.rows([row for row in rows if not row.sync_flush], clusters, "async")
        _, loaded_anonymous = memory(clusters)
        commands = mqadmin(run, clusters)
    with run.clusters("flush", {"flushDiskType": "SYNC_FLUSH"}) as clusters:
        measured |= run.rows([row for row in rows if row.sync_flush], clusters, "flush")
    starts = run.repeated("start to first send", lambda system, home: system.start_to_first_send(home))
    memories = [
        ("nameserver and broker, idle: resident", idle),
        ("the same, anonymous", idle_anonymous),
        ("after the load: anonymous", loaded_anonymous),
    ]
    return "\n".join(
        [
            report.load_tables(measured, LATENCY.name),
            report.table("Memory of the servers", memories, "MiB", 0),
            report.table("Start-up and tools", [("broker start to first send", starts), *commands], "seconds", 2),
            run.clients(),
        ]
    )


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--short", action="store_true")
    parse.add_argument("--runs", type=int)
    parse.add_argument("--only", type=some_of([row.name for row in ALL]))
    options = parse.parse_args()
    if missing := missing_tool():
        sys.exit(f"The benchmark cannot run: {missing}.")
    runs = options.runs or (3 if options.short else 5)
    chosen = [row for row in ALL if not options.only or row.name in options.only]
    with tempfile.TemporaryDirectory(prefix="eruca-bench-") as folder:
        home = Path(folder)
        with Judge(RELEASE, home / "judge", heap="1g", options=LONG_LIFE) as judge:
            ms, backlog = (1000, 200_000) if options.short else (3000, 1_000_000)
            run = Run(home, judge, runs=runs, ms=ms, backlog=backlog)
            if options.only:
                some: dict[Row, dict[System, list[Measured]]] = {}
                for kind, properties in (("async", {}), ("flush", {"flushDiskType": "SYNC_FLUSH"})):
                    wanted = [row for row in chosen if row.sync_flush == (kind == "flush")]
                    if wanted:
                        with run.clusters(kind, properties) as clusters:
                            some |= run.rows(wanted, clusters, kind)
                print(report.load_tables(some, LATENCY.name))
                return
            figures = report.conditions(home, runs, options.short) + "\n" + everything(run, chosen)
    print(figures)
    report.write_page(figures)


if __name__ == "__main__":
    main()
