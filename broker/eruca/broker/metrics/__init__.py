"""The metrics of a broker for Prometheus: RocketMQ 5's metrics, by their names and labels, and Eruca's own.

Each module adds the metrics of one subject to ``Broker.metrics``, and reads at a scrape what the parts of the broker
count. Must not count anything itself. Facts about names, labels and units: BrokerMetricsConstant, BrokerMetricsManager
and DefaultStoreMetricsManager in 5.3.3.
"""

from __future__ import annotations

from eruca.broker.broker import Broker
from eruca.broker.metrics import clients, failover, lags, limits, messages, replication, storage


def add_metrics(broker: Broker) -> None:
    """Add the metrics of a broker."""
    messages.add(broker)
    clients.add(broker)
    lags.add(broker)
    storage.add(broker)
    limits.add(broker)
    replication.add(broker)
    failover.add(broker)
