"""The slaves of this master: the HA port, the confirmed offset, and the sends that wait for it.

Owns ``confirmed`` and, on a SYNC_MASTER, the limit of what may be read. Facts: HAService, GroupTransferService and
CommitLog.submitReplicaRequest in 4.9.7; unlike there, a slave that is stuck is not in reach. Invariants: ``confirmed``
never goes back; a SYNC_MASTER with a slave in reach shows nobody a message that no slave has confirmed, and answers a
waiting send with 0 only when a slave has, be one in reach or not, which has reported more than once; a slave that
left without confirming what it was sent is not in reach again before it confirms more.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

import structlog

from eruca.broker.config import StoreSettings
from eruca.broker.services.replication.ha_access import HAAccess
from eruca.broker.services.replication.ha_server import HAConnection
from eruca.broker.services.role import Role
from eruca.broker.store import Store
from eruca.broker.store.results import Durability
from eruca.broker.store.waiters import OffsetWaiters
from eruca.protocol.bodies import HAConnectionRuntimeInfo, HARuntimeInfo
from eruca.remoting.listener import Listener
from eruca.remoting.tls_server import TlsPort

MOST_SLAVES = 16
"""Connections to the HA port. Without a bound they could take all descriptors of the broker."""

MOST_DOUBTED = 64
"""Addresses of slaves that left without confirming what they were sent; of more, the oldest one counts no more."""

log = structlog.get_logger("eruca.broker.replication")


class Slaves:
    """All connected slaves."""

    def __init__(
        self,
        store: Store,
        settings: StoreSettings,
        role: Role,
        tls: TlsPort | None = None,
        access: HAAccess | None = None,
    ) -> None:
        self.confirmed = 0
        """The offset up to which a slave that follows has the log. A first report alone may come from one that compares
        logs, and has other bytes there: it answers no send, and shows nothing that another slave still lacks."""
        self.connected: set[HAConnection] = set()
        self.rejected = 0
        """Connections that were turned away for their number."""
        self._doubted: dict[str, int] = {}
        """By address, up to where a slave had the log that left without confirming what it was sent. One that refuses
        it (another file size, a full disk) connects again and again, and has no more than before."""
        self._gap = (0, 0)
        """The range of ends that no report confirms: a slave was empty and began after them."""
        self._store = store
        self._settings = settings
        self._role = role
        self._tls = tls
        self._access = access
        self._waiters = OffsetWaiters(Durability.FLUSH_SLAVE_TIMEOUT)
        self._changed = asyncio.Event()
        """Set by each report of a slave, and when one is stuck or disconnects."""
        self._listener: Listener | None = None

    # ------------------------------------------------------------------ life

    async def start(self, bound: socket.socket) -> None:
        """Accept slaves on a bound socket. The store is open and started."""
        self._store.on_written = self._written
        self._listener = Listener(self._admit, self._tls)
        self._listener.listen_on(bound)

    async def stop(self) -> None:
        """Send the slaves in reach what they lack, within slaveTimeout, and close every connection and the socket.

        Afterwards the store shows what is durable here, and no report counts any more.
        """
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
            await listener.settled()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.slave_timeout / 1000):
                    await self._caught_up()
        ends = [slave.gone for slave in self.connected]
        for slave in tuple(self.connected):
            slave.close()
        await asyncio.gather(*ends)
        self._waiters.release(self._store.replicator.end_offset, Durability.FLUSH_SLAVE_TIMEOUT)
        self._store.on_written = self._store.visible_limit = None
        self.confirmed = 0
        self._doubted.clear()
        self._gap = (0, 0)

    def role_changed(self) -> None:
        """Sends wait for slaves from now on, or do not any more."""
        if not self._role.sync:
            self._store.visible_limit = None

    async def _caught_up(self) -> None:
        """Wait until the slaves in reach have the whole log: they serve reads after this master stops."""
        end = self._store.replicator.end_offset
        least = end - self._settings.ha_slave_fallbehind_max
        while any(max(least, 0) <= slave.acknowledged < end and not slave.stuck for slave in self.connected):
            self._changed.clear()
            await self._changed.wait()

    def _admit(self, address: str) -> asyncio.Protocol | None:
        if self._access is not None and not self._access.admits(address):
            return None
        if len(self.connected) >= MOST_SLAVES:
            self.rejected += 1
            log.warning("slave_rejected", remote=address, reason=f"{MOST_SLAVES} slaves are connected, more may not be")
            return None
        slave = HAConnection(
            self._store.replicator,
            self._settings,
            self._reported,
            self._stuck,
            lambda gone: self._ended(gone, address),
            self._doubted.get(address),
        )
        self.connected.add(slave)
        return slave

    def _stuck(self, slave: HAConnection) -> None:
        self._changed.set()
        self._store.drain()

    def _ended(self, slave: HAConnection, address: str) -> None:
        self.connected.discard(slave)
        if not slave.level:
            self._doubted[address] = max(self._doubted.pop(address, -1), slave.acknowledged)
            if len(self._doubted) > MOST_DOUBTED:
                del self._doubted[next(iter(self._doubted))]
        self._changed.set()
        self._store.drain()

    # ------------------------------------------------------------------ what they have

    @property
    def in_reach(self) -> bool:
        """Whether a slave lags by less than haSlaveFallbehindMax, and is not stuck."""
        least = self._store.replicator.end_offset - self._settings.ha_slave_fallbehind_max
        return any(slave.is_in_sync(least) for slave in self.connected)

    def status(self) -> HARuntimeInfo:
        """The state of the slaves (907)."""
        end, now = self._store.replicator.end_offset, asyncio.get_running_loop().time()
        least = end - self._settings.ha_slave_fallbehind_max
        slaves = [
            HAConnectionRuntimeInfo(
                addr=slave.remote,
                slave_ack_offset=slave.acknowledged,
                diff=end - slave.acknowledged,
                in_sync=slave.is_in_sync(least),
                transfer_from_where=slave.next,
                transferred_byte_in_second=slave.rate.per_second(now),
            )
            for slave in sorted(self.connected, key=lambda each: each.remote)
            if slave.remote
        ]
        return HARuntimeInfo(
            master=True,
            master_commit_log_max_offset=end,
            in_sync_slave_nums=sum(slave.in_sync for slave in slaves),
            ha_connection_info=slaves,
        )

    def _reported(self, slave: HAConnection) -> None:
        self._changed.set()
        if slave.skipped and not slave.acknowledged:
            self._gap = (self.confirmed, slave.skipped)
            self._waiters.release(slave.skipped, Durability.FLUSH_SLAVE_TIMEOUT)
        if slave.follows and slave.acknowledged > self.confirmed:
            self.confirmed = slave.acknowledged
            self._waiters.release(self.confirmed, Durability.DURABLE)
        self._store.drain()

    def _written(self) -> None:
        """Send new log, and set how much of it may be read."""
        if self._role.sync:
            self._store.visible_limit = self._visible()
        for slave in tuple(self.connected):
            slave.pump()

    def _visible(self) -> int | None:
        """The limit of what may be read; None without a slave in reach."""
        least = self._store.replicator.end_offset - self._settings.ha_slave_fallbehind_max
        in_sync = [slave for slave in self.connected if slave.is_in_sync(least)]
        if not in_sync:
            return None
        if any(slave.follows for slave in in_sync):
            return self.confirmed
        return max(self.confirmed, *(slave.acknowledged for slave in in_sync))  # without them all would be visible

    # ------------------------------------------------------------------ waiting for them

    def durable(self, end_offset: int) -> asyncio.Future[Durability] | None:
        """None if a message that ends there is already durable; else a future of the outcome.

        Under SYNC_FLUSH it must be on the disk, on a SYNC_MASTER also on a slave: SLAVE_NOT_AVAILABLE if none is in
        reach, FLUSH_SLAVE_TIMEOUT if none confirmed it within slaveTimeout.
        """
        disk = self._store.durable(end_offset)
        if not self._role.sync:
            return disk
        if end_offset <= self.confirmed and not self._gap[0] < end_offset <= self._gap[1]:
            return disk
        copy = self._copy(end_offset)
        return copy if disk is None else _both(disk, copy)

    def _copy(self, end_offset: int) -> asyncio.Future[Durability]:
        if end_offset <= self._gap[1] or not self.in_reach:
            waiter: asyncio.Future[Durability] = asyncio.get_running_loop().create_future()
            gone = end_offset <= self._gap[1]
            waiter.set_result(Durability.FLUSH_SLAVE_TIMEOUT if gone else Durability.SLAVE_NOT_AVAILABLE)
            return waiter
        return self._waiters.add(end_offset, self._settings.slave_timeout / 1000)


def _both(disk: asyncio.Future[Durability], copy: asyncio.Future[Durability]) -> asyncio.Future[Durability]:
    """Ends when both have: with the outcome of the disk where that failed, else with the copy's."""
    both: asyncio.Future[Durability] = asyncio.get_running_loop().create_future()

    def ended(_: asyncio.Future[Durability]) -> None:
        if disk.done() and copy.done() and not both.done():
            both.set_result(copy.result() if disk.result() is Durability.DURABLE else disk.result())

    disk.add_done_callback(ended)
    copy.add_done_callback(ended)
    return both
