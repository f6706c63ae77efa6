"""Costly requests: one of a connection at a time, the others wait in their order.

A request is costly if its work grows with the number of queues, groups or topics, or if it writes a file for each
request. Owns the order of those of each connection; a peer that does not read its answers waits with the next one. Must
not know what they do.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import Refused
from eruca.remoting.connection import Connection
from eruca.remoting.slices import next_slice

MOST_WAITING, MOST_BYTES = 256, 32 << 20
"""Costly requests of one connection that wait, and their size; more are refused."""

Work = Callable[[], Coroutine[Any, Any, None]]


class _Request(NamedTuple):
    size: int
    work: Work


class CostlyRequests:
    """All costly requests of a server. ``start`` runs the requests of a connection as a task of that connection."""

    def __init__(self, start: Callable[[Connection, Coroutine[Any, Any, None]], asyncio.Task[None]]) -> None:
        self._start = start
        self._waiting: dict[Connection, deque[_Request]] = {}

    def add(self, connection: Connection, size: int, work: Work) -> None:
        """Do the ``work`` of a request when those before it are done. Raises Refused if too many wait."""
        waiting = self._waiting.get(connection)
        request = _Request(size, work)
        if waiting is None:
            waiting = self._waiting[connection] = deque([request])
            task = self._start(connection, self._serve(connection, waiting))
            task.add_done_callback(lambda _: self._forget(connection, waiting))
        elif len(waiting) < MOST_WAITING and sum(each.size for each in waiting) + size <= MOST_BYTES:
            waiting.append(request)
        else:
            raise Refused(
                ResponseCode.SYSTEM_BUSY,
                f"{len(waiting)} costly requests of this connection wait already: wait for their answers",
            )

    async def _serve(self, connection: Connection, waiting: deque[_Request]) -> None:
        while waiting:
            await next_slice()
            await connection.room()
            await waiting.popleft().work()
        self._forget(connection, waiting)  # at once: what comes next begins a task of its own

    def _forget(self, connection: Connection, waiting: deque[_Request]) -> None:
        if self._waiting.get(connection) is waiting:
            del self._waiting[connection]
