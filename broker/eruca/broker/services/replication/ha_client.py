"""The slave's side of the HA protocol: connects to the master, appends its log, and reports the end offset.

Owns the connection to the master's HA address, its reconnects, and which master is followed. Facts: HAService.HAClient
in 4.9.7; unlike there, the first report is sent at once, a silent master is disconnected, and before each connection
the end of this log is compared with the master's; where damage was covered here, the log is cut off if the master has
what was there. Invariants: the log up to a reported offset is in this log, under
SYNC_FLUSH on the disk, and equals the master's; nothing is taken from a master that has another log; nothing of what
is refused is kept or reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import cast

import structlog

from eruca.broker.config import StoreSettings
from eruca.broker.services.replication.log_check import CONNECT_TIMEOUT, check_log
from eruca.broker.services.replication.transfer import Frame, FrameReader, TransferRate, report
from eruca.broker.store import CopyRefused, Store, Tail
from eruca.broker.store.damage_mark import read_damage
from eruca.protocol.bodies import HAClientRuntimeInfo, HARuntimeInfo
from eruca.protocol.errors import ProtocolError
from eruca.remoting.addresses import split_address
from eruca.remoting.keepalive import keep_alive
from eruca.remoting.log_repeats import Repeats
from eruca.remoting.tasks import Tasks, end
from eruca.remoting.tls import TlsFiles, tls_arguments, why_no_handshake

RETRY_AFTER = (0.5, 5.0)
"""Back-off in seconds after a connection that brought no log, or log that was refused: the first value, doubled up to
the second. After any other connection the next try follows at once."""
REPORT_EVERY = 60.0
"""A master that is refused again and again leaves a line in the log every this many seconds."""
NO_MASTER = "this slave follows no master"

log = structlog.get_logger("eruca.broker.replication")


class HAClient:
    """Keeps a slave's log equal to its master's.

    ``on_following`` is called with the main address of the master that is followed from now on, None if it is not
    registered. ``on_damage`` is called with where this log has to be cut off before it follows a master: damage was
    covered there, and the master has what was lost.
    """

    def __init__(self, store: Store, settings: StoreSettings, tasks: Tasks, tls: TlsFiles | None = None) -> None:
        self.on_following: Callable[[str | None], None] = lambda master: None
        self.on_damage: Callable[[int], None] = lambda offset: None
        self._store = store
        self._settings = settings
        self._tasks = tasks
        self._tls = tls
        self._address = settings.ha_master_address or None
        self._fixed = self._address is not None
        self._master: str | None = None
        """The main address of the master whose HA address is ``_address``."""
        self._changed = asyncio.Event()
        """Set when the address changes, and when a connection ends."""
        self._link: MasterConnection | None = None
        self._linked: str | None = None
        """The HA address of the master that is connected, or was connected last."""
        self._task: asyncio.Task[None] | None = None
        self._repeats = Repeats()
        self._refused: tuple[str, bool, float] = ("", False, 0.0)
        """The master that was refused last, whether for this disk, and when that was logged, in seconds."""
        self._kept_off: str | None = None
        """Why the master was refused before anything was taken from it."""

    @property
    def connected(self) -> bool:
        """Whether the master is connected."""
        return self._link is not None

    @property
    def fault(self) -> str | None:
        """Why this slave does not copy its master's log; None while it does."""
        refusal = self._store.replicator.refusal
        return refusal if self._link is not None else self._kept_off or refusal or NO_MASTER

    @property
    def silent(self) -> float | None:
        """The seconds since something came from the master; None while it is not connected."""
        return None if self._link is None else asyncio.get_running_loop().time() - self._link.received_at

    def status(self, now: int) -> HARuntimeInfo:
        """The state of this slave at ``now``, in ms since 1970 (907); the master's flushed offset is unknown here."""
        address = (self._linked if self._link is not None else self._address) or ""
        info = HAClientRuntimeInfo(
            master_addr=address, max_offset=self._store.replicator.end_offset, activated=self.fault is None
        )
        link, passed = self._link, asyncio.get_running_loop().time()
        if link is not None:
            info.last_read_timestamp = now - int((passed - link.received_at) * 1000)
            info.last_write_timestamp = now - int((passed - link.reported_at) * 1000)
            info.transferred_byte_in_second = link.rate.per_second(passed)
        return HARuntimeInfo(ha_client_runtime_info=info)

    def follow(self, address: str | None, master: str | None) -> None:
        """Follow the master with these addresses, as a nameserver gave them, if it has this log; None if unknown.

        A configured HA address stays. The former master is followed until the logs were compared.
        """
        if master is None or self._fixed:
            self.on_following(master)
        elif address:
            self._master = master
            if address == self._linked:
                self.on_following(master)
            if address != self._address:
                log.info("master_ha_address", address=address, former=self._address)
                self._address = address
                self._changed.set()

    def start(self) -> None:
        """Start to replicate; the store is open and started."""
        self._store.on_written = self._written
        self._task = self._tasks.start("replication", self._run())

    async def stop(self) -> None:
        """Stop to replicate, and forget who the master is."""
        if self._task is None:
            return
        await end([self._task])
        self._task = None
        self._store.on_written = None
        self._address = self._settings.ha_master_address or None
        self._master = self._linked = self._kept_off = None

    def _written(self) -> None:
        if self._link is not None:
            self._link.report_if_advanced()

    async def _run(self) -> None:
        pause, longest = RETRY_AFTER
        while True:
            self._changed.clear()
            if self._address is None:
                await self._changed.wait()
            elif await self._follow_once(address := self._address):
                pause = RETRY_AFTER[0]
            else:
                if address == self._address:
                    self._changed.clear()  # it was set by the end of the connection
                await self._wait(pause)
                pause = min(pause * 2, longest)

    async def _wait(self, seconds: float | None) -> None:
        """Wait until the address changes or the connection ends, ``seconds`` at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    async def _follow_once(self, address: str) -> bool:
        """Replicate over one connection until it ends; returns whether to connect again at once."""
        link = await self._connect(address) if await self._has_this_log(address) else None
        if link is None:
            return False
        self._kept_off = None
        if self._store.replicator.refusal is None:
            log.info("replicating", master=address, end=self._store.replicator.end_offset)
        self._repeats.forget()
        self._link, self._linked = link, address
        if address == self._address and not self._fixed:
            self.on_following(self._master)
        link.ended.add_done_callback(lambda _: self._changed.set())
        try:
            await self._until_over(link, address)
        finally:
            self._link = None
            link.close()
        if link.fault is not None:
            self._log_refusal(address, self._store.replicator.refusal, of_disk=isinstance(link.fault, OSError))
        else:
            log.info("master_lost", master=address, reason=link.reason, end=self._store.replicator.end_offset)
        return (link.received > 0 and link.fault is None) or address != self._address

    async def _until_over(self, link: MasterConnection, address: str) -> None:
        """Wait until the connection has ended, or another master is to be followed that has this log."""
        pause, longest = RETRY_AFTER
        while not link.ended.done():
            self._changed.clear()
            other = self._address
            if other is None or other == address:
                pause = RETRY_AFTER[0]
                await self._wait(None)
            elif await self._has_this_log(other):
                link.reason = "another master is followed"
                return
            else:
                await self._wait(pause)
                pause = min(pause * 2, longest)

    async def _has_this_log(self, address: str) -> bool:
        """Whether the master at ``address`` can be reached and has all of this log; an empty log is anybody's.

        A log with damage has to be cut off first, so that it is not.
        """
        end = self._store.replicator.end_offset
        waiter = self._store.durable(end)
        if waiter is not None:
            await waiter
        try:
            if not end:
                return True
            tail, damaged_at = await asyncio.to_thread(self._tail, end)
            await check_log(address, tail, self._settings.ha_housekeeping_interval / 1000, self._tls)
            if damaged_at is not None:
                log.warning("damage_cut_off", master=address, cut=damaged_at, end=end)
                self.on_damage(damaged_at)
                return False
        except (CopyRefused, ProtocolError) as fault:
            self._kept_off = str(fault)
            self._log_refusal(address, self._kept_off)
            return False
        except (OSError, ValueError, OverflowError) as fault:  # it may be no address
            self._unreachable(address, fault)
            return False
        return True

    def _tail(self, end: int) -> tuple[Tail, int | None]:
        """The end of this log up to its first damage, and where that begins. Reads files. Raises CopyRefused."""
        replicator = self._store.replicator
        try:
            damaged_at = read_damage(self._store.config.store_path_root_dir, replicator.begin_offset)
            return replicator.tail(end, damaged_at), damaged_at
        except OSError as fault:
            raise CopyRefused(f"the end of this log cannot be read: {fault}") from None

    def _log_refusal(self, address: str, reason: str | None, *, of_disk: bool = False) -> None:
        now, end = asyncio.get_running_loop().time(), self._store.replicator.end_offset
        if self._refused[:2] == (address, of_disk) and now - self._refused[2] < REPORT_EVERY:
            return
        self._refused = address, of_disk, now
        if of_disk:
            log.error("copy_not_written", master=address, reason=reason, end=end)
        else:
            log.error("copy_refused", master=address, reason=reason, end=end)

    async def _connect(self, address: str) -> MasterConnection | None:
        loop = asyncio.get_running_loop()
        try:
            host, port = split_address(address)
            async with asyncio.timeout(CONNECT_TIMEOUT):
                transport, link = await loop.create_connection(
                    lambda: MasterConnection(self._store, self._settings),
                    host,
                    port,
                    **tls_arguments(self._tls, host, CONNECT_TIMEOUT),
                )
            keep_alive(transport.get_extra_info("socket"))
        except (OSError, ValueError, OverflowError) as fault:  # it may be no address
            self._unreachable(address, fault)
            return None
        return link

    def _unreachable(self, address: str, fault: Exception) -> None:
        again = self._repeats.failed(address)
        if again is not None:
            said = why_no_handshake(fault) if self._tls is not None else None
            log.warning("master_unreachable", address=address, fault=said or str(fault) or "timeout", **again)


class MasterConnection(asyncio.Protocol):
    """One connection to the master; ``ended`` is done when it has ended, ``received`` counts the bytes of the log."""

    def __init__(self, store: Store, settings: StoreSettings) -> None:
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = loop.create_future()
        self.received = 0
        self.rate = TransferRate()
        self.reason = "closed by the master"
        self.fault: Exception | None = None
        """Why what came was refused, or could not be written; the replicator has the sentence."""
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
            self._replicator.refuse(str(fault))
            self.fault = fault
            self.close()
        except OSError as fault:
            self.fault = fault
            self.close()
        self.report_if_advanced()

    def _take(self, frame: Frame) -> None:
        end = self._replicator.end_offset
        if end and frame.offset != end:
            raise CopyRefused(f"the log here ends at {end}, but the master goes on at {frame.offset}")
        if frame.data:
            self._replicator.append(frame.offset, frame.data)
            self.received += len(frame.data)
            self.rate.add(len(frame.data), self.received_at)
        else:
            self._replicator.accept()

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
