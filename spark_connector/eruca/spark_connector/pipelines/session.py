"""The Spark session of a pipeline: on this machine, or on a cluster's workers.

Owns the choice of Java and Python and what workers are sent. On a cluster the workers get Eruca's own code with the
job, so they need only its dependencies (`eruca[spark]` without eruca); their Python is PYSPARK_PYTHON, or ``python``.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from eruca.spark_connector import java, register
from eruca.spark_connector.errors import BadOption
from eruca.spark_connector.pipelines.pyfiles import write_pyfiles
from eruca.spark_connector.source import let_import

LOCAL = "local[2]"
NAME = "eruca-pipeline"


@contextmanager
def open_session(
    *, master: str = LOCAL, python: str | None = None, settings: Mapping[str, str] | None = None, quiet: bool = True
) -> Iterator[SparkSession]:
    """A session that knows ``rocketmq``, stopped at the end.

    Args:
        master: ``local[n]`` or the address of a cluster, such as ``spark://host:7077``.
        python: the Python of Spark's tasks; PYSPARK_PYTHON by default, else this one.
        settings: more of Spark's own, such as ``spark.executor.memory``.
        quiet: leave out what Spark logs, also of errors; their cause is in the exception.

    Raises BadOption, NoJava.
    """
    java.prepare()
    chosen = python or os.environ.get("PYSPARK_PYTHON") or sys.executable
    os.environ["PYSPARK_PYTHON"] = chosen
    local = master.startswith("local")
    builder = SparkSession.builder.master(master).appName(NAME)
    plain = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", **(_HERE if local else {})}
    for name, value in {**plain, "spark.sql.session.timeZone": "UTC", **(settings or {})}.items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except (PySparkException, RuntimeError) as error:
        first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise BadOption(f"Spark does not start with the master {master}: {first}") from error
    try:
        session.sparkContext.setLogLevel("OFF" if quiet else "WARN")
        with tempfile.TemporaryDirectory(prefix="eruca-pyfiles-") as folder:
            if not local:
                archive = str(write_pyfiles(Path(folder) / "eruca.zip"))
                session.sparkContext.addPyFile(archive)
                let_import(session.sparkContext, archive)
            register(session)
            yield session
    finally:
        session.stop()


_HERE = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
}
