"""A Spark program of its own: a stream that copies one topic to another.

    python -m tests.support.spark_copy NAME_SERVER FROM TO FOLDER [MARKERS [DIES_AT]]

FOLDER keeps the checkpoint, so a second run goes on where the first one was. With MARKERS it copies in transactions,
else at least once with ids. It runs until it is killed; with DIES_AT the driver's process kills the whole session with
SIGKILL, driver, JVM and workers, when so many messages of a batch are committed. Messages of a queue are committed one
after the other.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from eruca.protocol import api
from eruca.remoting import Connection
from eruca.spark_connector.sink import StreamWriter
from eruca.spark_connector.source import RocketMQDataSource
from tests.support.processes import Process, kill_session
from tests.support.requests import watch
from tests.support.spark import ROOT, spark_session
from tests.support.spark_stream import IMPORTS

Way = tuple[str, str, str]
"""Name server, the topic to read, the topic to write."""


class DyingWriter(StreamWriter):
    """Kills all of Spark within a commit."""

    dies_at = 0

    def commit(self, messages: Sequence[Any], batchId: int) -> None:
        """At the driver."""
        ended, dies_at = 0, self.dies_at

        def answered(connection: Connection, endpoint: object) -> None:
            nonlocal ended
            if endpoint is not api.END_TRANSACTION:
                return
            ended += 1
            if ended == dies_at:
                kill_session(os.getsid(0))
                os.kill(os.getpid(), signal.SIGKILL)

        watch(pytest.MonkeyPatch(), answered=answered)
        super().commit(messages, batchId)


def start_copy(
    spark: SparkSession, way: Way, folder: Path, markers: str | None = None, **trigger: Any
) -> StreamingQuery:
    """Start the query; without a trigger it ends when everything is copied."""
    name_server, source, target = way
    rows = spark.readStream.format("rocketmq").option("nameServer", name_server).option("subscribe", source)
    rows = rows.options(startingOffsets="earliest", maxOffsetsPerTrigger=60, minPartitions=2, latestOffsetCacheMs=0)
    delivery = {"delivery": "transactional", "markerTopic": markers} if markers else {"sendBatchRows": 8}
    writer = rows.load().selectExpr("body", "keys AS shardingKey").writeStream.format("rocketmq")
    writer = writer.options(nameServer=name_server, topic=target, **delivery)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(**trigger or {"availableNow": True}).start()


class Copying:
    """The program as a session of processes of its own."""

    def __init__(self, way: Way, folder: Path, *more: str) -> None:
        self._folder = folder
        self._before = self.batches("offsets")
        command = [sys.executable, "-m", "tests.support.spark_copy", *way, str(folder), *more]
        self.process = Process(command, folder / "log", cwd=ROOT, env={"PYTHONPATH": IMPORTS}, leads=True)

    def batches(self, step: str) -> set[str]:
        """The batches that have come to this step: `offsets` when they begin, `commits` when they are done."""
        return {each.name for each in (self._folder / "checkpoint" / step).glob("[0-9]*")}

    def wait_for_batch(self) -> None:
        """Wait until it begins a batch that no run before it has begun."""
        self.process.wait_until(lambda: not self.batches("offsets") <= self._before, "a batch", 200)


def main(name_server: str, source: str, target: str, folder: str, markers: str = "", dies_at: str = "0") -> None:
    """Copy, until killed."""

    class Writer(DyingWriter):
        pass

    Writer.dies_at = int(dies_at)

    class Source(RocketMQDataSource):
        def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
            return Writer(self._sink_options(schema, overwrite, streaming=True))

    with spark_session(Path(folder)) as spark:
        spark.dataSource.register(Source)
        way = name_server, source, target
        start_copy(spark, way, Path(folder), markers or None, processingTime="0 seconds").awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
