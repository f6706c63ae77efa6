"""What this broker is at present: a master or a slave, under which id, and whether sends wait for a slave.

Owns the present role. The settings brokerRole and brokerId say what it shall be, or who appoints it, where a group
elects its master; both differ from it until ``duties`` has made the change. Everybody who acts by the role asks here,
nobody asks the settings. Must not know what follows from a role. Invariant: role, id and epoch change together, and
between two turns of the event loop.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from eruca.broker.config import BrokerConfig, BrokerRole

MASTER_ID = 0
"""The id of every master, as in BrokerStartup of 4.9.7."""


class Wanted(NamedTuple):
    """A role that a broker shall have."""

    kind: BrokerRole
    broker_id: int
    epoch: int = 0
    """Of a master that was elected, the epoch; else 0."""

    @property
    def is_slave(self) -> bool:
        """Whether this is a slave's."""
        return self.kind is BrokerRole.SLAVE


class Role:
    """The role of one broker; plain attributes, since each message asks for them."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self.due = asyncio.Event()
        """Set while the settings say another role."""
        self._settled = asyncio.Event()
        self._appointed: Wanted | None = None
        self.member_id = config.broker_id
        """The number of this broker in a group that elects its master, whatever its role."""
        if config.enable_controller_mode:  # until it is elected
            self._appointed = Wanted(BrokerRole.SLAVE, self.member_id)
        self.take(self.wanted)

    @property
    def wanted(self) -> Wanted:
        """What it was appointed, or what the settings say. A master has the id 0, whatever brokerId says."""
        if self._appointed is not None:
            return self._appointed
        kind = self._config.store.broker_role
        return Wanted(kind, self._config.broker_id if kind is BrokerRole.SLAVE else MASTER_ID)

    @property
    def elected(self) -> bool:
        """Whether its group decides the role, and not an operator."""
        return self._appointed is not None

    @property
    def founds(self) -> bool:
        """Whether the settings ask for a master: such a broker founds a group that is not there."""
        return self._config.store.broker_role is not BrokerRole.SLAVE

    async def lead(self, epoch: int) -> None:
        """Be the master that was elected; sends wait for the syncStateSet, unless the settings ask for ASYNC_MASTER."""
        kind = self._config.store.broker_role
        await self.appoint(Wanted(kind if self.founds else BrokerRole.SYNC_MASTER, MASTER_ID, epoch))

    async def follow(self) -> None:
        """Be a slave, as the master of the group is another one."""
        await self.appoint(Wanted(BrokerRole.SLAVE, self.member_id))

    async def appoint(self, wanted: Wanted) -> None:
        """Have this role, whatever the settings say; it has it when this returns."""
        self._appointed = wanted
        self.look()
        await self.settled()

    def take(self, wanted: Wanted) -> None:
        """Be this from now on."""
        self.kind, self.broker_id, self.epoch = wanted
        self.is_slave = wanted.is_slave
        self.sync = self.kind is BrokerRole.SYNC_MASTER
        """Whether sends wait for a slave."""
        self.look()

    def look(self) -> None:
        """To be called when settings have changed: is another role due?"""
        if (self.kind, self.broker_id, self.epoch) != self.wanted:
            self.due.set()
            self._settled.clear()
        else:
            self.due.clear()
            self._settled.set()

    async def settled(self) -> None:
        """Wait until this broker is what it shall be."""
        await self._settled.wait()
