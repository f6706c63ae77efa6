"""Light commands of mqadmin as processes, Apache's and Eruca's in turn: CPU and wall time of each.

    python -m tests.bench.mqadmin [runs]

Each asks a cluster of its own side: one broker, a topic, a group that is offline. Apache's has no help and no
completion. Eruca's modules are compiled, as an installation has them. Cells are minimum / median / maximum, in ms.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from subprocess import DEVNULL, run
from typing import NamedTuple

from tests.bench.command_line import numbers
from tests.bench.report import spread
from tests.bench.rows import Cluster
from tests.bench.systems import SYSTEMS, System
from tests.support.java import missing_tool

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
    eruca = next(each for each in SYSTEMS if each.name == "eruca")
    for line in (
        "updateTopic -c JudgeCluster -t T -r 8 -w 8",
        "updateTopic -c JudgeCluster -t %RETRY%g -r 1 -w 1",
        "sendMessage -t T -p text -b broker-a -i 0",
        "resetOffset -g g -t T --to first --new-group",
    ):
        eruca.mqadmin(home, *line.split(), "-n", cluster.address)


def rows(clusters: Mapping[System, Cluster], home: Path, runs: int) -> None:
    """Measure and print each command."""
    for line in (*OF_BOTH, *OF_ERUCA):
        found: dict[System, list[Took]] = {
            system: [] for system in SYSTEMS if line in OF_BOTH or system.name == "eruca"
        }
        for again in range(-1, runs):
            for system, took in found.items():
                where = ("-n", clusters[system].address) if line in OF_BOTH else ()
                each = measured(system.command(home, *line.split(), *where), home)
                if again >= 0:
                    took.append(each)
        cells = []
        for system, took in found.items():
            cpu, wall = spread([each.cpu for each in took], 0), spread([each.wall for each in took], 0)
            cells.append(f"{system.title}: CPU {cpu}, wall {wall}")
        print(f"{line:<40} {'; '.join(cells)}", flush=True)


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
            rows(clusters, home, runs)
        finally:
            for cluster in clusters.values():
                cluster.discard()


if __name__ == "__main__":
    main()
