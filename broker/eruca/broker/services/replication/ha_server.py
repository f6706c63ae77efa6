"""The master's side of one slave: sends the log from the end of the slave's log on, and reads the slave's reports.

Owns the connection, what was sent over it, when it is closed, and whether the slave is stuck. Facts: HAConnection in
4.9.7; unlike there, a slave is rejected if its log is ahead of the master's, or if it asks for what the master has
deleted: the two logs could never be equal. Invariant: bytes are sent in order and without a gap, under SYNC_FLUSH only
those that are on the disk here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import structlog

from eruca.broker.config import StoreSettings
from eruca.broker.services.replication.pump import UNSENT, Pump
from eruca.broker.services.replication.transfer import ReportReader, TransferRate, frame_head
from eruca.broker.store.replicator import Replicator
from eruca.remoting.addresses import peer_of
from eruca.remoting.tls import HELLO

log = structlog.get_logger("eruca.broker.replication")


class HAConnection(asyncio.Protocol):
    """The connection of one slave.

    ``on_report`` is called after each report, ``on_stuck`` when the slave becomes stuck, ``on_end`` once when the
    connection has ended.
    """

    def __init__(
        self,
        replicator: Replicator,
        settings: StoreSettings,
        on_report: Callable[[HAConnection], None],
        on_stuck: Callable[[HAConnection], None],
        on_end: Callable[[HAConnection], None],
        doubted: int | None = None,
    ) -> None:
        """``doubted``: the slave is in sync only when it has more than this, and confirms what it is sent here or has
        all."""
        self.remote = ""
        self.acknowledged = -1
        """The end of the slave's log by its last report; -1 before the first."""
        self.skipped = 0
        """Where the log of an empty slave begins: it has nothing before this offset."""
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the connection has ended."""
        self._replicator = replicator
        self._on_report = on_report
        self._on_stuck = on_stuck
        self._on_end = on_end
        self._batch = settings.ha_transfer_batch_size
        self._heartbeat = settings.ha_send_heartbeat_interval / 1000
        self._silence = settings.ha_housekeeping_interval / 1000
        self._reports = ReportReader()
        self._transport: asyncio.Transport | None = None
        self._pump = Pump(replicator, self)
        self.follows = False
        """Whether it has reported again after its first report: a slave that compares logs reports once."""
        self.rate = TransferRate()
        self._timer: asyncio.TimerHandle | None = None
        self._received_at = self._sent_at = 0.0
        self.stuck = False
        """Whether it lacks something, and has confirmed nothing more for haStuckAfter."""
        self._stuck_after = settings.ha_stuck_after / 1000
        self.level = True
        """Whether it has confirmed all that it can have."""
        self._doubted = doubted
        self._progressed_at = 0.0
        """When it confirmed more, or began to lack something."""
        self._watch: asyncio.TimerHandle | None = None

    # ------------------------------------------------------------------ connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the slave, which reports first."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=UNSENT)
        peer = transport.get_extra_info("peername")
        self.remote = "{}:{}".format(*peer_of(peer)) if peer else ""
        self._received_at = self._sent_at = asyncio.get_running_loop().time()
        self._tick()
        log.info("slave_connected", remote=self.remote)

    def connection_lost(self, fault: Exception | None) -> None:
        """Release the connection."""
        self._transport = None
        for timer in (self._timer, self._watch):
            if timer is not None:
                timer.cancel()
        if self.remote:
            log.info("slave_disconnected", remote=self.remote, acknowledged=self.acknowledged)
        self.gone.set_result(None)
        self._on_end(self)

    def close(self) -> None:
        """End the connection."""
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    @property
    def is_closing(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._transport is None or self._transport.is_closing()

    def _give_up(self, reason: str, **what: object) -> None:
        log.warning("slave_rejected", remote=self.remote, reason=reason, **what)
        self.close()

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._timer = loop.call_later(min(self._heartbeat, self._silence) / 4, self._tick)
        if now - self._received_at > self._silence:
            self._give_up("it has not reported for longer than haHousekeepingInterval")
        elif self.next >= 0 and now - self._sent_at > self._heartbeat and not self.paused and not self.is_closing:
            self.send(self.next, b"")

    # ------------------------------------------------------------------ reports

    def data_received(self, data: bytes) -> None:
        """Reports of the slave."""
        self._received_at = asyncio.get_running_loop().time()
        if self.next < 0 and data.startswith(HELLO):
            self._give_up("it speaks TLS, and this HA port does not: name a certificate in tls.server.certPath")
            return
        reported = self._reports.feed(data)
        if reported is None:
            return
        if not 0 <= reported <= self._replicator.end_offset:
            self._give_up(
                "its log is ahead of this master's: it is the copy of another master's log (was a second master "
                "started under this name?), or this master has lost its end; check both stores with "
                "'eruca store verify' before one of them is emptied",
                reported=reported,
                end=self._replicator.end_offset,
            )
            return
        if self.next >= 0:
            self._follow(reported)
        elif not self._begin(reported):
            return
        former, self.acknowledged = self.acknowledged, reported
        if reported > former:
            self._progressed()
        if max(reported, self.skipped) >= self._replicator.safe_offset:
            self.level = True
        elif self.level or self._watch is None:
            self._expect_progress(self._received_at)
        if self._doubted is not None and reported > self._doubted and (self.follows or self.level):
            self._doubted = None
        self._on_report(self)

    def is_in_sync(self, least: int) -> bool:
        """Whether it is in reach: it has the log beyond ``least``, is not stuck, and not doubted any more."""
        return self.acknowledged >= 0 and self.acknowledged > least and not self.stuck and self._doubted is None

    def _progressed(self) -> None:
        self._progressed_at = self._received_at
        if self.stuck:
            self.stuck = False
            log.info("slave_progresses", remote=self.remote, acknowledged=self.acknowledged, behind=self._behind)

    @property
    def _behind(self) -> int:
        return self._replicator.end_offset - self.acknowledged

    def _expect_progress(self, now: float) -> None:
        """The slave lacks something from now on."""
        self.level = False
        self._progressed_at = now
        if self._watch is None and not self.stuck:
            self._watch_progress(self._stuck_after)

    def _watch_progress(self, seconds: float) -> None:
        self._watch = asyncio.get_running_loop().call_later(seconds, self._judge_progress)

    def _judge_progress(self) -> None:
        self._watch = None
        if self.level or self.is_closing:
            return
        rest = self._progressed_at + self._stuck_after - asyncio.get_running_loop().time()
        if rest > 0:
            self._watch_progress(rest)
            return
        self.stuck = True
        log.warning(
            "slave_stuck",
            remote=self.remote,
            acknowledged=self.acknowledged,
            behind=self._behind,
            reason="it is connected, and has confirmed nothing more for haStuckAfter",
            consequence="it counts as unavailable until it confirms more",
        )
        self._on_stuck(self)

    def _begin(self, reported: int) -> bool:
        """Send from the end of the slave's log; an empty slave gets the newest file and what follows."""
        start = reported or max(self._replicator.last_file, self._replicator.begin_offset)
        if start < self._replicator.begin_offset:
            self._give_up(
                "it asks for messages that were deleted here: empty its store", reported=reported, begin=start
            )
            return False
        self._pump.next = start
        self.skipped = 0 if reported else start
        return True

    def _follow(self, reported: int) -> None:
        if not self.follows:
            self.follows = True
            behind = self._replicator.end_offset - reported
            log.info("slave_follows", remote=self.remote, acknowledged=reported, behind=behind)

    # ------------------------------------------------------------------ sending

    @property
    def next(self) -> int:
        """The offset to send next; -1 before the slave's first report."""
        return self._pump.next

    @property
    def paused(self) -> bool:
        """Whether the slave reads more slowly than the master sends."""
        return self._pump.paused

    @property
    def unsent(self) -> int:
        """Bytes that are buffered for the slave."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def pause_writing(self) -> None:
        """Called by the event loop: the slave does not read."""
        self._pump.paused = True

    def resume_writing(self) -> None:
        """Called by the event loop: the slave reads again."""
        self._pump.resume()

    def pump(self) -> None:
        """Send what is available."""
        self._pump.go_on()

    def room(self, at: int) -> int:
        """How many bytes may be one frame."""
        return self._batch

    def lacks(self, at: int) -> None:
        """There is nothing to send: end the connection if that will not come any more."""
        if at < self._replicator.begin_offset:
            self._give_up("it was so slow that what it must get next was deleted: empty its store", next=at)

    def waits_for_disk(self) -> None:
        """What the slave gets next has to come from the disk."""
        if self.level:
            self._expect_progress(asyncio.get_running_loop().time())

    def unreadable(self, fault: str) -> None:
        """The log cannot be read."""
        self._give_up("the log cannot be read", fault=fault)

    def send(self, at: int, data: memoryview | bytes) -> None:
        """Send a frame; one without bytes is a heartbeat."""
        assert self._transport is not None
        # Not by writelines: asyncio's own transport does not look at the high-water mark there, from Python 3.12 on.
        self._transport.write(b"".join((frame_head(at, len(data)), data)))
        self._sent_at = asyncio.get_running_loop().time()
        if self.level and data:
            self._expect_progress(self._sent_at)
        self.rate.add(len(data), self._sent_at)
