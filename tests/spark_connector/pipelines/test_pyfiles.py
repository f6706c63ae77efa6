"""The zip for ``spark-submit --py-files``: a job of it runs where nothing of Eruca is installed."""

from __future__ import annotations

import os
import subprocess
import zipfile
from pathlib import Path

import pyspark
import pytest
from click.testing import CliRunner

from eruca.spark_connector import java
from eruca.spark_connector.pipelines.pyfiles import PACKAGES, write_pyfiles
from eruca.standalone.cli import main
from tests.spark_connector.pipelines.job import JOB
from tests.support.spark import Topic


@pytest.mark.slow
def test_spark_submit_runs_a_job_where_eruca_is_not_installed(
    quick_java: None, topic: Topic, bare_python: Path, tmp_path: Path
) -> None:
    topic.fill(12)
    files = tmp_path / "eruca.zip"
    made = CliRunner().invoke(main, ["pipeline", "pyfiles", "--to", str(files)])
    assert made.exit_code == 0, made.output
    assert f"--py-files {files}" in made.output
    job = tmp_path / "job.py"
    job.write_text(JOB)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"PYSPARK_PYTHON": str(bare_python), "SPARK_HOME": str(Path(pyspark.__file__).parent)}
    java.prepare(environment)
    alone = subprocess.run([bare_python, "-c", "import eruca.spark_connector"], env=environment, capture_output=True)
    assert b"No module named 'eruca" in alone.stderr

    done = subprocess.run(
        [
            *(f"{environment['SPARK_HOME']}/bin/spark-submit", "--master", "local[2]"),
            *("--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1"),
            *("--conf", "spark.driver.bindAddress=127.0.0.1", "--py-files", str(files)),
            *(str(job), topic.name_server, topic.name, str(tmp_path / "lake")),
        ],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=170,
    )

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "archived 12 read 12" in done.stdout
    assert "eruca.zip" in done.stdout.partition("eruca is")[2]


def test_the_zip_holds_the_modules_that_workers_need_and_nothing_native(tmp_path: Path) -> None:
    first, second = write_pyfiles(tmp_path / "a.zip"), write_pyfiles(tmp_path / "b.zip")

    assert first.read_bytes() == second.read_bytes()
    folder, *names = zipfile.ZipFile(first).namelist()
    assert folder == "eruca/"
    assert {"/".join(name.split("/")[:2]) for name in names} == {each.replace(".", "/") for each in PACKAGES}
    assert all(name.endswith(".py") for name in names)
