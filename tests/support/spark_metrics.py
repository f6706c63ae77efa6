"""A program of its own: a stream whose figures Spark's CSV sink writes. Prints what there is of the query.

python -m tests.support.spark_metrics NAME_SERVER TOPIC FOLDER
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tests.support.spark import spark_session

SINK = "spark.metrics.conf.*.sink.csv"
PREFIX = "app.driver.spark.streaming.followed."


def main(name_server: str, topic: str, folder: Path) -> None:
    """Read the topic by two messages a batch until the sink has figures of a batch."""
    figures = folder / "figures"
    figures.mkdir()
    config = {
        "spark.sql.streaming.metricsEnabled": "true",
        "spark.metrics.namespace": "app",
        f"{SINK}.class": "org.apache.spark.metrics.sink.CsvSink",
        f"{SINK}.directory": str(figures),
        f"{SINK}.period": "1",
    }
    with spark_session(folder, config=config) as spark:
        reader = spark.readStream.format("rocketmq").option("nameServer", name_server).option("subscribe", topic)
        rows = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 2).load()
        writer = rows.writeStream.format("noop").queryName("followed").trigger(processingTime="1 second")
        query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
        while not (_last(figures / f"{PREFIX}inputRate-total.csv") > 0 < _last(figures / f"{PREFIX}latency.csv")):
            error = query.exception()
            assert error is None and query.isActive, error
            time.sleep(0.1)  # nobody tells
        progress = query.lastProgress
        assert progress is not None
        print("metrics of the source:", progress.sources[0].metrics)
        query.stop()
    print(*sorted(each.name.removeprefix(PREFIX) for each in figures.glob(f"{PREFIX}*")))
    print("rows read:", _last(figures / "app.driver.executor.recordsRead.csv") > 0)
    print("bytes read:", _last(figures / "app.driver.executor.bytesRead.csv"))


def _last(file: Path) -> float:
    lines = file.read_text().splitlines() if file.exists() else []
    return float(lines[-1].rpartition(",")[2]) if len(lines) > 1 else 0.0


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
