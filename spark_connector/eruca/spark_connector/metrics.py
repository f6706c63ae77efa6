"""Figures of running queries for Prometheus: how far they are behind, and how fast they read.

Owns the names of the figures. Needs ``pip install "eruca-client[prometheus]"``; without it only making a
``QueryMetrics`` fails. A figure is made of what a ``LagListener`` found last, at each scrape: so a query that has
ended has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from eruca.spark_connector.errors import NotInstalled
from eruca.spark_connector.lag import Lag, LagListener

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric


class QueryMetrics:
    """Shows what a listener knows of the queries of its session.

    Args:
        listener: one that ``spark.streams.addListener`` was given.
        registry: where the figures are; default: the global one, which ``start_http_server`` shows.

    Raises NotInstalled when prometheus-client is not there, ValueError when the registry has one already.
    """

    def __init__(self, listener: LagListener, registry: CollectorRegistry | None = None) -> None:
        try:
            import prometheus_client
        except ImportError as error:
            install = 'run `pip install "eruca-client[prometheus]"`'
            raise NotInstalled(f"prometheus-client is not installed: {install}.") from error
        self._listener = listener
        (prometheus_client.REGISTRY if registry is None else registry).register(self)

    def describe(self) -> Iterator[Metric]:
        """Called by the registry, which refuses a second one: no page may have a figure twice."""
        yield from self._figures([])

    def collect(self) -> Iterator[Metric]:
        """Called at each scrape. The label query is the name of the query, or its id."""
        yield from self._figures(list(self._listener.latest.values()))

    def _figures(self, lags: Sequence[Lag]) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        lag = GaugeMetricFamily(
            "rocketmq_spark_lag_messages",
            "messages that a query has not read, after its last batch",
            labels=("query", "topic", "broker", "queue"),
        )
        rows = GaugeMetricFamily("rocketmq_spark_batch_rows", "rows of the last batch", labels=("query",))
        arriving = GaugeMetricFamily(
            "rocketmq_spark_arriving_rows_per_second",
            "rows that arrived a second, at the last batch",
            labels=("query",),
        )
        processed = GaugeMetricFamily(
            "rocketmq_spark_processed_rows_per_second", "rows of the last batch a second of its work", labels=("query",)
        )
        for found in lags:
            query = (found.query_name or found.query_id,)
            for queue, count in found.queues.items():
                lag.add_metric((*query, queue.topic, queue.broker_name, str(queue.queue_id)), count)
            for family, value in ((rows, found.rows), (arriving, found.arriving), (processed, found.processed)):
                family.add_metric(query, value)
        yield from (lag, rows, arriving, processed)
