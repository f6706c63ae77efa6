"""Sessions of Spark Connect: the format is registered with the server, which runs the queries."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eruca.spark_connector import RocketMQDataSource, register
from tests.support.spark import ROOT, Topic


def test_only_the_name_travels_to_the_server() -> None:
    registered: list[object] = []
    kind = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})
    session: Any = kind()
    session.dataSource = SimpleNamespace(register=registered.append)

    register(session)

    assert registered == [RocketMQDataSource]


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("grpc") is None or importlib.util.find_spec("grpc_status") is None,
    reason="Spark Connect needs grpcio: pip install 'pyspark[connect]'",
)
def test_a_batch_a_stream_and_a_view(quick_java: None, topic: Topic, tmp_path: Path) -> None:
    topic.fill(10)
    command = [sys.executable, "-m", "tests.support.spark_connect", topic.name_server, topic.name, str(tmp_path)]
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable}

    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False)

    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == [
        "batch 10",
        "stream 20",
        "view 20",
        "Spark Connect shows no plan of a source: its line is in the log of the server, at INFO.",
    ]
