"""The fast path of a broker that is overloaded: sends that wait too long are refused without being read.

Owns these answers. A broker that takes as long to refuse a send as to store it never gets out of an overload: its
clients' requests wait in the sockets, where nobody sees for how long. The answer is that of the plain handler,
``send``, which looks at a send before it looks at the load.
"""

from __future__ import annotations

import re
import struct
from time import monotonic

from eruca.broker.broker import Broker
from eruca.broker.handlers.send import busy, refused_header, too_late
from eruca.protocol import frame
from eruca.protocol.codes import RequestCode, ResponseCode
from eruca.protocol.errors import Refused
from eruca.protocol.headers.send import SendRefused
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
        replies = _Replies(busy(broker, waited), refused_header(broker))
        end, count = replies.take(data, at)
        connection.send(replies.joined())
        self._took.add(int(waited * 1000), count)
        return end


class _Replies:
    """The same refusal for many requests: what differs is the opaque, which is found without reading the header."""

    def __init__(self, refused: Refused, header: SendRefused) -> None:
        self._refused = refused
        self._header = header
        self._pieces: list[bytes] = []
        before, self._json_end = self._encoded(frame.JSON, 0)[8:].split(_JSON_OPAQUE + b"0", 1)
        before += _JSON_OPAQUE
        sizes = [len(before) + digits + len(self._json_end) for digits in range(_MOST_DIGITS + 1)]
        self._json_begins = [struct.pack(">ii", 4 + size, size) + before for size in sizes]
        """The reply before the opaque, by the number of its digits."""
        whole = self._encoded(frame.ROCKETMQ, 0)
        self._binary_begin, self._binary_end = whole[:13], whole[17:]

    def _encoded(self, serialization: int, opaque: int) -> bytes:
        refused = self._refused
        return frame.encode(
            serialization, refused.code, opaque, frame.RESPONSE_FLAG, self._header, remark=refused.remark
        )

    def take(self, data: bytes, at: int) -> tuple[int, int]:
        """Refuse the sends at ``at``, one after the other; returns where they end, and their number.

        Raises ProtocolError for what is no frame, or no header.
        """
        size, count = len(data), 0
        begins, end_of_reply, append = self._json_begins, self._json_end, self._pieces.append
        while is_send(data, at):
            if size - at >= 8:  # each call would cost as much as a refusal
                length, word = _prefix(data, at)
                body, end = at + 8 + word, at + 4 + length  # of a header in JSON: then the word is its length
                if body <= end <= size and (found := _search(data, at, body)) is not None:
                    opaque = found[1]
                    append(begins[len(opaque)])
                    append(opaque)
                    append(end_of_reply)
                    at = end
                    count += 1
                    continue
            split = frame.split(data, at)
            if split is None:
                break
            serialization, start, body, at = split
            self._add(serialization, data, start, body)
            count += 1
        return at, count

    def _add(self, serialization: int, data: bytes, start: int, body: int) -> None:
        if serialization == frame.ROCKETMQ and data[start + 9 : start + 13] == b"\0\0\0\0":
            self._pieces += self._binary_begin, data[start + 5 : start + 9], self._binary_end
            return
        head = frame.read(serialization, data[start:body])
        if not head.flag & frame.ONEWAY_FLAG:
            self._pieces.append(self._encoded(serialization, head.opaque))

    def joined(self) -> bytes:
        """The replies, in the order of the requests."""
        return b"".join(self._pieces)


_MOST_DIGITS = 9
_prefix = struct.Struct(">II").unpack_from
_JSON_OPAQUE = b'"opaque":'
_search = re.compile(b'"flag":0,"language":"[A-Z]+","opaque":(0|[1-9][0-9]{0,%d}),' % (_MOST_DIGITS - 1)).search
"""What nearly all clients write: the names in the order of the alphabet. No text of JSON contains it."""
_JSON_CODES = frozenset((b"310", b"320"))
_BINARY_CODES = frozenset((b"\1\x36", b"\1\x40"))


def is_send(data: bytes, at: int) -> bool:
    """Whether a frame begins at ``at`` that looks like a send."""
    return data[at + 8 : at + 10] in _BINARY_CODES or data[at + 16 : at + 19] in _JSON_CODES
