"""The last line of `eruca pipeline …`: the cause, however deep Spark has wrapped it, and what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

import eruca.spark_connector as connector
from eruca.spark_connector import BadOption, cause_of
from eruca.spark_connector.errors import NotInstalled
from eruca.spark_connector.java import NoJava
from eruca.spark_connector.runtime.installed import check_python, missing
from eruca.standalone.pipeline.run import end

pytestmark = pytest.mark.processes

WRAPPED = """[STREAM_FAILED] Query [id = 4, runId = e] terminated with exception: Failed: Traceback
Traceback (most recent call last):
  File "worker.py", line 3, in main
{line}
SQLSTATE: 38000
\tat org.apache.spark.sql.errors.QueryCompilationErrors$.failed(QueryCompilationErrors.scala:1)
"""


def test_the_end_of_the_innermost_traceback_is_the_cause() -> None:
    for line, told in (
        ("eruca.spark_connector.errors.SourceError: The topic a is not there.", "The topic a is not there."),
        ("ModuleNotFoundError: No module named 'msgspec'", "ModuleNotFoundError: No module named 'msgspec'"),
        (
            "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has 3.12",
            "PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has 3.12",
        ),
    ):
        assert cause_of(RuntimeError(WRAPPED.format(line=line))) == told
    assert cause_of(RuntimeError("\n only this \n")) == "only this"


def test_an_old_pyspark_and_a_missing_one_are_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.1.1")
    with pytest.raises(ImportError, match=r"PySpark 4.1.1 is too old, 4.2 or newer is needed: run `pip install"):
        connector.register  # noqa: B018
    monkeypatch.setattr(pyspark, "__version__", "4.10.0.dev1")
    assert connector.register is not None

    def work() -> None:
        monkeypatch.setitem(sys.modules, "pyspark", None)
        connector.RocketMQDataSource  # noqa: B018

    assert end(work) == 1
    assert capsys.readouterr().err == "eruca pipeline: pyspark is missing: run `pip install 'eruca-spark[spark]'`.\n"
    other = ModuleNotFoundError("No module named 'nonsense'", name="nonsense")
    assert missing(other) is other and isinstance(missing(ModuleNotFoundError(name="pyarrow.lib")), NotInstalled)


def test_no_java_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        raise NoJava("Spark needs Java 17 or newer and found none: install it.")

    assert end(work) == 1
    assert capsys.readouterr().err == "eruca pipeline: Spark needs Java 17 or newer and found none: install it.\n"


def python(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_a_python_that_cannot_run_tasks_is_told_before_a_query(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True, timeout=60)
    ours = "{}.{}".format(*sys.version_info[:2])
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for path, sentence in (
        (python(tmp_path / "old", "echo 3.8 pyarrow"), rf"run in Python 3.8 \(.*/old\) and this program in {ours}"),
        (
            str(bare / "bin" / "python"),
            "has no pyarrow, msgspec, eruca.spark_connector: set PYSPARK_",
        ),
        (str(tmp_path / "none"), "does not start .*: set PYSPARK_PYTHON to a Python"),
        (python(tmp_path / "broken", "exit 3"), "does not start"),
    ):
        with pytest.raises(BadOption, match=sentence):
            check_python(path, environment=environment, with_eruca=True)
    check_python(sys.executable, environment=environment, with_eruca=True)
