"""What this broker is at present: a master or a slave, under which id, and whether sends wait for a slave.

Owns the present role. The settings brokerRole and brokerId say what it shall be; they differ from it until
``duties`` has made the change. Everybody who acts by the role asks here, nobody asks the settings. Must not know what
follows from a role. Invariant: role and id change together, and between two turns of the event loop.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from eruca.broker.config import BrokerConfig, BrokerRole

MASTER_ID = 0
"""The id of every master, as in BrokerStartup of 4.9.7."""


class Wanted(NamedTuple):
    """A role that the settings ask for."""

    kind: BrokerRole
    broker_id: int

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
        self.take(self.wanted)

    @property
    def wanted(self) -> Wanted:
        """What the settings say. A master has the id 0, whatever brokerId says."""
        kind = self._config.store.broker_role
        return Wanted(kind, self._config.broker_id if kind is BrokerRole.SLAVE else MASTER_ID)

    def take(self, wanted: Wanted) -> None:
        """Be this from now on."""
        self.kind, self.broker_id = wanted
        self.is_slave = wanted.is_slave
        self.sync = self.kind is BrokerRole.SYNC_MASTER
        """Whether sends wait for a slave."""
        self.look()

    def look(self) -> None:
        """To be called when settings have changed: is another role due?"""
        if (self.kind, self.broker_id) != self.wanted:
            self.due.set()
            self._settled.clear()
        else:
            self.due.clear()
            self._settled.set()

    async def settled(self) -> None:
        """Wait until this broker is what the settings say."""
        await self._settled.wait()
