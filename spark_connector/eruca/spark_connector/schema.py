"""The columns of the source, and the projection that a user's schema is.

Owns names and types. Spark does not say to a Python source which columns a query needs, but a schema given with
``.schema("body binary, queueOffset bigint")`` reaches the reader: only those columns are made. As in Spark, names do
not mind case.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from eruca.spark_connector.errors import BadOption
from eruca.spark_connector.option_parsers import unknown_column

COLUMNS: Final[dict[str, DataType]] = {
    "topic": StringType(),
    "brokerName": StringType(),
    "queueId": IntegerType(),
    "queueOffset": LongType(),
    "body": BinaryType(),
    "tags": StringType(),
    "keys": StringType(),
    "messageId": StringType(),
    "bornTimestamp": TimestampType(),
    "storeTimestamp": TimestampType(),
    "reconsumeTimes": IntegerType(),
    "flag": IntegerType(),
    "properties": MapType(StringType(), StringType()),
}
"""Every column there is. ``keys`` is the text as the producer gave it, several keys apart by blanks; ``messageId`` is
the producer's id, else the broker's; ``body`` is what the producer sent, decompressed."""

ON_REQUEST: Final = frozenset({"properties"})
"""Columns that are read only when the user's schema names them: they cost more than all others."""
_KINDS: Final = {name.lower(): kind for name, kind in COLUMNS.items()}


def default_schema() -> StructType:
    """The columns of a query that gives no schema."""
    return StructType([StructField(name, kind) for name, kind in COLUMNS.items() if name not in ON_REQUEST])


def check_projection(schema: StructType) -> None:
    """Raise BadOption for a column that does not exist or has another type."""
    for each in schema.fields:
        kind = _KINDS.get(each.name.lower())
        if kind is None:
            raise unknown_column("source", each.name, COLUMNS, f"there are {', '.join(COLUMNS)}.")
        if each.dataType.simpleString() != kind.simpleString():
            raise BadOption(
                f"The column {each.name} is of type {kind.simpleString()}, not {each.dataType.simpleString()}: "
                "correct the schema, and cast after reading."
            )
    if not schema.fields:
        raise BadOption("The schema names no column: name at least one, such as queueOffset bigint.")


def arrow_schema(schema: StructType) -> pa.Schema:
    """The schema that Spark expects of the record batches, to the letter."""
    return to_arrow_schema(schema, timezone="UTC")
