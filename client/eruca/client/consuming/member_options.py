"""The options that every member of a group has, whatever kind of consumer it is.

Owns their defaults and checks, and what follows from them alone: the allocation, and the store of the offsets. Must not
know queues or routes.
"""

from __future__ import annotations

from os import PathLike

import msgspec

from eruca.client import callbacks
from eruca.client.assign import Strategy, averagely, everything
from eruca.client.checks import check_sharing
from eruca.client.config import StartFrom, check_positive, check_start
from eruca.client.consuming.offset_store import OffsetStore, RemoteBrokerOffsetStore
from eruca.client.consuming.rebalance_listener import QueuesListener
from eruca.client.network.events import EventListeners
from eruca.client.network.session import Session


class MemberOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options that every member of a group has; see PushConsumer.

    ``store_start`` stores the first offset of a group without offsets. Raises BadConfig and UsageError.
    """

    start_from: StartFrom = "last"
    strategy: Strategy = averagely
    broadcast: bool = False
    offset_folder: str | PathLike[str] | None = None
    rebalance_interval: float = 20.0
    store_start: bool = False
    on_assigned: QueuesListener | None = None
    on_revoked: QueuesListener | None = None
    events: EventListeners = msgspec.field(default_factory=EventListeners)

    def __post_init__(self) -> None:
        check_start(self.start_from)
        check_positive(rebalance_interval=self.rebalance_interval)
        check_sharing(self.strategy, self.offset_folder, broadcast=self.broadcast)
        for name, function in (("on_assigned", self.on_assigned), ("on_revoked", self.on_revoked)):
            if function is not None:
                callbacks.check_callable(function, name, "queues")

    @property
    def allocation(self) -> Strategy:
        """How queues are allocated; a broadcasting member gets all."""
        return everything if self.broadcast else self.strategy

    def offset_store(self, session: Session, group: str) -> OffsetStore:
        """The store of the group's offsets."""
        if self.broadcast:
            from eruca.client.consuming.local_offsets import LocalFileOffsetStore  # few consumers need it

            return LocalFileOffsetStore(self.offset_folder, session, group)
        return RemoteBrokerOffsetStore(session, group)
