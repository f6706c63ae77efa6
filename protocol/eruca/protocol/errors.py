"""The two errors of the wire.

=================  ================================================  =======================================
error              cause                                             what a server does
=================  ================================================  =======================================
``ProtocolError``  bytes break the protocol: the stream is unusable  closes the connection, sends no answer
``Refused``        a sound request cannot be carried out             answers with the code, keeps on serving
=================  ================================================  =======================================

Every decoder raises ``ProtocolError``, and nothing else, for bytes that are not what they should be. The decoder of a
body inside a sound frame raises it, too: a handler that decodes a body turns it into ``Refused``, and one that leaves
a handler all the same is answered with code 1, since the frame around the body was sound.
"""

from __future__ import annotations

from eruca.protocol.codes import ResponseCode
from eruca.protocol.header import Header


class ProtocolError(Exception):
    """Bytes that are no frame, header, record or body of this protocol.

    Ends the connection when it is raised while frames are read.
    """


class LongDialect(ProtocolError):
    """A JSON text beyond plain JSON that is longer than its reader allows: such texts take fifty times as long."""


class Refused(Exception):
    """A sound request that is answered with an error; the connection stays open.

    A server raises it to answer with an error code, a caller gets it from a call that was answered with one. ``code``
    is a ResponseCode, or a plain int when the peer uses an unknown one. ``remark`` is the sentence for the person at
    the other end. ``header`` holds the fields of the reply where an error carries some.
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
