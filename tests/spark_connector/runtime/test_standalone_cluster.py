"""Two Spark workers in a standalone cluster: the tasks run in processes that share nothing with the driver.

Their Python has the packages and no Eruca, which is sent along as a zip. The pipelines there are a long test.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.spark import ROOT, Topic, assert_rows
from tests.support.spark_stream import IMPORTS, batches, rows_in

pytestmark = pytest.mark.slow


@pytest.mark.timeout(600)
def test_two_workers_share_the_queues(master: str, bare_python: Path, topic: Topic, tmp_path: Path) -> None:
    topic.fill(90)
    command = [sys.executable, "-m", "tests.support.spark_stream", master, topic.name_server, topic.name, str(tmp_path)]
    command.append(str(bare_python))

    env = {**os.environ, "PYTHONPATH": IMPORTS}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=400)

    assert done.returncode == 0, done.stderr[-3000:]
    places = {row["place"] for rows in batches(tmp_path).values() for row in rows}
    assert {Path(place).parents[1].name for place in places} == {"one", "two"}
    assert_rows(rows_in(tmp_path), topic.rows)
