"""What Spark's Python processes do first: they import PySpark as it is installed, not from Spark's zip of sources."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

import eruca.spark_connector.startup.sitecustomize as startup

FOLDER = Path(startup.__file__).parent
LIB = Path(pyspark.__file__).parent / "python" / "lib"
ZIPS = sorted(map(str, LIB.glob("*.zip")))


def run(program: str, *places: str | Path) -> str:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_pyspark_is_imported_from_where_it_is_installed() -> None:
    program = "import py4j, pyspark; print(pyspark.__file__, py4j.__file__)"

    assert ".zip" in run(program, *ZIPS)
    assert ".zip" not in run(program, *ZIPS, FOLDER)


def test_the_session_lets_its_workers_do_so(spark: SparkSession) -> None:
    place = udf(lambda _: __import__("pyspark").__file__, "string")

    assert [row[0] for row in spark.range(1).select(place("id")).collect()] == [pyspark.__file__]


def test_what_the_user_has_of_that_name_is_run_too(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('mine')")

    assert run("print('program')", FOLDER, tmp_path).split() == ["mine", "program"]


@pytest.mark.parametrize("file", ["spark/python/lib/pyspark.zip", "pyspark/python/lib/other.zip", "pyspark.zip"])
def test_other_zips_stay(file: str, tmp_path: Path) -> None:
    for package in ("pyspark", "spark"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    path = [str(tmp_path / file), str(tmp_path)]

    assert startup.without_sources(path) == path


def test_a_zip_stays_where_its_package_is_not_on_the_path(tmp_path: Path) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").touch()
    zip_of_sources = str(tmp_path / "pyspark" / "python" / "lib" / "pyspark.zip")

    assert startup.without_sources([zip_of_sources]) == [zip_of_sources]
    assert startup.without_sources([zip_of_sources, str(tmp_path)]) == [str(tmp_path)]
