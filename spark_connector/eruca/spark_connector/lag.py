"""How far queries are behind: a listener for ``spark.streams.addListener``.

Spark's own metrics of a Python source do not say it. Each progress names where a query's queues end and how far it has
read; this takes the difference. It needs no connection, and sees all rocketmq sources of the session's queries.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from eruca.client import MessageQueue
from eruca.spark_connector.errors import SourceError
from eruca.spark_connector.offsets.positions import StreamOffset

log = logging.getLogger("eruca.spark")


@dataclass(frozen=True)
class Lag:
    """Messages that a query has not read yet, after one of its batches, and how fast it reads.

    ``rows`` were in the batch. ``arriving`` and ``processed`` are rows a second: those that came since the batch
    before, and those that were worked through while the batch ran; over all sources of the query. Of a queue that
    several of them read, what the slowest has not read counts.
    """

    query_id: str
    query_name: str | None
    batch_id: int
    queues: Mapping[MessageQueue, int]
    rows: int = 0
    arriving: float = 0.0
    processed: float = 0.0

    @property
    def total(self) -> int:
        """Over all queues."""
        return sum(self.queues.values())


class LagListener(StreamingQueryListener):
    """Calls ``told`` with the lag of every query after each of its batches.

        spark.streams.addListener(LagListener(lambda lag: gauge.set(lag.total)))

    Without ``told`` the logger ``eruca.spark`` gets a line at INFO. ``latest`` keeps the newest by the query's id, as
    long as the query runs. It is called in a thread of PySpark; an error of ``told`` is logged and changes nothing.
    """

    def __init__(self, told: Callable[[Lag], object] | None = None) -> None:
        self.latest: dict[str, Lag] = {}
        self._told = told if told is not None else _log

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Called by Spark."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Called by Spark."""
        progress = event.progress
        queues: dict[MessageQueue, int] = {}
        for source in progress.sources:
            for queue, count in behind(source.endOffset, source.latestOffset).items():
                queues[queue] = max(count, queues.get(queue, 0))
        if queues:
            lag = Lag(
                str(progress.id),
                progress.name,
                progress.batchId,
                queues,
                progress.numInputRows,
                _rate(progress.inputRowsPerSecond),
                _rate(progress.processedRowsPerSecond),
            )
            self.latest[lag.query_id] = lag
            try:
                self._told(lag)
            except Exception:
                log.exception("the listener for the lag of query %s failed", lag.query_id)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Called by Spark."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Called by Spark."""
        self.latest.pop(str(event.id), None)


def _rate(rows: float) -> float:
    """Rows a second; 0 where Spark has none, as for the first batch."""
    return rows if math.isfinite(rows) else 0.0


def behind(end: Any, latest: Any) -> dict[MessageQueue, int]:
    """The lag by queue, of two offsets of a progress as JSON; none for those of another source."""
    try:
        read, there = (StreamOffset.from_json(json.loads(each)) for each in (end, latest))
    except (TypeError, ValueError, SourceError):
        return {}
    if read is None or there is None:
        return {}
    began = read.began
    return {queue: max(0, stop - read.queues.get(queue, began.get(queue, 0))) for queue, stop in there.queues.items()}


def _log(lag: Lag) -> None:
    log.info("query %s is %d messages behind after batch %d", lag.query_name or lag.query_id, lag.total, lag.batch_id)
