"""Messages that are there twice are seen once: by batches, and by streams, though the copy comes in a later batch."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from eruca.spark_connector import deduplicated
from eruca.spark_connector.errors import BadOption
from tests.support.spark import Topic, read

SCHEMA = "body binary, messageId string, storeTimestamp timestamp, properties map<string,string>"


def bodies(frame: DataFrame) -> Counter[str]:
    return Counter(row.body for row in frame.selectExpr("CAST(body AS STRING) AS body").collect())


def test_a_copy_is_dropped_in_batches_and_streams(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    def send(*numbers: int) -> None:
        for number in numbers:
            topic.send(number % 4, b"row %d" % number, properties={"SPARK_ID": f"query/0/0/{number}"})

    reader = spark.readStream.format("rocketmq").schema(SCHEMA)
    reader = reader.options(nameServer=topic.name_server, subscribe=topic.name, startingOffsets="earliest")
    writer = deduplicated(reader.load()).select("body").writeStream.format("parquet")
    writer = writer.options(path=str(tmp_path / "rows"), checkpointLocation=str(tmp_path / "checkpoint"))
    for numbers in ((0, 1, 2, 2), (1, 3, 4)):
        send(*numbers)
        assert writer.trigger(availableNow=True).start().awaitTermination(120)
    for _ in range(2):
        topic.send(0, b"no row of Spark's")

    once = {f"row {number}": 1 for number in range(5)}
    assert bodies(spark.read.schema("body binary").parquet(str(tmp_path / "rows"))) == once
    assert bodies(deduplicated(read(spark, topic, SCHEMA))) == {**once, "no row of Spark's": 2}


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_needed_to_find_repeats_is_said(spark: SparkSession, topic: Topic, stream: bool) -> None:
    reader: Any = spark.readStream if stream else spark.read
    reader = reader.format("rocketmq").options(nameServer=topic.name_server, subscribe=topic.name)
    with pytest.raises(BadOption, match=f"without the column messageId{' and storeTimestamp' if stream else ''}: add"):
        deduplicated(reader.schema("body binary, properties map<string,string>").load())
