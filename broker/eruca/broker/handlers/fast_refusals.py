"""The fast path of a broker that is overloaded: sends that wait too long are refused without being read.

Owns these answers. A broker that takes as long to refuse a send as to store it never gets out of an overload: its
clients' requests wait in the sockets, where nobody sees for how long. The answer is that of the plain handler,
``send``, which looks at a send before it looks at the load.
"""

from __future__ import annotations

from time import monotonic

from eruca.broker.broker import Broker
from eruca.broker.handlers.send import busy, refused_header, too_late
from eruca.protocol import frame
from eruca.protocol.codes import RequestCode, ResponseCode
from eruca.remoting import Connection


class FastRefusals:
    """Refuses sends while they wait too long."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._took = broker.rpc_latency.of(RequestCode.SEND_MESSAGE_V2, ResponseCode.SYSTEM_BUSY)

    def take(self, connection: Connection, data: bytes, at: int) -> int:
        """Refuse the sends at ``at``, one after the other, as long as they wait too long (a ``FastPath``)."""
        broker = self._broker
        if monotonic() <= broker.loop_monitor.overdue or not broker.accepting or connection.negotiating:
            return at
        if (waited := too_late(broker)) <= 0 or broker.hosts.get(connection) is None:
            return at
        refused, header = busy(broker, waited), refused_header(broker)
        replies, count = list[bytes](), 0
        while is_send(data, at) and (found := frame.split(data, at)) is not None:
            serialization, start, body, at = found
            head = frame.read(serialization, data[start:body])
            count += 1
            if not head.flag & frame.ONEWAY_FLAG:
                replies.append(
                    frame.encode(
                        serialization,
                        refused.code,
                        head.opaque,
                        frame.RESPONSE_FLAG,
                        header,
                        remark=refused.remark,
                    )
                )
        connection.send(b"".join(replies))
        self._took.add(int(waited * 1000), count)
        return at


_JSON_CODES = frozenset((b"310", b"320"))
_BINARY_CODES = frozenset((b"\1\x36", b"\1\x40"))


def is_send(data: bytes, at: int) -> bool:
    """Whether a frame begins at ``at`` that looks like a send."""
    return data[at + 8 : at + 10] in _BINARY_CODES or data[at + 16 : at + 19] in _JSON_CODES
