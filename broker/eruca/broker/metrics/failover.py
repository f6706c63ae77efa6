"""A group that elects its master, as one of its brokers sees it; without values where the group does not elect it.

Owns which of that becomes metrics. Must not know how a master is elected.
"""

from __future__ import annotations

from collections.abc import Callable

from eruca.broker.broker import Broker
from eruca.broker.failover.group import Group
from eruca.broker.services.failover.driver import Driver

Rows = Callable[[], dict[tuple[()], float]]


def add(broker: Broker) -> None:
    """Add these metrics."""
    _add_broker(broker)
    _add_group(broker)
    _add_etcd(broker)


def _of(broker: Broker, read: Callable[[Driver], float]) -> Rows:
    """A figure of a broker's part in its group."""
    return lambda: {} if broker.group_part is None else {(): float(read(broker.group_part.driver))}


def _of_group(broker: Broker, read: Callable[[Group], float]) -> Rows:
    """A figure of the group, once this broker has heard of it."""

    def rows() -> dict[tuple[()], float]:
        group = broker.group_part.group if broker.group_part is not None else None
        return {} if group is None else {(): float(read(group))}

    return rows


def _of_master(broker: Broker, read: Callable[[Driver], float]) -> Rows:
    """A figure that only the master of a group has."""
    every = _of(broker, read)
    return lambda: every() if broker.role.epoch else {}


def _add_broker(broker: Broker) -> None:
    gauge, counter = broker.metrics.gauge, broker.metrics.counter
    gauge(
        "eruca_failover_state",
        "1 for the state of this broker in its group; barred is one in which an operator decides.",
        lambda: {} if broker.group_part is None else {broker.group_part.member.state.value: 1.0},
        "state",
    )
    gauge(
        "eruca_confirm_offset_bytes",
        "Up to where all of the syncStateSet have the log, as this broker knows.",
        _of(broker, lambda driver: driver.member.confirmed),
    )
    gauge(
        "eruca_master_sure",
        "Whether this master knows that no other one can have been elected; without a value on a slave.",
        _of_master(broker, lambda driver: driver.sure),
    )
    counter(
        "eruca_master_switches_total",
        "Times that this broker has seen the mastership go to another broker.",
        _of(broker, lambda driver: driver.switches),
    )
    counter(
        "eruca_relayed_requests_total",
        "Requests that this broker has passed on to the master after it had handed the mastership over.",
        lambda: {} if broker.relay is None else {(): float(broker.relay.relayed)},
    )


def _add_group(broker: Broker) -> None:
    gauge = broker.metrics.gauge
    gauge(
        "eruca_master_epoch",
        "The epoch of the group's master, as this broker knows.",
        _of_group(broker, lambda group: group.master_epoch),
        merge=max,
    )
    gauge(
        "eruca_sync_state_set_epoch",
        "How often the syncStateSet has changed.",
        _of_group(broker, lambda group: group.sync_state_set_epoch),
        merge=max,
    )
    gauge(
        "eruca_sync_state_set_size",
        "Brokers in the syncStateSet, the master among them.",
        _of_group(broker, lambda group: len(group.sync_state_set)),
    )
    gauge(
        "eruca_sync_state_set_least",
        "How many must be in it for sends to be taken (minInSyncReplicas); without a value on a slave.",
        _of_master(broker, lambda _: broker.config.min_in_sync_replicas),
    )
    gauge(
        "eruca_group_has_master",
        "Whether etcd names a master that is up, as this broker read last.",
        _of(broker, lambda driver: driver.view is not None and driver.view.master is not None),
    )


def _add_etcd(broker: Broker) -> None:
    gauge = broker.metrics.gauge
    gauge(
        "eruca_etcd_silent_seconds",
        "Seconds since etcd answered this broker.",
        _of(broker, lambda driver: driver.etcd_silent() / 1000),
    )
    gauge(
        "eruca_group_forgotten",
        "Whether this broker takes no part as etcd has no group, or an older one than this broker has known.",
        _of(broker, lambda driver: driver.member.forgotten),
    )
