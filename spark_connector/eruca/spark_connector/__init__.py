"""RocketMQ as a source and a sink of Spark: ``format("rocketmq")`` of batches and streams.

Reads and writes over the wire like any other client, with Eruca's brokers and with Apache's. Needs PySpark 4.2
or newer and pyarrow: ``pip install 'eruca-spark[spark]'``. The pages of the documentation begin at docs/spark.md.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eruca.spark_connector.causes import cause_of, clear_errors
    from eruca.spark_connector.deduplication import deduplicated
    from eruca.spark_connector.errors import BadOption, SinkError, SourceError
    from eruca.spark_connector.lag import Lag, LagListener
    from eruca.spark_connector.metrics import QueryMetrics
    from eruca.spark_connector.read.description import explain_read
    from eruca.spark_connector.source import RocketMQDataSource, register
    from eruca.spark_connector.views import register_view

__all__ = [
    "BadOption",
    "Lag",
    "LagListener",
    "QueryMetrics",
    "RocketMQDataSource",
    "SinkError",
    "SourceError",
    "cause_of",
    "clear_errors",
    "deduplicated",
    "explain_read",
    "register",
    "register_view",
]

_MODULES = {
    "BadOption": "errors",
    "Lag": "lag",
    "LagListener": "lag",
    "QueryMetrics": "metrics",
    "RocketMQDataSource": "source",
    "SinkError": "errors",
    "SourceError": "errors",
    "cause_of": "causes",
    "clear_errors": "causes",
    "deduplicated": "deduplication",
    "explain_read": "read.description",
    "register": "source",
    "register_view": "views",
}


def __getattr__(name: str) -> Any:
    # Loaded when used: eruca.spark_connector.java is needed before there is a Java, and without PySpark.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    from eruca.spark_connector.runtime import installed

    installed.check_pyspark()
    try:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    except ModuleNotFoundError as error:
        raise installed.missing(error) from error
