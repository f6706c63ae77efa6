"""The links of a driver over TCP: to the master of its group, and to its replicas.

Owns that there is one of each, made for one driver. What is said is in ``messages``; ``master_link`` and ``replicas``
are the two sides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from eruca.broker.failover.events import Welcomed
from eruca.broker.services.failover.master_link import MasterLink
from eruca.broker.services.failover.messages import Hello
from eruca.broker.services.failover.ports import Posts, Self
from eruca.broker.services.failover.replicas import Pace, Replicas
from eruca.broker.services.failover.tables import Tables
from eruca.broker.services.failover.tails import Log, tail_of
from eruca.remoting.tasks import Tasks
from eruca.remoting.tls import TlsFiles


class TcpLinks:
    """The links of one broker; ``attach`` names its driver before anything else."""

    def __init__(
        self,
        me: Self,
        group: str,
        log: Log,
        tasks: Tasks,
        monotonic: Callable[[], int],
        pace: Pace | None = None,
        tls: TlsFiles | None = None,
        *,
        tables: Tables,
    ) -> None:
        self._me = me
        self._group = group
        self._log = log
        self.replicas = Replicas(group, log, tables, tasks, monotonic, pace)
        self.master = MasterLink(self._hello, tasks, monotonic, tls)
        self.tell = self.master.tell

    def attach(self, driver: Posts) -> None:
        """Work for this driver."""
        self.replicas.driver = self.master.driver = driver

    async def _hello(self, epoch: int) -> Hello:
        member = self.master.driver.member
        lacks_epochs = member.end > 0 and not member.epochs
        tail = await asyncio.to_thread(tail_of, self._log, member.sound_end) if lacks_epochs else None
        return Hello(self._group, self._me.broker_id, self._me.store, epoch, tail)

    def protocol(self, address: str) -> asyncio.Protocol:
        """What serves a connection to the HA port."""
        return self.replicas.protocol(address)

    def start(self) -> None:
        """Send heartbeats to replicas from now on."""
        self.replicas.start()

    async def stop(self) -> None:
        """End all connections."""
        await self.master.stop()
        await self.replicas.stop()

    # ------------------------------------------------------------------ the port

    def join(self, ha_address: str, epoch: int) -> None:
        """As in the port."""
        self.master.join(ha_address, epoch)

    def leave(self) -> None:
        """As in the port."""
        self.master.leave()

    def welcome(self, broker_id: int, answer: Welcomed) -> None:
        """As in the port."""
        self.replicas.welcome(broker_id, answer)

    def dismiss(self) -> None:
        """As in the port."""
        self.replicas.dismiss()

    def master_heard(self) -> int | None:
        """As in the port."""
        return self.master.heard_at

    def master_silent_since(self) -> int | None:
        """As in the port."""
        return self.master.silent_since

    def answered(self) -> Mapping[int, int]:
        """As in the port."""
        return self.replicas.answered
