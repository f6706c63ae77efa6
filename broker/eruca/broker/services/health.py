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
from eruca.broker.services.role import Role
from eruca.broker.store import Store
from eruca.remoting.readiness import Readiness


def watch_readiness(
    readiness: Readiness, role: Role, store: Store, registration: Registration, copy_fault: Callable[[], str | None]
) -> None:
    """Add what makes a broker not ready: no nameserver has it, it cannot store, a slave copies no master's log
    (``copy_fault`` says why)."""
    readiness.add("registration", lambda: registration.fault)
    readiness.add("store", lambda: no_room(store))
    readiness.add("master", lambda: copy_fault() if role.is_slave else None)


def no_room(store: Store) -> str | None:
    """Why nothing can be stored; a slave's store always refuses messages of clients: its disk counts."""
    return None if store.refusal == store.appender.standing else store.refusal


def state(
    config: BrokerConfig, role: Role, store: Store, address: str, started: int, name_of_version: str, native: bool
) -> dict[str, Any]:
    """What /info shows: who the broker is, and where its log is; no setting."""
    figures = store.figures()
    return {
        "version": name_of_version,
        "role": role.kind.name,
        "brokerName": config.broker_name,
        "brokerId": role.broker_id,
        "cluster": config.broker_cluster_name,
        "address": address,
        "processId": os.getpid(),
        "started": started,
        "nativeStep": native,
        "minOffset": figures.min_offset,
        "maxOffset": figures.max_offset,
        "flushedOffset": figures.flushed_offset,
    }
