"""Topics whose messages lie in windows of time."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from pyspark.sql import SparkSession

from eruca.remoting.clock import now_ms
from tests.support.spark import Topic


def fill(topic: Topic, count: int) -> None:
    for number in range(count):
        topic.send(number % 4, b"x" * (number + 1), tags=f"t{number % 3}", keys=f"k{number % 2} all")


WINDOW = 20


def let_a_window_end() -> None:
    over = now_ms() // WINDOW * WINDOW + WINDOW
    while now_ms() <= over:
        pass


def written(spark: SparkSession, tmp_path: Path) -> Counter[tuple[int, str]]:
    """All rows that are there; no window and tag may be there twice."""
    rows = spark.read.parquet(str(tmp_path / "rolled")).selectExpr("unix_millis(windowStart) s", "tag", "messages")
    found: Counter[tuple[int, str]] = Counter()
    for row in rows.collect():
        assert (row["s"], row["tag"]) not in found
        found[row["s"], row["tag"]] = row["messages"]
    return found
