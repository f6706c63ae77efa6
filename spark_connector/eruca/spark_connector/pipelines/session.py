"""The Spark session of a pipeline: on this machine, or on a cluster's workers.

Owns the choice of Java and Python, how Java is started, and what workers are sent. On a cluster the workers get
Eruca's own code with the job, so they need only its dependencies (those of `eruca-spark[spark]`); their Python is
PYSPARK_PYTHON, or ``python``.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from eruca.spark_connector import java, register
from eruca.spark_connector.causes import cause_of
from eruca.spark_connector.errors import BadOption
from eruca.spark_connector.pipelines.pyfiles import write_pyfiles
from eruca.spark_connector.runtime import clients
from eruca.spark_connector.source import let_import

LOCAL = "local[2]"
NAME = "eruca-pipeline"


@contextmanager
def open_session(
    *,
    master: str = LOCAL,
    python: str | None = None,
    settings: Mapping[str, str] | None = None,
    quiet: bool = True,
    launched: Callable[[], None] = lambda: None,
) -> Iterator[SparkSession]:
    """A session that knows ``rocketmq``, stopped at the end, and the clients of this process with it.

    Args:
        master: ``local[n]`` or the address of a cluster, such as ``spark://host:7077``.
        python: the Python of Spark's tasks; PYSPARK_PYTHON by default, else this one.
        settings: more of Spark's own, such as ``spark.executor.memory``.
        quiet: leave out what Spark logs, also of errors; their cause is in the exception.
        launched: is called when Spark's Java process is there, and not the session yet.

    Raises BadOption, NoJava.
    """
    java.prepare()
    chosen = python or os.environ.get("PYSPARK_PYTHON") or sys.executable
    os.environ["PYSPARK_PYTHON"] = chosen
    local = master.startswith("local")
    plain = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", **(_HERE if local else {})}
    given = {**plain, "spark.sql.session.timeZone": "UTC", **(settings or {})}
    builder = SparkSession.builder.master(master).appName(NAME)
    for name, value in given.items():
        builder = builder.config(name, value)
    try:
        with _silenced(given) if quiet else nullcontext(given) as started:
            _start_java(started)
            launched()
            session = builder.getOrCreate()
    except (PySparkException, Py4JJavaError, RuntimeError) as error:
        cause = cause_of(error)
        if _NO_MASTER in cause:
            cause = "it did not answer. Look whether it runs there."
        raise BadOption(f"Spark does not start with the master {master}: {cause}") from error
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
        clients.close_this_process()


@contextmanager
def _silenced(settings: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """The settings, with which Java logs nothing from its first line on: log4j takes its configuration as it starts."""
    with tempfile.TemporaryDirectory(prefix="eruca-log-") as folder:
        file = Path(folder) / "log4j2.properties"
        file.write_text(_SILENCE)
        options = f"{settings.get(_JAVA_OPTIONS, '')} -Dlog4j2.configurationFile={file.as_uri()}"
        with java.without_vectors():
            yield {**settings, _JAVA_OPTIONS: options.strip()}


def _start_java(settings: Mapping[str, str]) -> None:
    """Start Spark's Java process, where none is there, in a process group of its own.

    A signal to the group of this process, such as SIGTERM from a shell's ``kill %1``, is for this process alone: it
    says what ends, and in which order. Java ends when this process does, however that ends.
    """
    if SparkContext._gateway is None:
        conf = SparkConf().setAll(list(settings.items()))
        gateway = launch_gateway(conf, {"process_group": 0})  # type: ignore[no-untyped-call]
        SparkContext._ensure_initialized(gateway=gateway, conf=conf)


_NO_MASTER = "stopped SparkContext"
"""What Spark says when it has asked a cluster's master for a minute, and then fails with what it has given up."""
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_SILENCE = """
appender.nowhere.type = Null
appender.nowhere.name = nowhere
rootLogger.level = off
rootLogger.appenderRef.nowhere.ref = nowhere
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = off
"""
"""Without an appender and a level of its gateway, Spark takes its own, and says so."""
_HERE = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
}
