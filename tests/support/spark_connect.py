"""A program with a session of Spark Connect, whose server it starts: a batch, a stream and a view of a topic.

    python -m tests.support.spark_connect NAME_SERVER TOPIC FOLDER

It prints what it read, one line each.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from eruca.spark_connector import BadOption, explain_read, java, register, register_view


def main(name_server: str, topic: str, folder: Path) -> None:
    java.prepare()
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    register(spark)
    given = {"nameServer": name_server, "subscribe": topic}
    batch = spark.read.format("rocketmq").options(**given).load()
    print("batch", batch.count())
    batch.select("body").write.format("rocketmq").options(nameServer=name_server, topic=topic).mode("append").save()
    stream = spark.readStream.format("rocketmq").options(**given, startingOffsets="earliest").load()
    writer = stream.writeStream.format("parquet").option("path", str(folder / "lake"))
    writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(
        availableNow=True
    ).start().awaitTermination()
    print("stream", spark.read.parquet(str(folder / "lake")).count())
    register_view(spark, "seen", topic, name_server=name_server)
    print("view", spark.sql("SELECT count(*) AS count FROM seen").collect()[0]["count"])
    try:
        explain_read(batch)
    except BadOption as error:
        print(error)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
