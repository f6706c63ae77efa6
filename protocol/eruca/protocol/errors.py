"""The two errors of the wire: a peer that breaks the protocol, and a request that is refused.

Every decoder raises ``ProtocolError`` and nothing else for bytes that are not what they should be. ``Refused`` is the
one way for a server to answer with an error code, and what a caller gets when it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eruca.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from eruca.protocol.header import Header


class ProtocolError(Exception):
    """Bytes that are no frame, header, record or body of this protocol; the connection they came on is closed."""


class Refused(Exception):
    """A well-formed request that is answered with an error.

    ``code`` is a ResponseCode (kept as a plain int when the peer uses one that is not known here), ``remark`` the
    sentence for the person at the other end, ``header`` the reply's fields where an error carries some.
    """

    def __init__(self, code: int, remark: str = "", header: Header | None = None) -> None:
        super().__init__(code, remark)
        self.code = code
        self.remark = remark
        self.header = header

    def __str__(self) -> str:
        try:
            name = ResponseCode(self.code).name
        except ValueError:
            name = "unknown code"
        return f"CODE: {self.code} ({name}) DESC: {self.remark}"
