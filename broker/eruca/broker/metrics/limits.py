"""What a broker limits, and what is used of it.

Owns the names of the limits. Must not know how they are enforced.
"""

from __future__ import annotations

from eruca.broker.broker import Broker
from eruca.broker.services.replication.slaves import MOST_SLAVES


def add(broker: Broker) -> None:
    """Add these limits."""
    limit, config = broker.metrics.limit, broker.config
    limit("topics", lambda: config.max_topic_num, lambda: len(broker.topics))
    limit("groups", lambda: config.max_subscription_group_num, lambda: len(broker.groups.table))
    limit("held_pulls", lambda: broker.holds.most, lambda: len(broker.holds))
    limit("held_pulls_per_connection", lambda: broker.holds.most_of_one, lambda: broker.holds.most_of_an_owner)
    limit("offsets", lambda: broker.offsets.most, lambda: broker.offsets.count)
    limit("locks", lambda: broker.locks.most, lambda: len(broker.locks))
    limit("waiting_sends", lambda: config.send_thread_pool_queue_capacity, lambda: broker.waiting_sends)
    limit("memory_bytes", lambda: broker.memory_alarm.mark, lambda: broker.memory_alarm.used())
    limit("slaves", lambda: MOST_SLAVES, lambda: len(broker.slaves.connected))
    broker.metrics.counter(
        "eruca_slaves_rejected_total",
        "Connections to the HA port that were turned away for their number.",
        lambda: broker.slaves.rejected,
    )
    broker.metrics.counter(
        "eruca_memory_alarms_total",
        "Times that sends were refused for a while, as the broker had too much memory.",
        lambda: broker.memory_alarm.alarms,
    )
    broker.metrics.gauge(
        "eruca_sends_suspended",
        "Whether sends are refused at present, as the broker has too much memory.",
        lambda: float(broker.memory_alarm.on),
    )
