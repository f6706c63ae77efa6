"""A Spark program of its own: a stream of a topic into files, one a batch, on any master.

    python -m tests.support.spark_stream MASTER NAME_SERVER TOPIC FOLDER PYTHON

PYTHON runs Spark's processes: one that has no Eruca, which is sent to the workers as a zip. FOLDER keeps the checkpoint
and `batches/<id>.json`, so a later run goes on where one was killed. A batch that is computed again must be what it was
before, else the query fails. It ends at the end of the topic.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.functions import udf
from pyspark.sql.types import StringType

from eruca.spark_connector.pipelines.pyfiles import write_pyfiles
from tests.support.spark import COLUMNS, ROOT, SOURCE_ROOTS, Rows, spark_session

STARTED = "the query has started"
IMPORTS = os.pathsep.join(str(ROOT / root) for root in ("", *SOURCE_ROOTS))
"""What this program needs on its PYTHONPATH."""


def batches(folder: Path) -> dict[int, list[dict[str, Any]]]:
    """The batches that were written whole."""
    files = (folder / "batches").glob("*.json")
    return {int(file.stem): json.loads(file.read_text()) for file in files}


def rows_in(folder: Path) -> Rows:
    """All rows of all batches; none may be in two."""
    found: Rows = {}
    for rows in batches(folder).values():
        for row in rows:
            place = row.pop("queueId"), row.pop("queueOffset")
            assert place not in found
            found[place] = {**row, "body": bytes.fromhex(row["body"])}
            del found[place]["place"]
    return found


def main(master: str, name_server: str, topic: str, folder: str, python: str) -> None:
    """Run the query."""
    here = Path(folder)
    (here / "batches").mkdir(exist_ok=True)

    @udf(StringType())
    def place() -> str:
        return os.getcwd()

    def keep(frame: DataFrame, batch: int) -> None:
        rows = [row.asDict() for row in frame.withColumn("place", place()).collect()]
        for row in rows:
            row["body"] = bytes(row["body"]).hex()
        file = here / "batches" / f"{batch}.json"
        if file.exists():
            before = {(each["queueId"], each["queueOffset"], each["body"]) for each in json.loads(file.read_text())}
            assert before == {(each["queueId"], each["queueOffset"], each["body"]) for each in rows}, batch
        fresh = file.with_suffix(".new")
        fresh.write_text(json.dumps(rows))
        fresh.rename(file)

    config = {
        "spark.executor.memory": "512m",
        "spark.submit.pyFiles": str(write_pyfiles(here / "eruca.zip")),
    }
    with spark_session(here, master=master, config=config, python=python) as spark:
        reader = spark.readStream.format("rocketmq").schema(COLUMNS).option("nameServer", name_server)
        reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
        reader = reader.option("maxOffsetsPerTrigger", 40).option("minPartitions", 4).option("latestOffsetCacheMs", 0)
        writer = reader.load().writeStream.foreachBatch(keep).option("checkpointLocation", str(here / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        print(STARTED, flush=True)
        query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
