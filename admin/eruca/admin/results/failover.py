"""Groups of brokers that elect their master: who leads, who may lead, the epochs of their logs, and how they copy.

Owns whom to ask: any broker of such a group answers for it, and so does a controller of RocketMQ 5. Facts:
DefaultMQAdminExtImpl in 5.3.3.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Annotated, TypeVar

import msgspec

from eruca.admin.client import Admin
from eruca.admin.errors import NotFound
from eruca.admin.lookups import Asked, ask_each
from eruca.admin.results.answer import WIDE, Answer, Moment, Result, Table, errors_of
from eruca.admin.text import nearest
from eruca.protocol import api
from eruca.protocol.bodies import (
    BrokerData,
    BrokerMemberGroup,
    BrokerReplicasInfo,
    EpochEntryCache,
    HARuntimeInfo,
    ReplicaIdentity,
    ReplicasInfo,
)
from eruca.protocol.headers.failover import ElectMaster, ElectMasterReply
from eruca.remoting import Answer as Answered

T = TypeVar("T")


async def brokers_named(admin: Admin, name: str | None, cluster: str) -> list[BrokerData]:
    """The brokers of a name, or of all names of a cluster. Raises NotFound for what the nameserver does not know."""
    if name is None:
        registered = [broker for broker in await admin.brokers_in(cluster) if broker.broker_addrs]
        if not registered:
            raise NotFound(f"no broker of cluster {cluster} is registered at the nameserver: start one")
        return registered
    known = (await admin.clusters()).broker_addr_table
    if name not in known:
        raise NotFound(f"the nameserver knows no broker {name}{nearest(name, sorted(known))}")
    return [known[name]]


async def _asked(asks: Mapping[str, Awaitable[T]]) -> Asked[T]:
    """As ``ask_each``; raises the error of the first one if nobody answered."""
    asked = await ask_each(asks)
    if not asked.answers:
        for name in asks:
            raise asked.errors[name]
    return asked


async def leader(admin: Admin, address: str) -> str:
    """Who answers for a group: the controller's leader, or the group's master (1005)."""
    said = (await admin.call(address, api.CONTROLLER_GET_METADATA_INFO)).header
    return said.controller_leader_address or address


# ------------------------------------------------------------------ the syncStateSet


class Replica(Result, frozen=True, kw_only=True, rename="camel"):
    """A broker of a group."""

    broker: str
    broker_id: int
    address: str
    alive: bool
    """Whether it is up."""
    in_sync: bool
    """Whether it is in the syncStateSet, and may become the master."""
    leads: bool
    """Whether it is the master."""
    master_epoch: Annotated[int, WIDE]
    set_epoch: Annotated[int, WIDE]
    """How often the syncStateSet has changed."""


class SyncStateSets(Table[Replica], frozen=True, kw_only=True, rename="camel"):
    """All brokers of the groups."""


class Replicas(msgspec.Struct, frozen=True):
    """The groups as they were answered, by name, and what is shown of them."""

    groups: dict[str, ReplicasInfo]
    result: SyncStateSets


async def sync_state_sets(admin: Admin, controller: str | None, brokers: Sequence[BrokerData]) -> Replicas:
    """The syncStateSets of groups (1006), from a controller, or from each group itself.

    Raises NotFound where no group is known, as while no master was registered, and the error of the first one if nobody
    answered.
    """
    names = [broker.broker_name for broker in brokers]
    if controller is not None:
        asked = {controller: (await leader(admin, controller), names)}
    else:
        asked = {broker.broker_name: (somebody(broker), [broker.broker_name]) for broker in brokers}
    answered = await _asked({each: _sets(admin, *question) for each, question in asked.items()})
    groups = {name: group for table in answered.answers.values() for name, group in table.items()}
    unknown = {
        name: NotFound(
            f"{address} answered, and knows no master of {name} yet: brokers learn of it from etcd, see no-master in "
            "the runbook"
        )
        for each, (address, wanted) in asked.items()
        if each in answered.answers
        for name in wanted
        if name not in groups
    }
    if unknown and not groups:
        raise next(iter(unknown.values()))
    items = [replica for name in sorted(groups) for replica in _replicas(name, groups[name])]
    errors = errors_of({**answered.errors, **unknown}, "its syncStateSet is missing")
    return Replicas(groups, SyncStateSets(items=items, errors=errors))


def somebody(broker: BrokerData) -> str:
    """One of the brokers of a group, its master if that is there."""
    return broker.master() or min(broker.broker_addrs.items())[1]


async def _sets(admin: Admin, address: str, names: Sequence[str]) -> Mapping[str, ReplicasInfo]:
    answer = await admin.call(address, api.CONTROLLER_GET_SYNC_STATE_DATA, None, msgspec.json.encode(names))
    return BrokerReplicasInfo.decode(answer.body).replicas_info_table


def _replicas(name: str, group: ReplicasInfo) -> list[Replica]:
    def replica(each: ReplicaIdentity, *, in_sync: bool) -> Replica:
        return Replica(
            broker=name,
            broker_id=each.broker_id or 0,
            address=each.broker_address or "",
            alive=bool(each.alive),
            in_sync=in_sync,
            leads=each.broker_id == group.master_broker_id,
            master_epoch=group.master_epoch or 0,
            set_epoch=group.sync_state_set_epoch or 0,
        )

    inside = [replica(each, in_sync=True) for each in group.in_sync_replicas]
    outside = [replica(each, in_sync=False) for each in group.not_in_sync_replicas]
    return sorted(inside + outside, key=lambda each: each.broker_id)


# ------------------------------------------------------------------ epochs


class EpochPart(Result, frozen=True, kw_only=True, rename="camel"):
    """A part of a broker's log that one master wrote."""

    cluster: Annotated[str, WIDE]
    broker: str
    broker_id: int
    address: str
    epoch: int
    start_offset: int
    end_offset: int


class BrokerEpochs(Table[EpochPart], frozen=True, kw_only=True, rename="camel"):
    """The epochs of all logs that were asked for."""


async def broker_epochs(admin: Admin, brokers: Sequence[BrokerData]) -> tuple[dict[str, EpochEntryCache], BrokerEpochs]:
    """The epochs of the brokers' logs (1007), by address, and what is shown of them. The last part ends at the log's
    end.
    """
    places = [address for broker in brokers for _, address in sorted(broker.broker_addrs.items())]
    asked = await _asked({address: _epochs(admin, address) for address in places})
    logs = {address: asked.answers[address] for address in places if address in asked.answers}
    items = [
        EpochPart(
            cluster=log.cluster_name or "",
            broker=log.broker_name or "",
            broker_id=log.broker_id,
            address=address,
            epoch=part.epoch,
            start_offset=part.start_offset,
            end_offset=part.end_offset,
        )
        for address, log in logs.items()
        for part in log.epoch_list
    ]
    return logs, BrokerEpochs(items=items, errors=errors_of(asked.errors, "its epochs are missing"))


async def _epochs(admin: Admin, address: str) -> EpochEntryCache:
    log = EpochEntryCache.decode((await admin.call(address, api.GET_BROKER_EPOCH_CACHE)).body)
    if log.epoch_list:
        log.epoch_list[-1].end_offset = log.max_offset
    return log


# ------------------------------------------------------------------ how logs are copied


class Copy(Result, frozen=True, kw_only=True, rename="camel"):
    """A slave's copy of its master's log, as one of both sees it."""

    asked: str
    """The broker that was asked."""
    slave: str
    """The slave's address; empty where a master has none."""
    master: str
    log_end: int
    """Where the log of the broker that was asked ends."""
    confirmed: int | None
    """What the slave has confirmed; None where the slave was asked."""
    behind: int | None
    """Bytes that it lacks."""
    in_sync: bool | None
    bytes_per_second: int
    heard: Annotated[Moment | None, WIDE]
    """When the slave heard of its master."""


class Copies(Table[Copy], frozen=True, kw_only=True, rename="camel"):
    """The copies that the brokers know of."""


async def masters(admin: Admin, cluster: str) -> list[str]:
    """The addresses of the masters of a cluster, one at least. Raises NotFound."""
    addresses = await admin.masters(cluster)
    if not addresses:
        raise NotFound(
            f"no master of cluster {cluster} is registered: name a broker with -b, or see no-master in the runbook"
        )
    return addresses


async def copies(admin: Admin, addresses: Sequence[str]) -> tuple[dict[str, HARuntimeInfo], Copies]:
    """The state of replication at brokers (907), by address, and what is shown of it."""
    asked = await _asked({address: _copies(admin, address) for address in addresses})
    states = {address: asked.answers[address] for address in addresses if address in asked.answers}
    items = [copy for address, state in states.items() for copy in _items(address, state)]
    return states, Copies(items=items, errors=errors_of(asked.errors, "its state of replication is missing"))


async def _copies(admin: Admin, address: str) -> HARuntimeInfo:
    return HARuntimeInfo.decode((await admin.call(address, api.GET_BROKER_HA_STATUS)).body)


def _items(address: str, state: HARuntimeInfo) -> list[Copy]:
    if state.master:
        return [
            Copy(
                asked=address,
                slave=each.addr or "",
                master=address,
                log_end=state.master_commit_log_max_offset,
                confirmed=each.slave_ack_offset,
                behind=each.diff,
                in_sync=each.in_sync,
                bytes_per_second=each.transferred_byte_in_second,
                heard=None,
            )
            for each in state.ha_connection_info
        ]
    own = state.ha_client_runtime_info
    return [
        Copy(
            asked=address,
            slave=address,
            master=own.master_addr or "",
            log_end=own.max_offset,
            confirmed=None,
            behind=None,
            in_sync=None,
            bytes_per_second=own.transferred_byte_in_second,
            heard=Moment.known(own.last_read_timestamp),
        )
    ]


# ------------------------------------------------------------------ handing over


class Elected(Answer, frozen=True, kw_only=True, rename="camel"):
    """The master after a hand-over, and the brokers of its group by their ids."""

    cluster: str
    broker: str
    master: str
    master_epoch: int
    set_epoch: int
    brokers: dict[str, str]


async def elect(admin: Admin, address: str, cluster: str, broker: str, broker_id: int) -> Elected:
    """Hand the mastership of a group over to one of its brokers (1002), which its master does, or a controller."""
    ask = ElectMaster(cluster_name=cluster, broker_name=broker, broker_id=broker_id, designate_elect=True)
    answer = await admin.call(await leader(admin, address), api.CONTROLLER_ELECT_MASTER, ask, timeout=ELECTED_WITHIN)
    return elected(cluster, broker, answer)


def elected(cluster: str, broker: str, answer: Answered[ElectMasterReply]) -> Elected:
    """What an answer to 1002 says."""
    said = answer.header
    members = BrokerMemberGroup.decode(answer.body).broker_addrs if answer.body else {}
    return Elected(
        cluster=cluster,
        broker=broker,
        master=said.master_address or "",
        master_epoch=said.master_epoch or 0,
        set_epoch=said.sync_state_set_epoch or 0,
        brokers={str(number): at for number, at in sorted(members.items())},
    )


ELECTED_WITHIN = 15.0
"""Seconds for a hand-over: the others get what they lack, and one is elected."""
