"""The pipelines on a standalone cluster of two workers: by the command, and by spark-submit with the zip of Eruca."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from eruca.spark_connector.pipelines.pyfiles import write_pyfiles
from tests.spark_connector.pipelines.job import JOB
from tests.support.programme import LONG, WHY
from tests.support.spark import Topic

pytestmark = [pytest.mark.skipif(not LONG, reason=WHY), pytest.mark.timeout(900)]
SETTINGS = ("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.executor.memory=512m")


def run(folder: Path, *command: str, **environment: str) -> tuple[int, str, str]:
    """The exit code of a command, and what it said."""
    ours = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYSPARK_PYTHON")}
    done = subprocess.run(
        command, env={**ours, **environment}, cwd=folder, capture_output=True, text=True, timeout=400, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_the_commands_run_on_workers_without_eruca(
    master: str,
    bare_python: Path,
    topic: Topic,
    tmp_path: Path,
) -> None:
    topic.fill(40)
    lake = str(tmp_path / "lake")

    def pipeline(name: str, *options: str, python: str = str(bare_python)) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "eruca.standalone.cli", "pipeline", name, "-n", topic.name_server]
        command += ["--master", master, "--python", python, *SETTINGS, "--topic", topic.name, *options]
        return run(tmp_path, *command)

    code, told, error = pipeline("archive", "--to", lake)
    assert (code, told[:31]) == (0, "40 messages of 1 topic were add"), error
    code, told, error = pipeline("replay", "--archive", lake, "--to", f"{topic.name}_2"[-100:])
    assert code == 0 and re.search("^40 messages of .* were sent to ", told, re.M), error
    rolling = ("--window", "10ms", "--resume", "--grace", "100ms", "--to", str(tmp_path / "rolled"))
    assert [pipeline("rollup", *rolling)[1].splitlines()[-1][:10] for _ in range(2)][1] == "0 messages"
    code, told, error = pipeline("audit", "--group", "readers", "--max-behind", "40")
    assert (code, told.splitlines()[-1]) == (0, "Every group has consumed what it should."), error
    code, _, error = pipeline("archive", "--to", lake, python=str(tmp_path / "none"))
    assert code == 1 and "set PYSPARK_PYTHON to a Python" in error.splitlines()[-1]


def test_spark_submit_sends_the_zip_to_the_workers(
    master: str,
    bare_python: Path,
    topic: Topic,
    tmp_path: Path,
) -> None:
    topic.fill(12)
    job, home = tmp_path / "job.py", Path(pyspark.__file__).parent
    job.write_text(JOB)
    files = str(write_pyfiles(tmp_path / "eruca.zip"))
    submit = [str(home / "bin" / "spark-submit"), "--master", master, *SETTINGS, "--py-files", files, str(job)]

    code, told, error = run(
        tmp_path,
        *submit,
        topic.name_server,
        topic.name,
        str(tmp_path / "lake"),
        PYSPARK_PYTHON=str(bare_python),
        SPARK_HOME=str(home),
    )

    assert code == 0 and "archived 12 read 12" in told, error[-3000:]
