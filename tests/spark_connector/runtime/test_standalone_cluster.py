"""Two Spark workers in a standalone cluster: the tasks run in processes that share nothing with the driver."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from eruca.spark_connector import java
from tests.support.ports import free_port
from tests.support.processes import Process
from tests.support.spark import QUICK_START, ROOT, Topic, assert_rows
from tests.support.spark_stream import IMPORTS, batches, rows_in

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The address of a cluster with two workers of one core each."""
    java.prepare()
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    env = {"SPARK_DAEMON_JAVA_OPTS": QUICK_START, "SPARK_DAEMON_MEMORY": "256m", "SPARK_NO_DAEMONIZE": "1"}
    deploy = [str(SPARK_CLASS), "org.apache.spark.deploy"]
    leader = [deploy[0], f"{deploy[1]}.master.Master", "--host", "127.0.0.1", "--port", str(port)]
    worker = [deploy[0], f"{deploy[1]}.worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "600m"]
    with Process([*leader, "--webui-port", "0"], tmp_path / "master.out", env=env, cwd=tmp_path) as leading:
        leading.wait_for_port(port, 180)
        with (
            Process(
                [*worker, "--webui-port", "0", "--work-dir", str(tmp_path / "one"), address],
                tmp_path / "one.out",
                env=env,
                cwd=tmp_path,
            ) as one,
            Process(
                [*worker, "--webui-port", "0", "--work-dir", str(tmp_path / "two"), address],
                tmp_path / "two.out",
                env=env,
                cwd=tmp_path,
            ) as two,
        ):
            for each in (one, two):
                each.wait_for_line("Successfully registered with master", 180)
            yield address


@pytest.mark.timeout(600)
def test_two_workers_share_the_queues(master: str, topic: Topic, tmp_path: Path) -> None:
    topic.fill(90)
    command = [sys.executable, "-m", "tests.support.spark_stream", master, topic.name_server, topic.name, str(tmp_path)]

    env = {**os.environ, "PYTHONPATH": IMPORTS}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=400)

    assert done.returncode == 0, done.stderr[-3000:]
    places = {row["place"] for rows in batches(tmp_path).values() for row in rows}
    assert {Path(place).parents[1].name for place in places} == {"one", "two"}
    assert_rows(rows_in(tmp_path), topic.rows)
