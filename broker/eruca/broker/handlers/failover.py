"""A group that elects its master, for operators: what a controller answers in RocketMQ 5 (1002, 1005, 1006), and the
epochs of a log (1007).

Any broker of a group answers for it, so ``mqadmin`` of 5.x takes its address for a controller's; it sends 1002 and 1006
to the one that 1005 names, the master. Must not know how a master is elected. Outside of such a group the answer is 3,
as that of Apache's brokers of 4.9.
"""

from __future__ import annotations

import msgspec

from eruca.broker.broker import Broker
from eruca.broker.failover.group import Group
from eruca.broker.services.failover.group_part import GroupPart, HandOverRefused, RecreationRefused
from eruca.protocol import api
from eruca.protocol.bodies import (
    END_OF_LOG,
    BrokerMemberGroup,
    BrokerReplicasInfo,
    EpochEntry,
    EpochEntryCache,
    ReplicaIdentity,
    ReplicasInfo,
)
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import Refused
from eruca.protocol.header import Empty
from eruca.protocol.headers.failover import ControllerMetadata, ElectMaster, ElectMasterReply
from eruca.remoting import Call, Reply, Routes

routes: Routes[Broker] = Routes()


def _part(broker: Broker) -> GroupPart:
    """This broker's part in its group. Raises Refused where it has none."""
    if broker.group_part is not None:
        return broker.group_part
    if broker.confirmation is not None:
        raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, "this broker has not joined its group yet: try again")
    raise Refused(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        "this broker's group does not elect its master (enableControllerMode is false)",
    )


@routes.on(api.CONTROLLER_GET_METADATA_INFO, reads=True)
def metadata(broker: Broker, call: Call[Empty]) -> Reply:
    """Whom to ask about the group: its master, or this broker while the master is away."""
    part = _part(broker)
    addresses, group = part.addresses(), part.group
    leader = group.master_broker_id if group is not None and group.master_broker_id in addresses else part.broker_id
    return Reply(
        header=ControllerMetadata(
            group=broker.name,
            controller_leader_id=str(leader),
            controller_leader_address=addresses[leader],
            is_leader=leader == part.broker_id,
            peers=";".join(f"{number}:{address}" for number, address in sorted(addresses.items())),
        )
    )


@routes.on(api.CONTROLLER_GET_SYNC_STATE_DATA, reads=True)
def sync_state(broker: Broker, call: Call[Empty]) -> Reply:
    """The master and the syncStateSet, if this broker's name is among those that are asked for."""
    part = _part(broker)
    try:
        asked = msgspec.json.decode(call.body, type=list[str])
    except msgspec.MsgspecError:
        raise Refused(ResponseCode.SYSTEM_ERROR, "the body of 1006 is a JSON list of broker names") from None
    table = {broker.name: _replicas(broker, part)} if broker.name in asked and part.group is not None else {}
    return Reply(body=BrokerReplicasInfo(replicas_info_table=table).encode())


def _replicas(broker: Broker, part: GroupPart) -> ReplicasInfo:
    group, addresses = part.group, part.addresses()
    assert group is not None
    followers = {number for number, _ in group.stores} | addresses.keys()

    def identity(number: int) -> ReplicaIdentity:
        return ReplicaIdentity(
            broker_name=broker.name,
            broker_id=number,
            broker_address=addresses.get(number, ""),
            alive=number in addresses,
        )

    return ReplicasInfo(
        master_broker_id=group.master_broker_id,
        master_address=addresses.get(group.master_broker_id, ""),
        master_epoch=group.master_epoch,
        sync_state_set_epoch=group.sync_state_set_epoch,
        in_sync_replicas=[identity(number) for number in sorted(group.sync_state_set)],
        not_in_sync_replicas=[identity(number) for number in sorted(followers - group.sync_state_set)],
    )


@routes.on(api.GET_BROKER_EPOCH_CACHE, reads=True)
def epochs(broker: Broker, call: Call[Empty]) -> Reply:
    """Which master wrote which part of this broker's log."""
    part = _part(broker)
    entries = part.member.epochs
    ends = [*(entry.start for entry in entries), END_OF_LOG][1:]
    return Reply(
        body=EpochEntryCache(
            cluster_name=broker.cluster,
            broker_name=broker.name,
            broker_id=part.broker_id,
            epoch_list=[
                EpochEntry(epoch=entry.epoch, start_offset=entry.start, end_offset=end)
                for entry, end in zip(entries, ends, strict=True)
            ],
            max_offset=broker.store.replicator.end_offset,
        ).encode()
    )


@routes.on(api.CONTROLLER_ELECT_MASTER, changes="master")
async def elect(broker: Broker, call: Call[ElectMaster]) -> Reply:
    """Hand the mastership over to a member of the syncStateSet; answered by the master, when the other one leads."""
    part, asked = _part(broker), call.header
    if (asked.cluster_name, asked.broker_name) != (broker.cluster, broker.name):
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"this broker is of {broker.name} in {broker.cluster}, not of {asked.broker_name} in {asked.cluster_name}: "
            "ask a broker of that group",
        )
    call.note(target=broker.name, before=str(part.broker_id), after=str(asked.broker_id))
    try:
        group = await (_recreated(part, asked) if asked.recreate else part.hand_over(asked.broker_id))
    except (HandOverRefused, RecreationRefused) as refusal:
        raise Refused(ResponseCode.SYSTEM_ERROR, str(refusal)) from None
    addresses = dict(part.addresses())
    header = ElectMasterReply(
        master_broker_id=group.master_broker_id,
        master_address=addresses.get(group.master_broker_id),
        master_epoch=group.master_epoch,
        sync_state_set_epoch=group.sync_state_set_epoch,
    )
    members = BrokerMemberGroup(cluster=broker.cluster, broker_name=broker.name, broker_addrs=addresses)
    return Reply(header=header, body=members.encode())


async def _recreated(part: GroupPart, asked: ElectMaster) -> Group:
    if asked.broker_id != part.broker_id:
        raise RecreationRefused(f"this is broker {part.broker_id}, not broker {asked.broker_id}: ask that one")
    return await part.recreate(asked.known_epoch or 0, asked.known_set_epoch or 0)
