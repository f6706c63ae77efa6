"""Light commands of mqadmin as processes, Apache's and Eruca's in turn: CPU and wall time of each.

    python -m tests.bench.mqadmin [runs]

Each asks a cluster of its own side: one broker, a topic, a group that is offline. Help and completion ask none, and are
Eruca's alone. Eruca's modules are compiled, as an installation has them. Prints its tables as Markdown and writes them
to docs/benchmarks.md.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import DEVNULL, run
from typing import NamedTuple

from tests.bench import report
from tests.bench.command_line import numbers
from tests.bench.report import spread
from tests.bench.rows import Cluster
from tests.bench.systems import SYSTEMS, System
from tests.support.java import missing_tool

ERUCA = next(each for each in SYSTEMS if each.name == "eruca")
RESET = "resetOffsetByTime -g g -t T -s now"
OF_BOTH = ("topicList", "clusterList", "topicRoute -t T", "topicStatus -t T", "consumerProgress -g g", RESET)
OF_ERUCA = ("help", "completion bash", "__complete zsh res")


class Took(NamedTuple):
    """Milliseconds of one run."""

    cpu: float
    wall: float


def measured(command: list[str], home: Path) -> Took:
    """One run of a command."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    run(command, cwd=home, stdout=DEVNULL, stderr=DEVNULL, check=True)
    wall, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Took(cpu * 1000, wall * 1000)


def set_up(cluster: Cluster, home: Path) -> None:
    """The topic and the group; Eruca's mqadmin makes them on either side."""
    for line in (
        "updateTopic -c JudgeCluster -t T -r 8 -w 8",
        "updateTopic -c JudgeCluster -t %RETRY%g -r 1 -w 1",
        "sendMessage -t T -p text -b broker-a -i 0",
        "resetOffset -g g -t T --to first --new-group",
    ):
        ERUCA.mqadmin(home, *line.split(), "-n", cluster.address)


def in_turn(commands: Mapping[System, list[str]], home: Path, runs: int) -> dict[System, list[Took]]:
    """All runs of one command, the systems in turn; a first run of each does not count."""
    found: dict[System, list[Took]] = {system: [] for system in commands}
    for again in range(-1, runs):
        for system, command in commands.items():
            each = measured(command, home)
            if again >= 0:
                found[system].append(each)
    return found


def side_by_side(title: str, rows: Mapping[str, Mapping[System, list[Took]]]) -> str:
    """CPU and time of commands of both systems, as Markdown."""

    def of(what: str, choose: Callable[[Took], float]) -> str:
        figures = [
            (name, {system: [choose(each) / 1000 for each in took] for system, took in found.items()})
            for name, found in rows.items()
        ]
        return report.table(f"{title}: {what}", figures, "seconds", 2)

    return "\n".join([of("CPU", lambda took: took.cpu), of("wall time", lambda took: took.wall)])


def of_eruca(title: str, rows: Mapping[str, list[Took]]) -> str:
    """CPU and time of what only Eruca has, as Markdown."""
    lines = [f"### {title}", "", "| ms: min / median / max | CPU | wall time |", "|---|---|---|"]
    for name, took in rows.items():
        cpu, wall = spread([each.cpu for each in took], 0), spread([each.wall for each in took], 0)
        lines.append(f"| {name} | {cpu} | {wall} |")
    return "\n".join([*lines, ""])


def tables(clusters: Mapping[System, Cluster], home: Path, runs: int) -> str:
    """Measure each command."""
    both = {
        line: in_turn(
            {system: system.command(home, *line.split(), "-n", clusters[system].address) for system in SYSTEMS},
            home,
            runs,
        )
        for line in OF_BOTH
    }
    alone = {line: in_turn({ERUCA: ERUCA.command(home, *line.split())}, home, runs)[ERUCA] for line in OF_ERUCA}
    return "\n".join(
        [
            f"Measured on {time.strftime('%Y-%m-%d %H:%M')}: {runs} runs per row, the systems in turn.",
            "",
            side_by_side("mqadmin", both),
            of_eruca("mqadmin: help and completion", alone),
        ]
    )


def main() -> None:
    """Start both clusters and measure."""
    (runs,) = numbers(__doc__, runs=5)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # what the set-up and a first run compile, the others find
    if missing := missing_tool():
        sys.exit(f"The benchmark cannot run: {missing}.")
    with tempfile.TemporaryDirectory(prefix="eruca-bench-") as folder:
        home = Path(folder)
        clusters: dict[System, Cluster] = {}
        try:
            for system in SYSTEMS:
                (home / system.name).mkdir()
                clusters[system] = system.start(home / system.name)
                set_up(clusters[system], home)
            figures = tables(clusters, home, runs)
        finally:
            for cluster in clusters.values():
                cluster.discard()
    print(figures)
    report.write_page(figures, "mqadmin")


if __name__ == "__main__":
    main()
