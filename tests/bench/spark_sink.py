"""How fast Spark writes: rows of 128 bytes through the sink, against Eruca's broker or Apache's.

    python -m tests.bench.spark_sink [--apache RELEASE] [--rows N] [--runs N]

Each line is the best and the median of the runs: thousand rows a second from ``df.write`` to its return, and the CPU
microseconds a row of the broker's process. ``noop`` is what Spark needs to make the rows and throw them away.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tests.support.apache import ApacheCluster
from tests.support.eruca import ErucaCluster
from tests.support.spark import Topic, spark_session

KINDS: dict[str, dict[str, Any]] = {
    "at least once": {},
    "at least once, idempotent=false": {"idempotent": False},
    "the same, by shardingKey": {"idempotent": False, "sharded": True},
    "transactional": {"delivery": "transactional", "markerTopic": "Markers"},
}


def frame(spark: SparkSession, rows: int, *, sharded: bool) -> DataFrame:
    """Rows of some 128 bytes in two partitions."""
    body = "CAST(concat(id, repeat('x', 122)) AS BINARY) AS body"
    key = ["id % 1000 AS shardingKey"] if sharded else []
    return spark.range(rows, numPartitions=2).selectExpr(body, *key)


def write(spark: SparkSession, name_server: str, rows: int, options: dict[str, Any]) -> float:
    """Seconds for one write."""
    given = {"topic": "Bench", **options}
    made = frame(spark, rows, sharded=bool(given.pop("sharded", False)))
    if "delivery" in given:
        given["writeId"] = uuid.uuid4().hex
    writer = made.write.format("rocketmq").option("nameServer", name_server).options(**given).mode("append")
    start = time.perf_counter()
    writer.save()
    return time.perf_counter() - start


def main() -> None:
    """Print the figures."""
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--apache", metavar="RELEASE")
    parse.add_argument("--rows", type=int, default=1_000_000)
    parse.add_argument("--runs", type=int, default=3)
    asked = parse.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="eruca-bench-") as home,
        spark_session(Path(home) / "spark", java_options="") as spark,
    ):
        folder = Path(home) / "cluster"
        folder.mkdir()
        cluster = ApacheCluster(asked.apache, folder) if asked.apache else ErucaCluster(folder)
        for topic, queues in (("Bench", 8), ("Markers", 1)):
            Topic(cluster, topic, queues).close()
        for _ in range(asked.runs):
            start = time.perf_counter()
            frame(spark, asked.rows, sharded=False).write.format("noop").mode("append").save()
            print(f"noop: {asked.rows / (time.perf_counter() - start) / 1000:,.0f} krow/s", flush=True)
        for kind, options in KINDS.items():
            rows = asked.rows // 20 if "delivery" in options else asked.rows
            write(spark, cluster.address, rows // 20, options)
            before = cluster.broker.process.cpu_seconds()
            rates = sorted(rows / write(spark, cluster.address, rows, options) / 1000 for _ in range(asked.runs))
            cpu = (cluster.broker.process.cpu_seconds() - before) / rows / asked.runs * 1e6
            figures = f"best {rates[-1]:,.0f}, median {statistics.median(rates):,.0f} krow/s; broker {cpu:.1f} us/row"
            print(f"{cluster.name}, {kind}: {figures}", flush=True)
        cluster.stop()


if __name__ == "__main__":
    main()
