"""How far a query is behind, by its progress."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from pyspark.sql import SparkSession

from eruca.client import MessageQueue
from eruca.spark_connector import Lag, LagListener, QueryMetrics
from tests.support.spark import ROOT, Topic, read_stream

READ = '{"queues": {"orders": {"b": {"0": 7, "1": 3}}}}'
THERE = '{"queues": {"orders": {"b": {"0": 9, "1": 3, "2": 4}}}}'


def progress(end: Any, latest: Any, *, arriving: float = 4.5) -> Any:
    source = SimpleNamespace(endOffset=end, latestOffset=latest)
    told = SimpleNamespace(id="q", name="copy", batchId=5, sources=[source], numInputRows=9)
    told.inputRowsPerSecond, told.processedRowsPerSecond = arriving, 30.0
    return SimpleNamespace(progress=told)


def test_the_lag_is_what_is_there_and_not_read(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "eruca.spark")
    listener = LagListener()

    listener.onQueryProgress(progress(READ, THERE))

    queues = {MessageQueue("orders", "b", 0): 2, MessageQueue("orders", "b", 1): 0, MessageQueue("orders", "b", 2): 4}
    assert listener.latest["q"] == Lag("q", "copy", 5, queues, 9, 4.5, 30.0) and listener.latest["q"].total == 6
    assert "query copy is 6 messages behind after batch 5" in caplog.text
    listener.onQueryTerminated(SimpleNamespace(id="q"))  # type: ignore[arg-type]
    assert listener.latest == {}


def test_a_queue_of_two_sources_is_behind_by_the_slower_one() -> None:
    told = progress(READ, THERE)
    told.progress.sources.append(SimpleNamespace(endOffset=THERE, latestOffset=THERE))
    listener = LagListener()
    listener.onQueryProgress(told)
    assert listener.latest["q"].total == 6


def test_prometheus_shows_the_lag_and_the_rates_of_running_queries() -> None:
    listener, registry = LagListener(), CollectorRegistry()
    QueryMetrics(listener, registry)
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        QueryMetrics(LagListener(), registry)
    assert "copy" not in generate_latest(registry).decode()

    listener.onQueryProgress(progress(READ, THERE, arriving=float("nan")))
    shown = generate_latest(registry).decode()
    assert 'rocketmq_spark_lag_messages{broker="b",query="copy",queue="2",topic="orders"} 4.0' in shown
    assert 'rocketmq_spark_batch_rows{query="copy"} 9.0' in shown
    assert 'rocketmq_spark_arriving_rows_per_second{query="copy"} 0.0' in shown
    assert 'rocketmq_spark_processed_rows_per_second{query="copy"} 30.0' in shown

    listener.onQueryTerminated(SimpleNamespace(id="q"))  # type: ignore[arg-type]
    assert "copy" not in generate_latest(registry).decode()


@pytest.mark.parametrize("offsets", [(None, None), ("3", "4"), ('{"t": {"0": 1}}', '{"t": {"0": 2}}'), ("null", "[]")])
def test_other_sources_have_no_lag(offsets: tuple[Any, Any]) -> None:
    told: list[Lag] = []
    LagListener(told.append).onQueryProgress(progress(*offsets))
    assert told == []


def test_an_error_of_the_listener_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail(lag: Lag) -> None:
        raise RuntimeError("no gauge")

    LagListener(fail).onQueryProgress(progress(READ, THERE))
    assert "the listener for the lag of query q failed" in caplog.text and "no gauge" in caplog.text


def test_spark_tells_it_of_a_running_query(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    topic.fill(12)
    found: list[Lag] = []
    last = threading.Event()

    def told(lag: Lag) -> None:
        if lag.query_name != "followed":  # of another test
            return
        found.append(lag)
        if lag.total == 0:
            last.set()

    listener = LagListener(told)
    spark.streams.addListener(listener)
    try:
        stream = read_stream(spark, topic, startingOffsets="earliest", maxOffsetsPerTrigger=4)
        writer = (
            stream.writeStream.format("noop")
            .queryName("followed")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
        )
        query = writer.trigger(processingTime="0 seconds").start()
        assert last.wait(120), found
        query.stop()
    finally:
        spark.streams.removeListener(listener)
    assert [lag.total for lag in found[:3]] == [8, 4, 0]
    assert [lag.rows for lag in found[:3]] == [4, 4, 4] and all(lag.processed > 0 for lag in found[:3])


@pytest.mark.slow
def test_the_sinks_of_sparks_metrics_have_the_rates_of_a_query_and_no_lag(
    quick_java: None, topic: Topic, tmp_path: Path
) -> None:
    """As docs/spark.md says; where Spark gives a Python source more, that page and LagListener change."""
    topic.fill(40)
    command = [sys.executable, "-m", "tests.support.spark_metrics", topic.name_server, topic.name, str(tmp_path)]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)

    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == [
        "metrics of the source: {}",
        "eventTime-watermark.csv inputRate-total.csv latency.csv processingRate-total.csv states-rowsTotal.csv "
        "states-usedBytes.csv",
        "rows read: True",
        "bytes read: 0.0",
    ]
