"""Properties that a pipeline adds to the messages which it sends again, so that consumers can tell what they are."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F


def marked(marks: Mapping[str, Column]) -> Column:
    """The column ``properties`` (null counts as empty) with these, in place of what has their names."""
    there = F.coalesce(F.col("properties"), F.create_map().cast("map<string,string>"))
    kept = F.map_filter(there, lambda name, _: ~name.isin(*marks))
    return F.map_concat(kept, F.create_map(*(part for name, value in marks.items() for part in (F.lit(name), value))))
