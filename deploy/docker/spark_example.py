"""What Spark makes of a topic, in the container `spark` of compose.yaml: spark_example.py NAMESERVER TOPIC OUT.

Reads all that the topic has and that was not read before as a stream, appends it to Parquet files in OUT/messages, and
prints how many messages each tag has there. Run it again: it goes on where it ended, by the checkpoint in
OUT/checkpoint.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from eruca.spark_connector import register


def main(nameserver: str, topic: str, out: str) -> None:
    spark = SparkSession.builder.appName("eruca example").master("local[2]").getOrCreate()
    register(spark)
    messages = (
        spark.readStream.format("rocketmq")
        .option("nameServer", nameserver)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("topic", "tags", "keys", "CAST(body AS STRING) AS text", "storeTimestamp")
    )
    writer = messages.writeStream.format("parquet").option("checkpointLocation", f"{out}/checkpoint")
    writer.trigger(availableNow=True).start(f"{out}/messages").awaitTermination()
    spark.read.parquet(f"{out}/messages").groupBy("tags").count().orderBy("tags").show()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
