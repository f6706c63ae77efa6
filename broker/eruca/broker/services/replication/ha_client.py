"""The slave's side of the HA protocol: connects to the master, appends its log, and reports the end offset.

Owns the connection to the master's HA address and its reconnects. Facts: HAService.HAClient in 4.9.7; unlike there, the
first report is sent at once, and a silent master is disconnected. Invariant: the log up to a reported offset is in this
log, under SYNC_FLUSH on the disk, and equals the master's.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import cast

import structlog

from eruca.broker.config import StoreSettings
from eruca.broker.services.replication.transfer import Frame, FrameReader, TransferRate, report
from eruca.broker.store import CopyRefused, Store
from eruca.protocol.bodies import HAClientRuntimeInfo, HARuntimeInfo
from eruca.protocol.errors import ProtocolError
from eruca.remoting.addresses import split_address
from eruca.remoting.descriptors import reason
from eruca.remoting.listener import keep_alive

RETRY_AFTER = (0.5, 5.0)
"""Back-off in seconds after a connection that brought no log: the first value, doubled up to the second. After any
other connection the next try follows at once."""
CONNECT_TIMEOUT = 3.0
"""Seconds."""

log = structlog.get_logger("eruca.broker")


class HAClient:
    """Keeps a slave's log equal to its master's."""

    def __init__(self, store: Store, settings: StoreSettings) -> None:
        self._store = store
        self._settings = settings
        self._address = settings.ha_master_address or None
        self._fixed = self._address is not None
        self._address_changed = asyncio.Event()
        self._link: MasterConnection | None = None
        self._task: asyncio.Task[None] | None = None
        self._failing = False

    @property
    def connected(self) -> bool:
        """Whether the master is connected."""
        return self._link is not None

    def status(self, now: int) -> HARuntimeInfo:
        """The state of this slave at ``now``, in ms since 1970 (907); the master's flushed offset is unknown here."""
        info = HAClientRuntimeInfo(
            master_addr=self._address or "", max_offset=self._store.replicator.end_offset, activated=self.connected
        )
        link, passed = self._link, asyncio.get_running_loop().time()
        if link is not None:
            info.last_read_timestamp = now - int((passed - link.received_at) * 1000)
            info.last_write_timestamp = now - int((passed - link.reported_at) * 1000)
            info.transferred_byte_in_second = link.rate.per_second(passed)
        return HARuntimeInfo(ha_client_runtime_info=info)

    def follow(self, address: str | None) -> None:
        """Set the master's HA address, as a nameserver gave it. None, or a configured address, changes nothing."""
        if address and not self._fixed and address != self._address:
            log.info("master_ha_address", address=address, former=self._address)
            self._address = address
            self._address_changed.set()
            if self._link is not None:
                self._link.close()

    def start(self) -> None:
        """Start to replicate; the store is open and started."""
        self._store.on_written = self._written
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop to replicate."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        self._store.on_written = None

    def _written(self) -> None:
        if self._link is not None:
            self._link.report_if_advanced()

    async def _run(self) -> None:
        pause, longest = RETRY_AFTER
        while True:
            self._address_changed.clear()
            if self._address is None:
                await self._address_changed.wait()
            elif await self._follow_once(self._address):
                pause = RETRY_AFTER[0]
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._address_changed.wait()
                pause = min(pause * 2, longest)

    def _connection(self) -> MasterConnection:
        return MasterConnection(self._store, self._settings)

    async def _follow_once(self, address: str) -> bool:
        """Replicate over one connection until it ends; returns whether any log arrived."""
        loop = asyncio.get_running_loop()
        try:
            host, port = split_address(address)
            waiter = self._store.durable(self._store.replicator.end_offset)
            if waiter is not None:
                await waiter
            async with asyncio.timeout(CONNECT_TIMEOUT):
                transport, link = await loop.create_connection(self._connection, host, port)
            keep_alive(transport.get_extra_info("socket"))
        except (OSError, TimeoutError, ValueError) as fault:
            if not self._failing:
                log.warning("master_unreachable", address=address, fault=str(fault) or "timeout")
            self._failing = True
            return False
        log.info("replicating", master=address, end=self._store.replicator.end_offset)
        self._failing = False
        self._link = link
        try:
            await link.ended
        finally:
            self._link = None
            link.close()
        log.info("master_lost", master=address, reason=link.reason, end=self._store.replicator.end_offset)
        return link.received > 0


class MasterConnection(asyncio.Protocol):
    """One connection to the master; ``ended`` is done when it has ended, ``received`` counts the bytes of the log."""

    def __init__(self, store: Store, settings: StoreSettings) -> None:
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = loop.create_future()
        self.received = 0
        self.rate = TransferRate()
        self.reason = "closed by the master"
        self._store = store
        self._replicator = store.replicator
        self._heartbeat = settings.ha_send_heartbeat_interval / 1000
        self._silence = settings.ha_housekeeping_interval / 1000
        self._frames = FrameReader()
        self._reported = -1
        self.received_at = self.reported_at = loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Report the end of this log: the master sends from there."""
        self._transport = cast(asyncio.Transport, transport)
        self._report(self._replicator.end_offset)
        self._tick()

    def connection_lost(self, fault: Exception | None) -> None:
        """Complete ``ended``."""
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        if not self.ended.done():
            self.ended.set_result(None)

    def close(self) -> None:
        """End the connection."""
        if self._transport is not None:
            self._transport.abort()

    def _give_up(self, reason: str) -> None:
        self.reason = reason
        self.close()

    def data_received(self, data: bytes) -> None:
        """Frames of the master's log."""
        self.received_at = asyncio.get_running_loop().time()
        try:
            for frame in self._frames.feed(data):
                self._take(frame)
        except (ProtocolError, CopyRefused) as fault:
            log.error("copy_refused", reason=str(fault))
            self._give_up(str(fault))
        except OSError as fault:
            log.error("copy_not_written", fault=str(fault))
            self._give_up(f"the copy could not be written: {reason(fault)}")
        self.report_if_advanced()

    def _take(self, frame: Frame) -> None:
        end = self._replicator.end_offset
        if end and frame.offset != end:
            raise CopyRefused(f"the log here ends at {end}, but the master goes on at {frame.offset}")
        if frame.data:
            self._replicator.append(frame.offset, frame.data)
            self.received += len(frame.data)
            self.rate.add(len(frame.data), self.received_at)

    # ------------------------------------------------------------------ reports

    def report_if_advanced(self) -> None:
        """Report the end offset if it has advanced since the last report."""
        if self._replicator.safe_offset > self._reported:
            self._report(self._replicator.safe_offset)

    def _report(self, offset: int) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._reported = offset
            self.reported_at = asyncio.get_running_loop().time()
            self._transport.write(report(offset))

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._timer = loop.call_later(min(self._heartbeat, self._silence) / 4, self._tick)
        if now - self.received_at > self._silence:
            self._give_up("the master was silent for longer than haHousekeepingInterval")
        elif now - self.reported_at > self._heartbeat:
            self._report(self._reported)
