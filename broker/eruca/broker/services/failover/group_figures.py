"""What operators see of a broker's part in its group: the lines of ``mqadmin brokerStatus``, by Eruca's own names.

Pure. Must not know who asks; ``metrics.failover`` has the same for Prometheus.
"""

from __future__ import annotations

from eruca.broker.failover.group import Group
from eruca.broker.services.failover.driver import Driver


def figures(driver: Driver, relayed: int) -> dict[str, str]:
    """The figures as texts by name; those of the group, as this broker knew it last, are missing before it has heard of
    it."""
    member = driver.member
    return {
        "groupState": member.state.value,
        "groupBrokerId": str(member.broker_id),
        "groupForgotten": str(member.forgotten).lower(),
        "groupStore": member.store,
        "groupLogEpoch": str(member.reached_epoch),
        **({"groupDamagedAt": str(member.damaged_at)} if member.damaged_at is not None else {}),
        **(_of_group(driver.kept.group) if driver.kept.group is not None else {}),
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
        "syncStateSetStores": ",".join(
            f"{number}={store}" for number, store in group.stores if number in group.sync_state_set
        ),
    }
