"""A replica's connection to the master of its group: shakes hands, takes its log, answers its heartbeats.

Owns the connection, and connecting again and again. Must not know what follows from what comes: it posts it.
Invariants: nothing of a connection is posted after ``leave``; a heartbeat is answered only while this broker does not
stand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import structlog

from eruca.broker.failover.in_sync import Report
from eruca.broker.failover.member import Copied, MasterLost, Welcomed
from eruca.broker.services.failover import messages
from eruca.broker.services.failover.messages import Hello, Kind
from eruca.broker.services.failover.ports import Frame, TableFrame
from eruca.protocol.errors import ProtocolError
from eruca.remoting.addresses import split_address
from eruca.remoting.log_repeats import Repeats
from eruca.remoting.tasks import Tasks, end
from eruca.remoting.tls import TlsFiles, tls_arguments

CONNECT_TIMEOUT = 1.0
"""Seconds."""
SILENCE = 3.0
"""Seconds after which a master that says nothing is given up; it sends a heartbeat twice a second."""
AGAIN = (0.05, 1.0)
"""Seconds until the next try: the first value, doubled up to the second."""

log = structlog.get_logger("eruca.broker.failover")
Post = Callable[[Welcomed | Copied | MasterLost], None]
Take = Callable[[Frame | TableFrame], Awaitable[None]]


class _Target(NamedTuple):
    ha_address: str
    epoch: int


class MasterLink:
    """The link of one replica; ``post`` and ``take`` are the driver's, ``monotonic`` is its clock in ms."""

    def __init__(
        self,
        hello: Callable[[int], Awaitable[Hello]],
        post: Post,
        take: Take,
        tasks: Tasks,
        monotonic: Callable[[], int],
        tls: TlsFiles | None = None,
    ) -> None:
        self._heard: tuple[_Target, int] | None = None
        """From whom something came last, and when."""
        self._hello = hello
        self._post = post
        self._take = take
        self._tasks = tasks
        self._monotonic = monotonic
        self._tls = tls
        self._target: _Target | None = None
        self._task: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._repeats = Repeats()

    @property
    def connected(self) -> bool:
        """Whether the master has welcomed this broker, and the connection stands."""
        return self._writer is not None

    @property
    def heard_at(self) -> int | None:
        """When something came from a master last; None if nothing did."""
        return self._heard[1] if self._heard is not None else None

    @property
    def silent_since(self) -> int | None:
        """When something came from the master that is looked for last; None if nothing did."""
        return self._heard[1] if self._heard is not None and self._heard[0] == self._target else None

    def join(self, ha_address: str, epoch: int) -> None:
        """As in the port."""
        target = _Target(ha_address, epoch)
        if target != self._target:
            self.leave()
            self._target = target
            self._task = self._tasks.start("failover's master", self._run(target))

    def leave(self) -> None:
        """As in the port."""
        self._target = None
        if self._writer is not None:
            self._writer.transport.abort()
            self._writer = None
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def stop(self) -> None:
        """As ``leave``, and wait for the end."""
        task = self._task
        self.leave()
        if task is not None:
            await end([task])

    def tell(self, report: Report) -> None:
        """As in the port."""
        if self._writer is not None:
            self._writer.write(messages.report(report.epoch, report.end, report.tables))

    async def _run(self, target: _Target) -> None:
        pause, longest = AGAIN
        while True:
            if await self._follow(target):
                pause = AGAIN[0]
            await asyncio.sleep(pause)
            pause = min(2 * pause, longest)

    async def _follow(self, target: _Target) -> bool:
        """One connection, until it ends; whether the master welcomed this broker."""
        try:
            host, port = split_address(target.ha_address)
            async with asyncio.timeout(CONNECT_TIMEOUT):
                reader, writer = await asyncio.open_connection(
                    host, port, **tls_arguments(self._tls, host, CONNECT_TIMEOUT)
                )
        except (OSError, ValueError, OverflowError) as fault:
            self._failed(target, str(fault) or "timeout")
            return False
        welcomed = False
        try:
            writer.write(messages.hello(await self._hello(target.epoch)))
            while True:
                async with asyncio.timeout(SILENCE):
                    kind, body = await messages.read(reader.readexactly)
                if kind is not Kind.REFUSED:  # by one that is no master, or not this broker's
                    self._heard = target, self._monotonic()
                match kind:
                    case Kind.WELCOME:
                        welcomed = True
                        self._writer = writer
                        self._repeats.forget()
                        self._post(messages.read_welcome(body))
                    case Kind.PART if welcomed:
                        await self._take(messages.read_part(body))
                    case Kind.TABLES if welcomed:
                        await self._take(messages.read_tables(body))
                    case Kind.BEAT if welcomed:
                        epoch, confirmed, stamp = messages.read_beat(body)
                        writer.write(messages.heard(stamp))
                        await self._take(Frame(epoch, None, 0, b"", confirmed))
                    case Kind.REFUSED:
                        self._failed(target, body.decode(errors="replace"))
                        return welcomed
                    case _:
                        raise ProtocolError(f"a master does not send {kind.name}")
        except (OSError, EOFError, ProtocolError) as fault:
            self._failed(target, str(fault) or "it was silent")
        finally:
            writer.transport.abort()
            if self._writer is writer:
                self._writer = None
                self._post(MasterLost())
        return welcomed

    def _failed(self, target: _Target, fault: str) -> None:
        again = self._repeats.failed(target)
        if again is not None:
            log.warning("group_master_unreachable", master=target.ha_address, fault=fault, **again)
