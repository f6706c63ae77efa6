"""What operators see of a broker's part in its group: the lines of ``mqadmin brokerStatus``, by Eruca's own names.

Pure. Must not know who asks; ``metrics.failover`` has the same for Prometheus.
"""

from __future__ import annotations

from eruca.broker.failover.group import Group
from eruca.broker.failover.member import State
from eruca.broker.services.failover.driver import Driver


def figures(driver: Driver, relayed: int) -> dict[str, str]:
    """The figures as texts by name; those of the group are missing before this broker has heard of it."""
    member = driver.member
    of_group = _of_group(member.known.group) if member.known is not None else {}
    return {
        "groupState": member.state.value,
        "groupBrokerId": str(member.broker_id),
        **of_group,
        "confirmOffset": str(member.confirmed),
        "masterSure": str(driver.sure).lower(),
        "masterSwitches": str(driver.switches),
        "etcdSilentMillis": str(driver.etcd_silent()),
        "relayed": str(relayed),
    }


def _of_group(group: Group) -> dict[str, str]:
    return {
        "masterBrokerId": str(group.master_broker_id),
        "masterEpoch": str(group.master_epoch),
        "syncStateSet": ",".join(map(str, sorted(group.sync_state_set))),
        "syncStateSetEpoch": str(group.sync_state_set_epoch),
    }


def is_forgotten(driver: Driver) -> bool:
    """Whether this broker takes no part because etcd has no group, or an older one than its log: it was emptied, or
    restored from a backup."""
    view, member = driver.view, driver.member
    if member.state is not State.BARRED or view is None:
        return False
    return view.known is None or view.known.group.master_epoch < member.epoch
