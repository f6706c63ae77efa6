"""A topic as a temporary view, for queries in SQL.

Owns the call that makes one. The options and columns are those of the source, and are checked here: of a wrong one in
``CREATE TEMPORARY VIEW`` only a query of the view says it.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from eruca.spark_connector.errors import BadOption
from eruca.spark_connector.options import read_options
from eruca.spark_connector.schema import check_projection


def register_view(
    spark: SparkSession,
    name: str,
    topic: str,
    *,
    name_server: str,
    schema: str | None = None,
    streaming: bool = False,
    **options: str | float | bool,
) -> DataFrame:
    """Make a topic known to SQL under this name, in this session alone, after ``register``.

    Args:
        name: of the view; it replaces one of that name.
        topic: several are joined by commas.
        name_server: ``host:port``, several joined by ``;``.
        schema: the columns that are read, such as ``"body binary, tags string"``; by default all but properties.
        streaming: whether the view is a stream: a query of it is one, and is started with ``writeStream``.
        options: more options of the source by their names, such as ``startingTimestamp="2h"``.

    Returns the rows of the view. As any frame it keeps the ends of the queues that its first query found: call this
    again for a view with the messages that came since. Raises BadOption.
    """
    given = {
        name: _text(name, value) for name, value in {"nameServer": name_server, "subscribe": topic, **options}.items()
    }
    read_options(given, streaming=streaming)
    reader = (spark.readStream if streaming else spark.read).format("rocketmq").options(**given)
    frame = (reader if schema is None else reader.schema(schema)).load()
    check_projection(frame.schema)
    frame.createOrReplaceTempView(name)
    return frame


def _text(name: str, value: object) -> str:
    if not isinstance(value, str | int | float):
        raise BadOption(
            f"The option {name} is of type {type(value).__name__}: give a text, a number or a bool; several topics are "
            'one text, "orders,payments", and offsets are JSON.'
        )
    return str(value).lower() if isinstance(value, bool) else str(value)
