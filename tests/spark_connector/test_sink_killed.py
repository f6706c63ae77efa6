"""All of Spark is killed while it commits a transaction, and started again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.eruca import ErucaCluster
from tests.support.spark import ROOT, SOURCE_ROOTS, Topic
from tests.support.spark_writes import visible

ROUNDS = 20 if os.environ.get("ERUCA_TORTURE") else 1


def copy(topic: Topic, target: Topic, markers: Topic, folder: Path, dies_at: int) -> int:
    """Run the program; its exit code."""
    names = (topic.name_server, topic.name, target.name, markers.name, str(folder), str(dies_at))
    with (folder / "log").open("ab") as log:
        return subprocess.run(
            [sys.executable, "-m", "tests.support.spark_copy", *names],
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(map(str, (ROOT, *(ROOT / root for root in SOURCE_ROOTS)))),
            },
            stdout=log,
            stderr=log,
            start_new_session=True,
            timeout=400,
        ).returncode


@pytest.mark.timeout(1000 * ROUNDS)
def test_spark_killed_in_a_commit_loses_nothing_and_repeats_nothing(
    cluster: ErucaCluster, topic: Topic, tmp_path: Path
) -> None:
    target, markers = Topic(cluster, f"{topic.name}_to"[-100:], 3), Topic(cluster, f"{topic.name}_m"[-100:], 1)
    chance = random.Random(int(os.environ.get("ERUCA_SEED", "1")))

    for _ in range(ROUNDS):
        topic.fill(40)
        before = len(visible(target.name_server, target.queues))
        assert copy(topic, target, markers, tmp_path, chance.randint(1, 15)) == -signal.SIGKILL
        assert before < len(visible(target.name_server, target.queues)) < before + 20
    assert copy(topic, target, markers, tmp_path, 0) == 0, (tmp_path / "log").read_text()[-3000:]

    found = Counter(body for body, _ in visible(target.name_server, target.queues))
    assert found == {row["body"].decode(): 1 for row in topic.rows.values()}
    target.close()
    markers.close()
