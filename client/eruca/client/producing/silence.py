"""Sends that wait for a master which says nothing, while another broker leads.

Owns one task, which runs while sends are under way. A machine that hangs closes no connection, so a send would wait
there until its time is over (as in Java's client). When a connection on which sends wait has been silent for ``SILENT``
seconds, the route is asked for again and again; once it names another master, the connection is ended, and its sends
are tried again as after the loss of any connection. A broker that is slow keeps its sends as long as no other one
leads: tried elsewhere they would be stored twice.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

from eruca.client.errors import ClientError
from eruca.client.log import log
from eruca.client.network.session import Session
from eruca.client.producing.send import Send
from eruca.remoting import Connection

SILENT: Final = 1.5
"""Seconds without a byte after which the route is asked for."""
LOOK: Final = 0.5
"""Seconds between two looks."""


class Silence:
    """Watches the connections of a session on which sends wait."""

    def __init__(self, session: Session) -> None:
        self.watched = False
        """Whether the task runs."""
        self._session = session

    def watch(self) -> None:
        """Sends have left: watch until all have ended."""
        self.watched = True
        self._session.spawn(self._watch())

    async def _watch(self) -> None:
        try:
            while True:
                await asyncio.sleep(LOOK)  # most sends have ended by then, and one-way sends are never under way
                if not await self._look():
                    return
        finally:
            self.watched = False

    async def _look(self) -> bool:
        """Look at each connection; whether sends are under way."""
        under_way = False
        for connection, send in self._waiting():
            under_way = True
            if self._is_silent(connection, send):
                with contextlib.suppress(ClientError):
                    await self._session.directory.refresh(send.topic.name)
                self._leave(connection, send)
        return under_way

    def _waiting(self) -> Iterator[tuple[Connection, Send]]:
        """The connections on which sends wait, each with the one that waits longest."""
        for connection in self._session.channels.connections():
            for call in connection.calls.waiting.values():
                if isinstance(call, Send):
                    yield connection, call
                    break

    def _is_silent(self, connection: Connection, send: Send) -> bool:
        since = max(connection.last_active, send.attempt_start or send.start)
        return self._session.loop.time() - since > SILENT

    def _leave(self, connection: Connection, send: Send) -> None:
        """End a connection that is still silent if its broker's master is another one now."""
        if send.queue is None or not self._is_silent(connection, send):
            return
        name = send.queue.broker_name
        leads = self._session.to_send_now(name)
        if leads is not None and self._session.channels.ready(leads) is not connection:
            log.warning("%s says nothing, and %s leads %s now: sends go there", connection.remote, leads, name)
            connection.abort()
