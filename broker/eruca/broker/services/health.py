"""When a broker is ready for clients, and what it says of itself.

Owns the parts that are asked each time; others say themselves when they are not ready (``readiness.withdraw``). Must
not know HTTP. Invariant: nothing here waits.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from eruca.broker.config import BrokerConfig
from eruca.broker.services.registration import Registration
from eruca.broker.services.replication.ha_client import HAClient
from eruca.broker.store import Store
from eruca.remoting.readiness import Readiness


def watch_readiness(
    readiness: Readiness, config: BrokerConfig, store: Store, registration: Registration, ha_client: HAClient
) -> None:
    """Add what makes a broker not ready: no nameserver has it, it cannot store, a slave follows nobody."""
    readiness.add("registration", lambda: registration.fault)
    readiness.add("store", _slaves_disk(store) if config.is_slave else lambda: store.refusal)
    if config.is_slave:
        readiness.add("master", lambda: None if ha_client.connected else "this slave follows no master")


def _slaves_disk(store: Store) -> Callable[[], str | None]:
    """A slave's store always refuses messages of clients: its disk counts."""
    return lambda: None if store.refusal == store.appender.standing else store.refusal


def state(
    config: BrokerConfig, store: Store, address: str, started: int, name_of_version: str, native: bool
) -> dict[str, Any]:
    """What /info shows: who the broker is, and where its log is; no setting."""
    figures = store.figures()
    return {
        "version": name_of_version,
        "role": config.store.broker_role.name,
        "brokerName": config.broker_name,
        "brokerId": config.broker_id,
        "cluster": config.broker_cluster_name,
        "address": address,
        "processId": os.getpid(),
        "started": started,
        "nativeStep": native,
        "minOffset": figures.min_offset,
        "maxOffset": figures.max_offset,
        "flushedOffset": figures.flushed_offset,
    }
