"""The master's side of one slave: sends it the log from where it ends there, and hears how far it came.

Owns the connection, what was sent on it, and when it is given up. Facts: HAConnection in 4.9.7; beyond them a slave is
turned away when its log is ahead of the master's, or asks for what the master has deleted, since the two logs could
never be equal. Invariant: bytes go out in order and without a gap, under SYNC_FLUSH only what is on the disk here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import cast

import structlog

from eruca.broker.config import StoreSettings
from eruca.broker.services.replication.transfer import ReportReader, TransferRate, frame_head
from eruca.broker.store.replicator import Replicator
from eruca.broker.store.segment import NotInMemory

FRAMES_A_TURN = 16
"""Frames that are sent until others on the event loop have their turn."""
COLD_READ = 1 << 20
"""Bytes that are read at once when they come from the disk."""
_UNSENT = 1 << 20
"""Bytes that may wait for a slave that does not read."""

log = structlog.get_logger("eruca.broker")


class HAConnection(asyncio.Protocol):
    """One slave's connection.

    ``heard`` is called after each report, ``ended`` once when the connection is over.
    """

    def __init__(
        self,
        replicator: Replicator,
        settings: StoreSettings,
        heard: Callable[[HAConnection], None],
        ended: Callable[[HAConnection], None],
    ) -> None:
        self.remote = ""
        self.acknowledged = -1
        """Where the slave's log ends by its last report; -1 before the first."""
        self.skipped = 0
        """Of a slave that was empty: where what it gets begins; of what is before, it has nothing."""
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the connection is over."""
        self._replicator = replicator
        self._heard = heard
        self._ended = ended
        self._batch = settings.ha_transfer_batch_size
        self._heartbeat = settings.ha_send_heartbeat_interval / 1000
        self._silence = settings.ha_housekeeping_interval / 1000
        self._reports = ReportReader()
        self._transport: asyncio.Transport | None = None
        self.next = -1
        """Where what is sent next begins; -1 before the slave's first report."""
        self.rate = TransferRate()
        self._paused = False
        """Whether the slave does not read as fast as it is sent to."""
        self._turn_over = False
        """Whether sending goes on by itself in the next round of the loop."""
        self._reading: asyncio.Future[memoryview | bytes | None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._heard_at = self._sent_at = 0.0

    # ------------------------------------------------------------------ connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to listen to the slave; it speaks first."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_UNSENT)
        peer = transport.get_extra_info("peername")
        self.remote = f"{peer[0]}:{peer[1]}" if peer else ""
        self._heard_at = self._sent_at = asyncio.get_running_loop().time()
        self._beat()
        log.info("slave_connected", remote=self.remote)

    def connection_lost(self, fault: Exception | None) -> None:
        """Let go of everything."""
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        log.info("slave_disconnected", remote=self.remote, acknowledged=self.acknowledged)
        self.gone.set_result(None)
        self._ended(self)

    def close(self) -> None:
        """End the connection."""
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    def _is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def _give_up(self, reason: str, **what: object) -> None:
        log.warning("slave_turned_away", remote=self.remote, reason=reason, **what)
        self.close()

    def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._timer = loop.call_later(min(self._heartbeat, self._silence) / 4, self._beat)
        if now - self._heard_at > self._silence:
            self._give_up("it has not reported for longer than haHousekeepingInterval")
        elif self.next >= 0 and now - self._sent_at > self._heartbeat and not self._paused and not self._is_closing():
            self._send(b"")

    # ------------------------------------------------------------------ reports

    def data_received(self, data: bytes) -> None:
        """Reports of the slave."""
        self._heard_at = asyncio.get_running_loop().time()
        reported = self._reports.feed(data)
        if reported is None:
            return
        if not 0 <= reported <= self._replicator.end_offset:
            self._give_up(
                "its log is ahead of this master's, which has lost messages that the slave has: "
                "make that slave the master, or empty its store",
                reported=reported,
                end=self._replicator.end_offset,
            )
            return
        if self.next < 0 and not self._begin(reported):
            return
        self.acknowledged = reported
        self._heard(self)

    def _begin(self, reported: int) -> bool:
        """Send from where the slave's log ends; an empty one gets the newest file and what follows."""
        start = reported or max(self._replicator.last_file, self._replicator.begin_offset)
        if start < self._replicator.begin_offset:
            self._give_up(
                "it asks for messages that were deleted here: empty its store", reported=reported, begin=start
            )
            return False
        self.next = start
        self.skipped = 0 if reported else start
        log.info("slave_follows", remote=self.remote, reported=reported, start=start)
        return True

    # ------------------------------------------------------------------ sending

    def pause_writing(self) -> None:
        """Wait until the slave has read."""
        self._paused = True

    def resume_writing(self) -> None:
        """Go on: it has."""
        self._paused = False
        self.pump()

    def pump(self) -> None:
        """Send what is there."""
        for _ in range(FRAMES_A_TURN):
            if self.next < 0 or self._paused or self._turn_over or self._reading is not None or self._is_closing():
                return
            try:
                data = self._replicator.take(self.next, self._batch)
            except NotInMemory:
                self._read_cold()
                return
            if not data:
                self._check_there()
                return
            self._send(data)
        self._turn_over = True
        asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn_over = False
        self.pump()

    def _check_there(self) -> None:
        if self.next < self._replicator.begin_offset:
            self._give_up("it was so slow that what it must get next was deleted: empty its store", next=self.next)

    def _send(self, data: memoryview | bytes) -> None:
        assert self._transport is not None
        self._transport.writelines((frame_head(self.next, len(data)), data))
        self.next += len(data)
        self._sent_at = asyncio.get_running_loop().time()
        self.rate.add(len(data), self._sent_at)

    def _read_cold(self) -> None:
        loop = asyncio.get_running_loop()
        work = partial(self._replicator.take, self.next, COLD_READ, wait=True)
        self._reading = loop.run_in_executor(None, work)
        self._reading.add_done_callback(self._came)

    def _came(self, reading: asyncio.Future[memoryview | bytes | None]) -> None:
        self._reading = None
        if self._is_closing() or reading.cancelled():
            return
        fault = reading.exception()
        if fault is not None:
            self._give_up("the log cannot be read", fault=str(fault))
            return
        data = memoryview(reading.result() or b"")
        for at in range(0, len(data), self._batch):
            self._send(data[at : at + self._batch])
        if data:
            self.pump()
        else:
            self._check_there()
