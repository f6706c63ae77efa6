"""The data source that Spark is given, and its registration.

Owns the name ``rocketmq`` and what each kind of query gets. Errors in options and schema are raised here, before
any request to a cluster. Spark has a Python process for each step of a query, which should import no more than
it needs: so readers and writers are imported where they are made.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyarrow import RecordBatch
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from eruca.spark_connector.errors import BadOption
from eruca.spark_connector.options import read_options
from eruca.spark_connector.runtime import log_level
from eruca.spark_connector.runtime.boundary import boundary
from eruca.spark_connector.runtime.installed import check_python, is_remote
from eruca.spark_connector.schema import check_projection, default_schema
from eruca.spark_connector.sink_options import SinkOptions, check_columns, read_sink_options

if TYPE_CHECKING:
    from eruca.spark_connector.read.batch import BatchReader
    from eruca.spark_connector.sink import BatchWriter, StreamWriter


class RocketMQDataSource(DataSource):
    """``format("rocketmq")``."""

    parallelism = os.cpu_count() or 1
    """How many tasks can run at once; ``register`` takes it from the session."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "rocketmq"

    def schema(self) -> StructType:
        """All columns but those that must be asked for."""
        return default_schema()

    @boundary
    def reader(self, schema: StructType) -> BatchReader:
        """Called by Spark for ``spark.read``. Raises BadOption."""
        from eruca.spark_connector.read.batch import BatchReader

        log_level.take_over()
        check_projection(schema)
        return BatchReader(read_options(self.options, streaming=False), schema, self.parallelism)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Called by Spark for ``spark.readStream``; what is wrong with the options is raised by what it returns."""
        from eruca.spark_connector.read.stream import StreamReader

        log_level.take_over()
        try:
            check_projection(schema)
            return StreamReader(read_options(self.options, streaming=True), schema, self.parallelism)
        except BadOption as error:
            return _RefusingReader(error)

    @boundary
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Called by Spark for ``df.write``. Raises BadOption."""
        from eruca.spark_connector.sink import BatchWriter

        return BatchWriter(self._sink_options(schema, overwrite, streaming=False))

    @boundary
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """Called by Spark for ``writeStream``. Raises BadOption."""
        from eruca.spark_connector.sink import StreamWriter

        return StreamWriter(self._sink_options(schema, overwrite, streaming=True))

    def _sink_options(self, schema: StructType, overwrite: bool, *, streaming: bool) -> SinkOptions:
        options = read_sink_options(self.options, streaming=streaming)
        if overwrite:
            raise BadOption('Messages are added to a topic and never replaced: use mode("append"), or outputMode.')
        check_columns(schema, options)
        return options


class _RefusingReader(DataSourceStreamReader):
    """Raises an error at its first call.

    Where ``streamReader`` itself raises one, PySpark 4.3 fails on an error of its own, and shows that one last.
    """

    def __init__(self, error: BadOption) -> None:
        self._error = error.with_traceback(None)  # of streamReader

    def initialOffset(self) -> dict[str, Any]:
        """Of a new query."""
        raise self._error

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        """Of a query that continues."""
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Of a query that died in a batch."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Never called."""
        raise self._error


def register(spark: SparkSession) -> None:
    """Make ``format("rocketmq")`` known to this session.

    The Python processes of Spark import ``eruca``. On a local master they are started with this process's own Python,
    unless PYSPARK_PYTHON says otherwise; on a cluster set PYSPARK_PYTHON to one that has ``eruca-spark[spark]``. Also
    then the driver's machine needs it, for queries are planned there. They log at the level that the logger
    ``eruca.spark`` has now. Raises BadOption for a Python that cannot serve.

    Spark looks for the sink of a stream in the session that is active in the thread which starts it, and in other
    threads than the first none is. The session becomes the active one of the thread that calls this.

    In a session of Spark Connect only the name travels: queries are planned and run by Pythons of the server, which
    need ``eruca-spark[spark]`` and say themselves what is wrong.
    """
    if is_remote(spark):
        spark.dataSource.register(RocketMQDataSource)
        return
    context = spark.sparkContext
    if (context.master or "").startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable
    log_level.pass_on(context.environment)
    let_import(context, str(Path(__file__).with_name("startup")))
    archive = _own_archive()
    if context.pythonExec != sys.executable:
        sent_along = archive is not None or bool(context._python_includes)
        check_python(context.pythonExec, environment=os.environ, with_eruca=not sent_along)
    if archive is not None:
        let_import(context, archive)
    spark.dataSource.register(_with_parallelism(context.defaultParallelism))
    spark._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)


def let_import(context: SparkContext, place: str) -> None:
    """Let Spark's Python processes import from this folder or zip, those beside the driver, too.

    What Spark sends to its workers (``addPyFile``, ``--py-files``) does not reach those, in which streams are planned.
    """
    given = context.environment.get("PYTHONPATH")
    context.environment["PYTHONPATH"] = os.pathsep.join(filter(None, (place, given)))


def _own_archive() -> str | None:
    """The zip of ``spark-submit --py-files`` that this module came from."""
    return next((str(folder) for folder in Path(__file__).parents if folder.suffix == ".zip"), None)


def _with_parallelism(tasks: int) -> type[RocketMQDataSource]:
    # The class travels to the planning process by value, and the number with it: that process knows no session.
    class Source(RocketMQDataSource):
        parallelism = tasks

    return Source
