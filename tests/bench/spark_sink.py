"""How fast Spark writes: rows of 128 bytes through the sink, against Eruca's broker or Apache's.

    python -m tests.bench.spark_sink [--apache RELEASE] [--rows N] [--runs N] [--only WORD] [NAME=VALUE ...]

NAME=VALUE are options of the sink for all writes. Prints a Markdown table, a line for each kind of write (those with
WORD in their name): thousand rows a second from ``df.write`` to its return, the best and the median of the runs after
one that does not count, and CPU microseconds a row of Spark (JVM and Python, made rows included) and of the broker's
process. ``noop`` is what Spark needs to make the rows and throw them away.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from tests.support.apache import ApacheCluster
from tests.support.eruca import ErucaCluster
from tests.support.java import LONG_LIFE
from tests.support.processes import TICKS_PER_SECOND
from tests.support.spark import Cluster, Topic, spark_session

KINDS: dict[str, dict[str, Any]] = {
    "at least once": {},
    "at least once, idempotent=false": {"idempotent": False},
    "idempotent=false, by shardingKey": {"idempotent": False, "sharded": True},
    "transactional": {"delivery": "transactional", "markerTopic": "Markers"},
}
TRANSACTIONS_PART = 20
"""Transactions write so much fewer rows."""
HEAD = "| write | best, krow/s | median | Spark's CPU, us/row | broker's CPU, us/row |\n|---|---|---|---|---|"


class Figures(NamedTuple):
    """What the runs of one kind of write came to."""

    kind: str
    rates: list[float]
    """Thousand rows a second, run by run."""
    spark_cpu: float
    broker_cpu: float

    def line(self) -> str:
        """A line of the table."""
        cpu = f"{self.spark_cpu:.1f} | {self.broker_cpu:.1f}"
        return f"| {self.kind} | {max(self.rates):,.0f} | {statistics.median(self.rates):,.0f} | {cpu} |"


def frame(spark: SparkSession, rows: int, *, sharded: bool = False) -> DataFrame:
    """Rows of some 128 bytes in two partitions."""
    body = "CAST(concat(id, repeat('x', 122)) AS BINARY) AS body"
    key = ["id % 1000 AS shardingKey"] if sharded else []
    return spark.range(rows, numPartitions=2).selectExpr(body, *key)


def write(spark: SparkSession, name_server: str, rows: int, options: Mapping[str, Any]) -> None:
    """One write."""
    given = {"topic": "Bench", **options}
    made = frame(spark, rows, sharded=bool(given.pop("sharded", False)))
    if "delivery" in given:
        given["writeId"] = uuid.uuid4().hex
    made.write.format("rocketmq").option("nameServer", name_server).options(**given).mode("append").save()


def measured(
    spark: SparkSession, cluster: Cluster, rows: int, runs: int, *, only: str = "", options: Mapping[str, Any] = {}
) -> Iterator[Figures]:
    """The figures of each kind of write, one after the other. Makes its topics at the cluster."""
    for topic, queues in (("Bench", 8), ("Markers", 1)):
        Topic(cluster, topic, queues).close()

    def noop() -> None:
        frame(spark, rows).write.format("noop").mode("append").save()

    yield _runs("noop", noop, rows, runs, spark, cluster)
    for kind, own in KINDS.items():
        if only not in kind:
            continue
        count = rows // TRANSACTIONS_PART if "delivery" in own else rows
        given = {**own, **options}

        def work(count: int = count, given: Mapping[str, Any] = given) -> None:
            write(spark, cluster.address, count, given)

        yield _runs(kind, work, count, runs, spark, cluster)


def _runs(kind: str, work: Callable[[], None], rows: int, runs: int, spark: SparkSession, cluster: Cluster) -> Figures:
    work()
    rates, spark_before, broker_before = [], _spark_cpu(spark), cluster.broker.process.cpu_seconds()
    for _ in range(runs):
        start = time.perf_counter()
        work()
        rates.append(rows / (time.perf_counter() - start) / 1000)
    each = 1e6 / rows / runs
    broker = cluster.broker.process.cpu_seconds() - broker_before
    return Figures(kind, rates, (_spark_cpu(spark) - spark_before) * each, broker * each)


def _spark_cpu(spark: SparkSession) -> float:
    """CPU seconds of Spark's JVM and of all processes that it has started."""
    children, seconds = defaultdict(list), {}
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            with suppress(FileNotFoundError, ProcessLookupError):
                fields = (process / "stat").read_text().rpartition(")")[2].split()
                children[int(fields[1])].append(int(process.name))
                seconds[int(process.name)] = sum(map(int, fields[11:15])) / TICKS_PER_SECOND  # and of those that ended
    found = [spark._jvm.java.lang.ProcessHandle.current().pid()]  # type: ignore[union-attr]
    for each in found:
        found += children[each]
    return sum(seconds[each] for each in found)


def main() -> None:
    """Print the figures."""
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--apache", metavar="RELEASE")
    parse.add_argument("--rows", type=int, default=1_000_000)
    parse.add_argument("--runs", type=int, default=3)
    parse.add_argument("--only", metavar="WORD", default="")
    parse.add_argument("options", metavar="NAME=VALUE", nargs="*")
    asked = parse.parse_args()
    options = dict(each.split("=", 1) for each in asked.options)
    config = {"spark.ui.showConsoleProgress": "false"}
    with (
        tempfile.TemporaryDirectory(prefix="eruca-bench-") as home,
        spark_session(Path(home) / "spark", config=config) as spark,
    ):
        folder = Path(home) / "cluster"
        folder.mkdir()
        cluster = ApacheCluster(asked.apache, folder, options=LONG_LIFE) if asked.apache else ErucaCluster(folder)
        try:
            print(f"{cluster.name}:\n\n{HEAD}")
            for each in measured(spark, cluster, asked.rows, asked.runs, only=asked.only, options=options):
                print(each.line(), flush=True)
        finally:
            cluster.stop()


if __name__ == "__main__":
    main()
