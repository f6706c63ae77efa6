"""Dropping messages that came twice.

Owns what makes two messages the same: the id that the sink gave them (SPARK_ID), and where there is none, the
producer's id of the message, which is the same when one and the same message was stored again.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from eruca.spark_connector.errors import BadOption
from eruca.spark_connector.write.encoder import SPARK_ID

_ID = "_spark_id"


def deduplicated(frame: DataFrame, within: str = "1 hour") -> DataFrame:
    """Each message of a frame that the source has read once, whichever copy comes first.

    The frame needs the columns messageId and properties, as a stream storeTimestamp, too: a stream forgets what is
    older than ``within``, by the time at which messages were stored. Raises BadOption.
    """
    needed = ["messageId", "properties", *(["storeTimestamp"] if frame.isStreaming else [])]
    missing = [name for name in needed if name not in frame.columns]
    if missing:
        raise BadOption(f"Repeats cannot be found without the column {' and '.join(missing)}: add it to the schema.")
    known = frame.withColumn(_ID, F.coalesce(F.col("properties").getItem(SPARK_ID), F.col("messageId")))
    if frame.isStreaming:
        known = known.withWatermark("storeTimestamp", within).dropDuplicatesWithinWatermark([_ID])
    else:
        known = known.dropDuplicates([_ID])
    return known.drop(_ID)
