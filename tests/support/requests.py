"""Requests of this process that a test looks at: when each is about to leave, and when its answer has come.

Owns the wrapping of ``Connection.call_for`` and ``Connection.call_many``, by which all requests leave that want an
answer. Requests for routes are left out: their number depends on what is known already.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from eruca.protocol import api
from eruca.remoting import Connection
from eruca.remoting.calls import SingleCall

Happened = Callable[[Connection, api.Endpoint[Any, Any]], None]
"""Called for a request with its connection and endpoint."""


def _nothing(connection: Connection, endpoint: api.Endpoint[Any, Any]) -> None:
    pass


class _Watched:
    """A receiver that reports the answer before it passes it on."""

    def __init__(self, receiver: Any, answered: Callable[[], None]) -> None:
        self.done = receiver.done
        self.set_exception = receiver.set_exception
        self._receiver = receiver
        self._answered = answered

    def set_result(self, answer: Any) -> None:
        self._answered()
        self._receiver.set_result(answer)


def watch(patch: pytest.MonkeyPatch, leaving: Happened = _nothing, answered: Happened = _nothing) -> None:
    """Call these for each request of this process, until the patch is undone."""
    call_one, call_many = Connection.call_for, Connection.call_many

    def watched_call(self: Connection, receiver: Any, endpoint: Any, *args: Any, **others: Any) -> None:
        if endpoint is not api.GET_ROUTEINFO_BY_TOPIC:
            leaving(self, endpoint)
            receiver = _Watched(receiver, lambda: answered(self, endpoint))
        call_one(self, receiver, endpoint, *args, **others)

    def watched_calls(self: Connection, frames: Any, calls: Any, deadline: float, *, flush: bool = True) -> None:
        watched = {}
        for opaque, call in calls.items():
            leaving(self, call.endpoint)
            # Without an owner each answer comes to its receiver.
            receiver = _Watched(call.receiver, partial(answered, self, call.endpoint))
            watched[opaque] = SingleCall(receiver, call.endpoint, call.deadline, call.asked)
        call_many(self, frames, watched, deadline, flush=flush)

    patch.setattr(Connection, "call_for", watched_call)
    patch.setattr(Connection, "call_many", watched_calls)
