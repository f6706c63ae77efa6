"""Requests of this process that a test looks at: when each is about to leave, and when its answer has come.

Owns the wrapping of ``Connection.call_for``, by which all requests leave that want an answer, whoever waits for it. The
questions for routes are left out: how many there are depends on what is known already.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eruca.protocol import api
from eruca.remoting import Connection

Happened = Callable[[Connection, api.Endpoint[Any, Any]], None]
"""Told of a request: its connection, and what is asked."""


def _nothing(connection: Connection, endpoint: api.Endpoint[Any, Any]) -> None:
    pass


class _Told:
    """A receiver that tells of the answer before it hands it on."""

    def __init__(self, receiver: Any, tell: Callable[[], None]) -> None:
        self.done = receiver.done
        self.set_exception = receiver.set_exception
        self._receiver = receiver
        self._tell = tell

    def set_result(self, answer: Any) -> None:
        self._tell()
        self._receiver.set_result(answer)


def watched(leaving: Happened = _nothing, answered: Happened = _nothing) -> Any:
    """What ``Connection.call_for`` is to be replaced by."""
    real = Connection.call_for

    def call_for(self: Connection, receiver: Any, endpoint: Any, *args: Any, **others: Any) -> None:
        if endpoint is api.GET_ROUTEINFO_BY_TOPIC:
            real(self, receiver, endpoint, *args, **others)
            return
        leaving(self, endpoint)
        real(self, _Told(receiver, lambda: answered(self, endpoint)), endpoint, *args, **others)

    return call_for
