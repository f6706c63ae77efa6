"""Java that starts quickly, for tests: flags for a short life, and an archive of the classes that Spark loads.

Owns the archive (Java's class data sharing) in `.cache/java`, made on the first use by this program, which runs Spark
as tests do. With it a JVM of Spark takes half of the CPU time until its first rows. Where Java makes none, as a runtime
without its own archive, JVMs start without it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from eruca.spark_connector import java

ROOT = Path(__file__).resolve().parents[2]
_FOLDER = ROOT / ".cache" / "java"
# Compiled quickly, not to quick code; a child of Java's (Hadoop starts `chmod` for each file) is one process, not two.
_FLAGS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djdk.lang.Process.launchMechanism=VFORK"
# A JVM with other classes than the archive's says nothing about it.
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"


def environment() -> dict[str, str]:
    """The variables with which every Java that is started, by whomever, starts quickly."""
    java.prepare()
    archive = _FOLDER / f"spark-{_version()}.jsa"
    _FOLDER.mkdir(parents=True, exist_ok=True)
    with (_FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            _make(archive)
    return {"JDK_JAVA_OPTIONS": f"{_FLAGS} {_QUIET} -XX:SharedArchiveFile={archive}"}


def _version() -> str:
    """Of Java, and of Spark's jars by their place: an archive fits no others."""
    home = os.environ.get("JAVA_HOME")
    command = Path(home) / "bin" / "java" if home else "java"
    said = subprocess.run([command, "-version"], capture_output=True, timeout=60).stderr
    return hashlib.sha256(b"%b %b" % (said, pyspark.__file__.encode())).hexdigest()[:12]


def _make(archive: Path) -> None:
    """Run this program; a runtime that makes no archive leaves an empty file, so that it is not asked again."""
    fresh = archive.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    submit = f'--driver-java-options "{_FLAGS} {_QUIET} -XX:ArchiveClassesAtExit={fresh}" pyspark-shell'
    # It is written when the JVM ends, after the program: the end of their common output is waited for.
    subprocess.run(
        [sys.executable, "-m", "tests.support.quick_java"],
        cwd=ROOT,
        env={**os.environ, "PYSPARK_SUBMIT_ARGS": submit},
        capture_output=True,
        timeout=170,
        check=True,
    )
    fresh.touch()
    fresh.replace(archive)


def _load_classes() -> None:
    """Much of what tests do with Spark, once: a batch, a function in Python, a stream."""
    from pyspark.sql.functions import udf

    from tests.support.spark import spark_session

    with tempfile.TemporaryDirectory() as folder, spark_session(Path(folder)) as spark:
        spark.range(10).select(udf(lambda number: number + 1, "long")("id")).collect()
        stream = spark.readStream.format("rate").load().writeStream.format("noop")
        stream = stream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
        stream.start().awaitTermination(100)


if __name__ == "__main__":
    _load_classes()
