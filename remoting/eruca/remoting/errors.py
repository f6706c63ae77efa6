"""Failures of a call without an answer. An answer with an error code is ``Refused`` (``eruca.protocol.errors``)."""

from __future__ import annotations


class RemotingError(Exception):
    """Base: a call got no answer. ``address`` is the peer's ``host:port``."""

    def __init__(self, address: str, message: str) -> None:
        super().__init__(message)
        self.address = address


class ConnectFailed(RemotingError):
    """No connection could be made; the request was not sent. ``unreachable``: nobody has ever answered there."""

    def __init__(self, address: str, message: str, *, unreachable: bool = False) -> None:
        super().__init__(address, message)
        self.unreachable = unreachable


class ConnectionLost(RemotingError):
    """The connection ended while an answer was awaited; the request may have been carried out."""


class CallTimedOut(RemotingError):
    """No answer came in time; the request may have been carried out."""
