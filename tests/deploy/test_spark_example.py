"""The program of the Spark image: what it prints of a topic, and that it goes on where it ended."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from eruca.client import Message, sync
from eruca.spark_connector.java import java_home
from tests.house.tree import ROOT
from tests.support.eruca import ErucaCluster

pytestmark = [pytest.mark.processes, pytest.mark.slow]
EXAMPLE = ROOT / "deploy" / "docker" / "spark_example.py"


def counted(cluster: ErucaCluster, out: Path) -> dict[str, int]:
    """What the program prints: the messages of each tag."""
    home = java_home()
    environment = os.environ | ({"JAVA_HOME": home} if home else {})
    command = [sys.executable, str(EXAMPLE), cluster.address, "orders", str(out)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [line.strip("|").split("|") for line in done.stdout.splitlines() if line.startswith("|")]
    return {tag.strip(): int(count) for tag, count in rows[1:]}


@pytest.mark.timeout(400)
def test_it_reads_a_topic_and_goes_on(tmp_path: Path) -> None:
    with ErucaCluster(tmp_path) as cluster, sync.Producer(nameserver=cluster.address) as producer:
        for number in range(10):
            producer.send(Message("orders", f"order {number}".encode(), tags="new" if number % 2 else "paid"))
        assert counted(cluster, tmp_path / "out") == {"new": 5, "paid": 5}
        producer.send(Message("orders", b"one more", tags="new"))
        assert counted(cluster, tmp_path / "out") == {"new": 6, "paid": 5}
