"""What a broker limits, and what is used of it.

Owns the names of the limits. Must not know how they are enforced.
"""

from __future__ import annotations

from eruca.broker.broker import Broker
from eruca.broker.services.holds import MOST
from eruca.broker.services.replication.slaves import MOST_SLAVES


def add(broker: Broker) -> None:
    """Add these limits."""
    limit, config = broker.metrics.limit, broker.config
    limit("topics", lambda: config.max_topic_num, lambda: len(broker.topics))
    limit("groups", lambda: config.max_subscription_group_num, lambda: len(broker.groups.table))
    limit("held_pulls", lambda: MOST, lambda: len(broker.holds))
    limit("waiting_sends", lambda: config.send_thread_pool_queue_capacity, lambda: broker.waiting_sends)
    limit("memory_bytes", lambda: broker.memory_alarm.mark, lambda: broker.memory_alarm.used())
    if not config.is_slave:
        limit("slaves", lambda: MOST_SLAVES, lambda: len(broker.slaves.connected))
    broker.metrics.counter(
        "eruca_memory_alarms_total",
        "Times that sends were refused for a while, as the broker had too much memory.",
        lambda: broker.memory_alarm.alarms,
    )
