"""Brokers that elect their master among themselves, in this process, with an etcd in the test's hand."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from eruca.broker.config import BrokerRole, FlushDiskType
from eruca.broker.services.failover.keys import Keys
from tests.broker.services.replication.pairs import master_of
from tests.support.coordination import FakeClient, FakeCoordinator
from tests.support.desk import Desk
from tests.support.names import Names

KEYS = Keys("Lab", "broker-a")


class Group:
    """Brokers 1, 2 ... of one name, with an etcd in the test's hand; broker 1 is configured as the master."""

    def __init__(self, folder: Path, names: Names) -> None:
        self.etcd = FakeCoordinator()
        self.desks: dict[int, Desk] = {}
        self.file_sizes: dict[int, int] = {}
        """The brokers whose files of the log are not of 1 MiB."""
        self._folder = folder
        self._names = names

    async def start(self, number: int, *, sync_flush: bool = False, **settings: object) -> Desk:
        desk = self.desks[number] = master_of(
            self._folder / str(number), file_size=self.file_sizes.get(number, 1 << 20)
        )
        desk.config.enable_controller_mode = True
        desk.config.controller_addr = "http://127.0.0.1:1"
        desk.config.broker_id = number
        desk.config.store.broker_role = BrokerRole.SYNC_MASTER if number == 1 else BrokerRole.SLAVE
        desk.config.store.slave_timeout = 1000
        if sync_flush:
            desk.config.store.flush_disk_type = FlushDiskType.SYNC_FLUSH
            desk.config.store.slave_timeout = 5000
        desk.config.namesrv_addr = self._names.address
        for name, value in settings.items():
            setattr(desk.config, name, value)
        desk.coordinator = FakeClient(self.etcd)
        await desk.start()
        return desk

    async def stop(self, number: int) -> None:
        await self.desks.pop(number).stop()

    async def led(self, members: set[int]) -> Desk:
        """Wait until one leads with this set."""
        async with asyncio.timeout(20):
            while True:
                for desk in self.desks.values():
                    known = desk.app.member.known if desk.app.member is not None else None
                    if desk.broker.accepting and known is not None and known.group.sync_state_set == members:
                        return desk
                await asyncio.sleep(0.01)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async with AsyncExitStack() as ending:
            for number in tuple(self.desks):
                ending.push_async_callback(self.stop, number)
