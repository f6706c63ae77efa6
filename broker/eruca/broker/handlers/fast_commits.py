"""The fast path of commits: ends of transactions (37) that follow one another in a read are handled at once.

Owns which ends go this way, and the replies. ``services.commits`` commits them; the first frame that it leaves goes to
the plain handler, ``transactions``. Invariant: what is stored and answered is, byte for byte, what ``transactions``
would have stored and answered.
"""

from __future__ import annotations

from time import monotonic

from eruca.broker.broker import Broker
from eruca.broker.services.commits import End
from eruca.protocol import frame
from eruca.protocol.codes import RequestCode
from eruca.protocol.errors import ProtocolError
from eruca.protocol.headers.send import EndTransaction
from eruca.protocol.message import TRANSACTION_COMMIT
from eruca.remoting import Connection

_TOGETHER = 256
_JSON_CODE = b"37,"
_BINARY_CODES = frozenset((b"\0\x25", b"\x97\x25"))
"""How headers in ROCKETMQ's serialization and in msgpack begin."""
_ROLLBACKS = {frame.JSON: b'"commitOrRollback":"12"', frame.ROCKETMQ: b"commitOrRollback\0\0\0\x0212"}
"""What is in a header that need not be read here."""


def is_end(data: bytes, at: int) -> bool:
    """Whether a frame begins at ``at`` that looks like the end of a transaction."""
    return data[at + 16 : at + 19] == _JSON_CODE or data[at + 8 : at + 10] in _BINARY_CODES


class FastCommits:
    """Commits the transactions of one broker whose ends come together."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._took = broker.rpc_latency.of(RequestCode.END_TRANSACTION)
        self._most = _TOGETHER
        """How many ends are read at once: few after one that needed the plain handler, for the rest is read again."""

    def take(self, connection: Connection, data: bytes, at: int) -> int:
        """Handle the commits in ``data`` from ``at`` on; returns where it stopped (a ``FastPath``)."""
        commits = self._read(connection, data, at)
        if not commits:
            return at
        count = self._broker.commits.commit([end for end, _, _ in commits])
        self._most = min(max(2 * count, 1), _TOGETHER)
        if not count:
            return at
        replies = b"".join([reply for _, _, reply in commits[:count]])
        if replies:
            connection.send(replies)
        self._took.add(int((monotonic() - connection.last_active) * 1000), count)
        return commits[count - 1][1]

    def _read(self, connection: Connection, data: bytes, at: int) -> list[tuple[End, int, bytes]]:
        """The commits in ``data`` from ``at`` on: what they end, where their frames end, and their replies."""
        commits: list[tuple[End, int, bytes]] = []
        while len(commits) < self._most and is_end(data, at):
            try:
                found = frame.split(data, at)
                if found is None:
                    break
                serialization, start, body_at, at = found
                rollback = _ROLLBACKS.get(serialization)
                if rollback is not None and data.find(rollback, start, body_at) >= 0:
                    break
                head = connection.reader.read(serialization, data[start:body_at])
            except ProtocolError:
                break  # the slow path says what is wrong
            ask = head.ext
            if head.code != RequestCode.END_TRANSACTION or not isinstance(ask, EndTransaction):
                break
            if ask.commit_or_rollback != TRANSACTION_COMMIT or head.flag not in (0, frame.ONEWAY_FLAG):
                break
            end = ask.tran_state_table_offset, ask.commit_log_offset, ask.producer_group
            reply = b"" if head.flag else frame.encode_reply(serialization, head.opaque, None, 0)
            commits.append((end, at, reply))
        return commits
