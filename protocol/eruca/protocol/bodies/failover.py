"""What a broker says of its group that elects its master: 1002, 1006, 1007.

Owns the text formats, which are BrokerMemberGroup, BrokerReplicasInfo and EpochEntryCache in 5.3.3. Offsets are of the
commit log.
"""

import msgspec

from eruca.protocol.bodies.body import Body
from eruca.protocol.queues import Int32, Int64


class BrokerMemberGroup(Body):
    """The brokers of a name by their ids, the answer to 1002."""

    broker_addrs: dict[Int64, str] = msgspec.field(default_factory=dict)
    broker_name: str | None = None
    cluster: str | None = None


class ReplicaIdentity(Body):
    """A broker of a group; ``alive`` is whether it is up."""

    alive: bool | None = None
    broker_address: str | None = None
    broker_id: Int64 | None = None
    broker_name: str | None = None


class ReplicasInfo(Body):
    """A group: its master, and who may become the master."""

    in_sync_replicas: list[ReplicaIdentity] = msgspec.field(default_factory=list)
    master_address: str | None = None
    master_broker_id: Int64 | None = None
    master_epoch: Int32 | None = None
    not_in_sync_replicas: list[ReplicaIdentity] = msgspec.field(default_factory=list)
    sync_state_set_epoch: Int32 | None = None


class BrokerReplicasInfo(Body):
    """Groups by broker name, the answer to 1006."""

    replicas_info_table: dict[str, ReplicasInfo] = msgspec.field(default_factory=dict)


class EpochEntry(Body):
    """A part of a log that one master wrote; the last part ends at ``END_OF_LOG``."""

    end_offset: Int64 = 0
    epoch: Int32 = 0
    start_offset: Int64 = 0


class EpochEntryCache(Body):
    """The epochs of a broker's log, the answer to 1007."""

    broker_id: Int64 = 0
    broker_name: str | None = None
    cluster_name: str | None = None
    epoch_list: list[EpochEntry] = msgspec.field(default_factory=list)
    max_offset: Int64 = 0


END_OF_LOG = 2**63 - 1
