"""The state of replication: the answer to 907 (HARuntimeInfo in 5.3.3).

Offsets are of the commit log, times in ms since 1970.
"""

import msgspec

from eruca.protocol.bodies.body import Body
from eruca.protocol.queues import Int32, Int64


class HAConnectionRuntimeInfo(Body):
    """A slave as its master sees it: ``diff`` is the number of unconfirmed bytes."""

    addr: str | None = None
    diff: Int64 = 0
    in_sync: bool = False
    slave_ack_offset: Int64 = 0
    transfer_from_where: Int64 = 0
    transferred_byte_in_second: Int64 = 0


class HAClientRuntimeInfo(Body):
    """A slave as it sees itself."""

    activated: bool = False
    last_read_timestamp: Int64 = 0
    last_write_timestamp: Int64 = 0
    master_addr: str | None = None
    master_flush_offset: Int64 = 0
    max_offset: Int64 = 0
    transferred_byte_in_second: Int64 = 0


class HARuntimeInfo(Body):
    """The whole answer, of a master or of a slave."""

    ha_client_runtime_info: HAClientRuntimeInfo = msgspec.field(default_factory=HAClientRuntimeInfo)
    ha_connection_info: list[HAConnectionRuntimeInfo] = msgspec.field(default_factory=list)
    in_sync_slave_nums: Int32 = 0
    master: bool = False
    master_commit_log_max_offset: Int64 = 0
