"""A Spark program of its own: copies one topic to another in transactions, until everything is copied.

    python -m tests.support.spark_copy NAME_SERVER FROM TO MARKERS FOLDER DIES_AT

FOLDER keeps the checkpoint, so a second run goes on where the first one was. When DIES_AT messages of a batch are
committed (0: never) the driver's process kills the whole session with SIGKILL: driver, JVM and workers. Messages of a
queue are committed one after the other.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

from eruca.spark_connector.halves import Ending
from eruca.spark_connector.sink import StreamWriter
from eruca.spark_connector.source import RocketMQDataSource
from tests.support.spark import spark_session


class DyingWriter(StreamWriter):
    """Kills all of Spark within a commit."""

    dies_at = 0

    def commit(self, messages: Sequence[Any], batchId: int) -> None:
        """At the driver."""
        real, ended, dies_at = Ending._end, 0, self.dies_at

        async def end(self: Ending, *args: Any) -> None:
            nonlocal ended
            await real(self, *args)
            ended += 1
            if ended == dies_at:
                kill_session()

        Ending._end = end  # type: ignore[assignment, method-assign]
        super().commit(messages, batchId)


def kill_session(session: int | None = None) -> None:
    """SIGKILL to all processes of a session; by default of this one's, to this process last."""
    chosen = os.getsid(0) if session is None else session
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and int(process.name) != os.getpid():
            try:
                if os.getsid(int(process.name)) == chosen:
                    os.kill(int(process.name), signal.SIGKILL)
            except ProcessLookupError:
                continue
    if session is None:
        os.kill(os.getpid(), signal.SIGKILL)


def main(name_server: str, source: str, target: str, markers: str, folder: str, dies_at: str) -> None:
    """Copy, or die."""

    class Writer(DyingWriter):
        pass

    Writer.dies_at = int(dies_at)

    class Source(RocketMQDataSource):
        def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
            return Writer(self._sink_options(schema, overwrite, streaming=True))

    with spark_session(Path(folder)) as spark:
        spark.dataSource.register(Source)
        rows = spark.readStream.format("rocketmq").option("nameServer", name_server).option("subscribe", source)
        rows = rows.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 20)
        writer = (
            rows.load()
            .selectExpr("body", "keys AS shardingKey")
            .writeStream.format("rocketmq")
            .option("nameServer", name_server)
        )
        writer = writer.option("topic", target).option("delivery", "transactional").option("markerTopic", markers)
        writer = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
        assert writer.start().awaitTermination(300)


if __name__ == "__main__":
    main(*sys.argv[1:])
