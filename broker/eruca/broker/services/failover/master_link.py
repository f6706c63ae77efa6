"""A replica's link to the master of its group: connects again and again, and shakes hands.

Owns which master is connected. ``master_connection`` is one connection. Invariant: nothing of a connection is posted
after ``leave``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import structlog

from eruca.broker.failover.in_sync import Report
from eruca.broker.services.failover import messages
from eruca.broker.services.failover.master_connection import MasterConnection
from eruca.broker.services.failover.messages import Hello
from eruca.broker.services.failover.ports import Posts
from eruca.remoting.addresses import split_address
from eruca.remoting.log_repeats import Repeats
from eruca.remoting.tasks import Tasks, end
from eruca.remoting.tls import TlsFiles, tls_arguments

CONNECT_TIMEOUT = 1.0
"""Seconds."""
AGAIN = (0.05, 1.0)
"""Seconds until the next try: the first value, doubled up to the second; the first one again after a connection that
brought something, and stood for longer than the second."""

log = structlog.get_logger("eruca.broker.failover")


class _Target(NamedTuple):
    ha_address: str
    epoch: int


class MasterLink:
    """The link of one replica; ``monotonic`` is the driver's clock in ms."""

    driver: Posts
    """Whom to tell."""

    def __init__(
        self,
        hello: Callable[[int], Awaitable[Hello]],
        tasks: Tasks,
        monotonic: Callable[[], int],
        tls: TlsFiles | None = None,
    ) -> None:
        self._hello = hello
        self._tasks = tasks
        self._monotonic = monotonic
        self._tls = tls
        self._target: _Target | None = None
        self._task: asyncio.Task[None] | None = None
        self._connection: MasterConnection | None = None
        self._heard_before: tuple[_Target, int] | None = None
        """From which master something came last over a connection that is gone, and when."""
        self._repeats = Repeats()
        self._tried: _Target | None = None
        """Where the last connection went."""
        self._pause = 0.0
        self._free_at = 0.0
        """When the next connection there may begin, by the loop's clock; what ended it may be the same again."""

    @property
    def connected(self) -> bool:
        """Whether the master has welcomed this broker, and the connection stands."""
        return self._connection is not None and self._connection.follows

    @property
    def heard_at(self) -> int | None:
        """When something came from a master last; None if nothing did."""
        heard = self._heard
        return heard[1] if heard is not None else None

    @property
    def silent_since(self) -> int | None:
        """When something came from the master that is looked for last; None if nothing did."""
        heard = self._heard
        return heard[1] if heard is not None and heard[0] == self._target else None

    @property
    def _heard(self) -> tuple[_Target, int] | None:
        if self._connection is None or self._connection.heard_at is None or self._target is None:
            return self._heard_before
        return self._target, self._connection.heard_at

    def join(self, ha_address: str, epoch: int) -> None:
        """As in the port."""
        target = _Target(ha_address, epoch)
        if target != self._target:
            self.leave()
            self._target = target
            self._task = self._tasks.start("failover's master", self._run(target))

    def leave(self) -> None:
        """As in the port."""
        if self._connection is not None:
            self._connection.leave()
            self._forget(self._connection)
        self._target = None
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
        if self._connection is not None:
            self._connection.tell(report)

    async def _run(self, target: _Target) -> None:
        while True:
            if target == self._tried:
                await asyncio.sleep(max(0.0, self._free_at - asyncio.get_running_loop().time()))
            await self._follow(target)

    def _tried_to(self, target: _Target, copied_for: float = 0.0) -> None:
        """A connection has ended, and was good for ``copied_for`` seconds: one that always fails soon brings something,
        too (the tables)."""
        works = copied_for > AGAIN[1]
        if works or (self._tried is not None and self._tried.epoch < target.epoch):  # nobody looks for that one again
            self._repeats.forget()
        self._pause = min(2 * self._pause, AGAIN[1]) if target == self._tried and not works else AGAIN[0]
        self._tried, self._free_at = target, asyncio.get_running_loop().time() + self._pause

    async def _follow(self, target: _Target) -> None:
        """One connection, until it ends."""
        try:
            host, port = split_address(target.ha_address)
            async with asyncio.timeout(CONNECT_TIMEOUT):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: MasterConnection(self.driver, self._monotonic),
                    host,
                    port,
                    **tls_arguments(self._tls, host, CONNECT_TIMEOUT),
                )
        except (OSError, ValueError, OverflowError) as fault:
            self._tried_to(target)
            self._failed(target, str(fault) or "timeout")
            return
        self._connection = connection
        begun = asyncio.get_running_loop().time()
        try:
            connection.send(messages.hello(await self._hello(target.epoch)))
            reason = await connection.ended
        except OSError as fault:
            reason = f"the log cannot be read: {fault}"
        finally:
            connection.close()
            self._forget(connection)
            self._tried_to(target, asyncio.get_running_loop().time() - begun if connection.copied else 0.0)
        self._failed(target, reason)

    def _forget(self, connection: MasterConnection) -> None:
        if self._connection is connection:
            self._heard_before = self._heard
            self._connection = None

    def _failed(self, target: _Target, fault: str) -> None:
        again = self._repeats.failed(target)
        if again is not None:
            log.warning("group_master_unreachable", master=target.ha_address, fault=fault, **again)
