"""Headers of a group that elects its master.

Fields are those of the headers of codes 1002 and 1005 in 5.3.3, where a controller answers them.
"""

from __future__ import annotations

from msgspec import field

from eruca.protocol.header import Header, Int, Long


class ElectMaster(Header, kw_only=True):
    """1002: hand the mastership over to a broker; with the fields of Eruca's own, have it write the group again."""

    cluster_name: str
    broker_name: str
    broker_id: Long
    designate_elect: bool = False
    invoke_time: Long | None = None
    recreate: bool = False
    """Whether etcd has lost the group, and this broker is to write it again."""
    known_epoch: Int | None = None
    """The highest epoch of a master that any broker of the group knows ..."""
    known_set_epoch: Int | None = None
    """... and the highest syncStateSetEpoch."""


class ElectMasterReply(Header, kw_only=True):
    """Who is the master now."""

    master_broker_id: Long | None = None
    master_address: str | None = None
    master_epoch: Int | None = None
    sync_state_set_epoch: Int | None = None


class ControllerMetadata(Header, kw_only=True):
    """1005: who leads."""

    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool = False
    peers: str | None = None


class RelayedReply(Header, kw_only=True):
    """What the master's answer to a request that was passed on has: the fields of an answer to a send, or none."""

    msg_id: str | None = None
    queue_id: Int | None = None
    queue_offset: Long | None = None
    transaction_id: str | None = None
    region: str | None = field(name="MSG_REGION", default=None)
    trace_on: bool | None = field(name="TRACE_ON", default=None)
