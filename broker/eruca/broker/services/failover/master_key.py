"""This broker's key ``master`` in etcd: on which hold it stands, put again on another one, given up for another broker.

Owns the value and what is known of the key. The transaction of an election, which puts it first, is that of
``etcd_calls``. Must not know who should lead. Invariant: the key is put again only while the group's key is as this
master knows it.
"""

from __future__ import annotations

import structlog

from eruca.broker.coordination.port import Coordinator, Put
from eruca.broker.failover.member import Known
from eruca.broker.services.failover.keys import Keys, Mastery, encode
from eruca.broker.services.failover.ports import Self

log = structlog.get_logger("eruca.broker.failover")


class MasterKey:
    """The key of one broker."""

    def __init__(self, me: Self, keys: Keys, coordinator: Coordinator) -> None:
        self.stands: tuple[int, int] | None = None
        """The hold on which it stands, and its epoch, if this broker has put it."""
        self.unwanted: int | None = None
        """The revision of one of a former life, which is to go."""
        self._me = me
        self._keys = keys
        self._coordinator = coordinator

    def of(self, epoch: int, hold: int | None) -> Put:
        """The key of that epoch."""
        me = self._me
        value = encode(Mastery(me.broker_id, me.store, epoch, me.address, me.ha_address))
        return Put(self._keys.master, value, hold)

    async def put(self, known: Known, hold: int) -> bool:
        """Put it again, in the same epoch; False if the group has changed. Raises Unavailable, HoldEnded."""
        epoch = known.group.master_epoch
        if await self._coordinator.change({self._keys.group: known.revision}, [self.of(epoch, hold)]) is None:
            return False
        self.stands = hold, epoch
        return True

    async def give_up(self) -> bool:
        """Let another broker stand, which has the tables that this one kept in memory; whether that was to be done.

        Raises Unavailable, HoldEnded.
        """
        if self.unwanted is None:
            return False
        if await self._coordinator.change({self._keys.master: self.unwanted}, [], [self._keys.master]) is not None:
            log.info("mastership_given_up", reason="this broker was started again, and others have the tables")
        self.unwanted = None
        return True
