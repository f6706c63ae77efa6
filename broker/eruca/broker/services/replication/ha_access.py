"""Which addresses may connect to the HA port, over which the whole log goes out, without accounts.

Owns the decision and what it rests on: the patterns of haAllowedAddresses or, with access control on and none of them
set, the addresses under which nameservers know the brokers of this name. RocketMQ lets everybody in. Must not know what
a slave is sent. Invariant: a nameserver that does not answer neither opens nor closes the port.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable

import structlog

from eruca.remoting.access.tally import Tally
from eruca.remoting.access.white_addresses import patterns_of
from eruca.remoting.addresses import is_numeric
from eruca.remoting.tasks import Tasks, end

ASK_EVERY = 30.0
"""Seconds between two questions for the addresses."""
ASK_AFTER = 0.3
"""Seconds from an unknown address to the next question, so that nobody can make a broker ask without a pause."""

log = structlog.get_logger("eruca.broker")

Known = Callable[[], Awaitable[frozenset[str] | None]]
"""Returns the hosts that nameservers know for the brokers of this name; None if none of them answers."""


class HAAccess:
    """Decides about the peers of the HA port; ``known`` is None if addresses need not be known."""

    def __init__(self, allowed: str, known: Known | None, tally: Tally, tasks: Tasks) -> None:
        self._patterns = patterns_of(allowed)
        self._known = None if self._patterns else known
        self._tally = tally
        self._tasks = tasks
        self._addresses: frozenset[str] = frozenset()
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def admits(self, address: str) -> bool:
        """Whether a peer may connect; one that may not is counted and reported."""
        if self._patterns:
            allowed = any(pattern.matches(address) for pattern in self._patterns)
            advice = "add it to haAllowedAddresses if it is a slave's"
        elif self._known is not None:
            allowed = address in self._addresses
            advice = "no nameserver knows it under this broker's name: set haAllowedAddresses if it is a slave's"
        else:
            return True
        if not allowed:
            self._wanted.set()
            self._tally.add("ha_address", address, remote=address, resource="HA port", advice=advice)
        return allowed

    def start(self) -> None:
        """Start to ask nameservers, if addresses must be known."""
        if self._known is not None:
            self._task = self._tasks.start("addresses of slaves", self._run(self._known))

    async def stop(self) -> None:
        """Ask no more."""
        if self._task is not None:
            await end([self._task])
            self._task = None

    async def _run(self, known: Known) -> None:
        while True:
            self._wanted.clear()
            hosts = await known()
            if hosts is not None:
                self._addresses = await _resolved(hosts)
            try:
                async with asyncio.timeout(ASK_EVERY):
                    await self._wanted.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(ASK_AFTER)


async def _resolved(hosts: Iterable[str]) -> frozenset[str]:
    """The addresses of hosts; one that is not known now is left out."""
    found: set[str] = set()
    for host in hosts:
        if is_numeric(host):
            found.add(host)
            continue
        try:
            names = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError as fault:
            log.warning("slave_not_resolved", host=host, fault=str(fault))
            continue
        found.update(str(name[4][0]) for name in names)
    return frozenset(found)
