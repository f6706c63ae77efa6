"""The metrics of a nameserver for Prometheus: its brokers, topics and registrations.

Owns the names of these metrics. Must not know how routes are kept.
"""

from __future__ import annotations

from collections.abc import Callable

from eruca.nameserver.kv import LONGEST_CONTENT, KVStore
from eruca.nameserver.routes import Room, RouteTable
from eruca.remoting.metrics import Metrics


def add_metrics(metrics: Metrics, table: RouteTable, kv: KVStore, room: Callable[[], Room]) -> None:
    """Add the metrics of a nameserver."""
    metrics.limit("kv_bytes", lambda: LONGEST_CONTENT, lambda: kv.size)
    metrics.limit("registered_brokers", lambda: room().brokers, lambda: table.broker_count)
    metrics.limit("registered_topics", lambda: room().topics, lambda: table.taken_topics)
    metrics.gauge(
        "eruca_nameserver_brokers",
        "Registered brokers, by cluster.",
        lambda: table.brokers(),
        "cluster",
    )
    metrics.gauge("eruca_nameserver_topics", "Topics that have a route.", lambda: table.topic_count)
    metrics.counter(
        "eruca_nameserver_registrations_total", "Registrations that were taken.", lambda: table.registrations
    )
    metrics.counter(
        "eruca_nameserver_refusals_total", "Registrations that were refused.", lambda: table.refusals, "reason"
    )
    metrics.counter("eruca_nameserver_brokers_lost_total", "Brokers that were lost.", lambda: table.lost_brokers)
