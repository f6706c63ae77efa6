"""The Spark part of the demonstration: reads an interval of time as a batch and counts rows by file.

Runs in its own process (``python -m eruca.standalone.demo.replay``), as it starts a JVM. The counts come back as one
line of JSON.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections import Counter

from eruca.standalone.demo.processes import outcome


def spark_missing() -> str | None:
    """Why the Spark part cannot run on this machine; None when it can."""
    for package in ("eruca.spark_connector", "pyspark", "pyarrow"):
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed; pip install 'eruca-spark[spark]' brings it"
    from eruca.spark_connector.java import NoJava, java_home

    try:
        java_home()
    except NoJava as reason:
        return str(reason)
    return None


class SparkFailed(Exception):
    """The Spark process failed; the text is its last line of error output."""


async def count_with_spark(nameserver: str, topic: str, start: int, end: int) -> Counter[str]:
    """Rows by file, of messages stored in [start, end) (ms since 1970). Raises SparkFailed."""
    code, output, errors = await outcome("-m", "eruca.standalone.demo.replay", nameserver, topic, str(start), str(end))
    if code:
        said = [line for line in errors.splitlines() if line.strip() and "SQLSTATE" not in line.split()[0]]
        raise SparkFailed(said[-1].strip() if said else "the Spark process said nothing")
    return Counter(json.loads(output.splitlines()[-1]))


def count(nameserver: str, topic: str, start: int, end: int) -> dict[str, int]:
    """Start Spark on two cores of this machine, read the interval, and count rows by key."""
    from eruca.spark_connector.java import prepare

    prepare()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    from eruca.spark_connector import register

    spark = (
        SparkSession.builder.master("local[2]")
        .appName("eruca-demo")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    try:
        register(spark)
        rows = (
            spark.read.format("rocketmq")
            .option("nameServer", nameserver)
            .option("subscribe", topic)
            .option("startingTimestamp", start)
            .option("endingTimestamp", end)
            .schema("keys string")
            .load()
            .groupBy("keys")
            .count()
            .collect()
        )
        return {row["keys"]: row["count"] for row in rows}
    finally:
        spark.stop()


if __name__ == "__main__":
    print(json.dumps(count(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
