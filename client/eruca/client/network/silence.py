"""Brokers that say nothing while calls wait there: once another broker leads in their place, the calls go there.

Owns one timer, which runs while calls are under way, and the questions by which a broker shows that it is there. A
machine that hangs closes no connection, so a call would wait there until its time is over (as in Java's client). When a
connection on which calls wait has been silent for ``SILENT`` seconds, the route is asked for again and again; once it
names another master, the connection is ended, and its calls are tried again as after the loss of any connection. A
broker that is slow keeps its calls as long as no other one leads: sends that were tried elsewhere would be stored
twice.

A pull is no sign, since brokers hold it. So where only pulls wait, one small question (31) is put, a call like any
other: as soon as another broker of that name notifies of a change (40), as one does that has become the master. A
client that nobody notifies, as it is no member of a group, or is not known yet to each of these brokers, puts it to one
that has been quiet for ``QUIET`` seconds, if another one of that name might lead.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from math import inf
from typing import Any, Final

from eruca.client.errors import ClientError
from eruca.client.log import log
from eruca.client.network.directory import Directory
from eruca.protocol import api
from eruca.protocol.headers.offsets import QueueOf
from eruca.remoting import Channels, Connection
from eruca.remoting.addresses import address_of_vip, vip_address

SILENT: Final = 1.5
"""Seconds without a byte after which the route is asked for."""
QUIET: Final = 2.5
"""Seconds without a byte after which a broker that may hold pulls is asked whether it is there."""
QUIET_WHERE_NOTIFIED: Final = 8.0
"""The same where all that might lead notify this client of that: a notice may be lost."""
LOOK: Final = 0.5
"""Seconds until the first look at a call, and between two questions for a route."""
_FORGOTTEN: Final = 3600.0
"""Seconds until such a question is forgotten: while it waits, no other is put."""
_HELD = frozenset({api.PULL_MESSAGE, api.LITE_PULL_MESSAGE})


class _Nobody:
    """Receives an answer of which only the arrival counts."""

    def done(self) -> bool:
        """It is not wanted."""
        return True

    def set_result(self, result: object, /) -> None:
        """Never called."""

    def set_exception(self, exception: Exception, /) -> None:
        """The connection has ended before the question left: so have the pulls."""


class Silence:
    """Watches the connections to brokers on which calls wait; ``spawn`` runs something in the background, and
    ``notified_by`` says whether the broker at an address notifies this client of changes."""

    def __init__(
        self,
        channels: Channels,
        directory: Directory,
        spawn: Callable[[Coroutine[Any, Any, Any]], object],
        *,
        notified_by: Callable[[str], bool],
    ) -> None:
        self.watched = False
        """Whether it looks within ``LOOK`` seconds."""
        self._channels = channels
        self._directory = directory
        self._spawn = spawn
        self._notified_by = notified_by
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._asking: set[str] = set()
        """The addresses of silent brokers for whose route nameservers are being asked."""

    @property
    def runs(self) -> bool:
        """Whether it looks at all."""
        return self._timer is not None

    def watch(self) -> None:
        """Calls have left: look until all have ended."""
        if not self.watched:
            self._look_in(LOOK)

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.watched = seconds <= LOOK
        self._timer = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer, self.watched = None, False
        next_look = inf
        for address in self._channels.addresses():
            connection = self._channels.ready(address)
            if connection is not None and connection.calls.waiting:
                next_look = min(next_look, self._look_at(address, connection))
        if next_look < inf:
            self._look_in(next_look)

    def _look_at(self, address: str, connection: Connection) -> float:
        """Look at one connection on which calls wait; the seconds until the next look."""
        now, asked = self._loop.time(), _asked(connection)
        quiet = now - connection.last_active
        if asked is not None:
            silent = min(quiet, now - asked)
            if silent < SILENT:
                return SILENT - silent
            return LOOK if self._ask_route(address, connection) else inf
        if quiet < QUIET:
            return QUIET - quiet
        name = self._name_at(address)
        if name is None or not self._directory.has_others(name, address):
            return inf  # nobody could lead in its place
        others = self._directory.others(name, address)
        if quiet < QUIET_WHERE_NOTIFIED and others and all(map(self._notified_by, others)):
            return QUIET_WHERE_NOTIFIED - quiet
        return SILENT if self._ask(connection, name) else inf

    def doubt(self, notifier: Connection) -> None:
        """A broker notifies of a change: ask the others of its name whether they are there, where only pulls wait."""
        places = {self._channels.ready(address): address for address in self._channels.addresses()}
        name = self._name_at(places.get(notifier, ""))
        for connection, address in places.items():
            if connection is None or connection is notifier or name is None or self._name_at(address) != name:
                continue
            if connection.calls.waiting and _asked(connection) is None and self._ask(connection, name):
                self._look_in(SILENT)

    def _ask(self, connection: Connection, name: str) -> bool:
        """Put a question whose answer shows that a broker is there."""
        topic = self._directory.topic_at(name)
        if topic is not None:
            question = QueueOf(topic=topic, queue_id=0)
            connection.call_for(_Nobody(), api.GET_MIN_OFFSET, question, timeout=_FORGOTTEN)
        return topic is not None

    def _name_at(self, address: str) -> str | None:
        """The broker at an address, be it the second one of its host; None for a nameserver."""
        find = self._directory.name_at
        return (find(address) or find(address_of_vip(address))) if address else None

    def _ask_route(self, address: str, connection: Connection) -> bool:
        """Have the route asked for of which this broker is; False where it is no broker's address."""
        name = self._name_at(address)
        topic = self._directory.topic_at(name)
        if name is None or topic is None:
            return False
        if address not in self._asking:
            self._asking.add(address)
            self._spawn(self._find(address, connection, name, topic))
        return True

    async def _find(self, address: str, connection: Connection, name: str, topic: str) -> None:
        try:
            with contextlib.suppress(ClientError):
                await self._directory.refresh(topic)
        finally:
            self._asking.discard(address)
        self._leave(address, connection, name)

    def _leave(self, address: str, connection: Connection, name: str) -> None:
        """End a connection that is still silent if its broker's master is another one now."""
        asked, now = _asked(connection), self._loop.time()
        if asked is None or now - max(connection.last_active, asked) < SILENT:
            return
        leads = self._directory.masters.get(name)
        if leads is not None and address not in (leads, vip_address(leads)):
            log.warning("%s says nothing, and %s leads %s now: calls go there", connection.remote, leads, name)
            connection.abort()


def _asked(connection: Connection) -> float | None:
    """When the oldest call began that waits and is no pull; None where there is none."""
    for call in connection.calls.waiting.values():
        if call.endpoint not in _HELD:
            return call.asked
    return None
