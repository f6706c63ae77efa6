"""What a broker's slaves, its master and its nameservers have of it.

Owns which of that becomes metrics. Must not know how replication or registration works.
"""

from __future__ import annotations

from collections.abc import Callable

from eruca.broker.broker import Broker
from eruca.broker.failover.member import State
from eruca.broker.services.replication.ha_server import HAConnection


def add(broker: Broker) -> None:
    """Add these metrics."""
    broker.metrics.gauge(
        "eruca_registration_age_seconds",
        "Seconds since a nameserver took a registration of this broker.",
        broker.registration.ages,
        "nameserver",
    )
    _add_slave(broker)
    _add_master(broker)


def _add_slave(broker: Broker) -> None:
    client, role = broker.ha_client, broker.role
    broker.metrics.gauge(
        "eruca_master_connected",
        "Whether this slave follows its master; without a value on a master.",
        lambda: {(): float(_follows(broker))} if role.is_slave else {},
    )
    broker.metrics.gauge(
        "eruca_master_silent_seconds",
        "Seconds since something came from the master; without a value while there is none.",
        lambda: {} if client.silent is None else {(): client.silent},
    )


def _add_master(broker: Broker) -> None:
    end, role = broker.store.replicator, broker.role

    def of_slaves(value: Callable[[HAConnection], float]) -> Callable[[], dict[str, float]]:
        return lambda: {slave.remote: value(slave) for slave in broker.slaves.connected if slave.acknowledged >= 0}

    gauge = broker.metrics.gauge
    gauge(
        "eruca_slaves_connected",
        "Slaves that are connected; without a value on a slave.",
        lambda: {} if role.is_slave else {(): _followers(broker)},
    )
    gauge(
        "eruca_replication_lag_bytes",
        "Bytes of the log that a slave has not confirmed.",
        of_slaves(lambda slave: end.end_offset - slave.acknowledged),
        "slave",
        merge=max,
    )
    gauge(
        "eruca_slave_stuck",
        "Whether a slave has confirmed nothing for haStuckAfter, though it lacks something.",
        of_slaves(lambda slave: float(slave.stuck)),
        "slave",
    )
    gauge(
        "eruca_visible_behind_bytes",
        "Bytes of the log that consumers cannot see as no slave has them; 0 but on a SYNC_MASTER.",
        lambda: {} if role.is_slave else {(): _hidden(broker)},
    )


def _follows(broker: Broker) -> bool:
    part = broker.group_part
    return broker.ha_client.fault is None if part is None else part.member.state is State.FOLLOWING


def _followers(broker: Broker) -> int:
    part = broker.group_part
    return len(broker.slaves.connected) if part is None else sum(each.follows for each in part.member.replicas)


def _hidden(broker: Broker) -> int:
    limit = broker.store.visible_limit
    return 0 if limit is None else max(broker.store.replicator.end_offset - limit, 0)
