"""Pulls by the fast path: on sockets of the thread of the task, with one template of a request for each queue.

Owns these connections, which are kept for the next task of the process, and the pulls on them. Nothing is retried here:
any answer that is not as expected is left to the slow path (``slow_path``). An answer of 32 messages costs a tenth of
what it costs there, and its bytes are copied once, to those of its batch; brokers that grant few messages a pull are
what reading suffers from.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from eruca.client import PullConsumer
from eruca.protocol import api, frame
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import ProtocolError, Refused
from eruca.protocol.header import Header
from eruca.protocol.headers import pull
from eruca.remoting.signing import sign
from eruca.remoting.wire import Wire
from eruca.spark_connector.errors import SourceError
from eruca.spark_connector.options import Options
from eruca.spark_connector.read.spans import BATCH_BYTES, Chunk, Span, Spans
from eruca.spark_connector.runtime.access import Access
from eruca.spark_connector.runtime.clients import ClusterClients
from eruca.spark_connector.runtime.replicas import ReplicaChoice

MAX_FAILURES: Final = 3
"""Failures in a row after which a task stays on the slow path."""

_begins = struct.Struct(">hBHii").unpack_from
"""Code, language, version, opaque and flag of a binary header (RocketMQSerializable in 4.9.7)."""
_begin = struct.Struct(">II5sI8sI").pack
"""Length, header word, code to version, opaque, flag with no remark, and the fields' length of a request."""
_next_offset = re.compile(rb"nextBeginOffset\0\0\0.(\d+)", re.DOTALL).search
_suggested = re.compile(rb"suggestWhichBrokerId\0\0\0.(\d+)", re.DOTALL).search
_OFFSET: Final = 7_777_777_777_777_777_777
_COUNT: Final = 1_888_888_888
_varies = re.compile(rb"\0\0\0\x137777777777777777777|\0\0\0\x0a1888888888").split
"""The fields of a request that was made with these two, without them."""


class _Failed(Exception):
    """The slow path must find out why."""


@dataclass(frozen=True)
class ReplicaRoute:
    """The address of a replica, and what its requests need."""

    address: str
    security: dict[str, Any]
    connect_timeout: float
    group: str
    rename: Callable[[Header], Header] | None
    signer: Any


_idle_connections: dict[tuple[Access, str], Wire] = {}
"""The connections that no task uses now."""
os.register_at_fork(after_in_child=_idle_connections.clear)


class FastPuller:
    """The connections of one task, and its pulls by them; ``replicas`` says which replica is asked."""

    def __init__(self, clients: ClusterClients, options: Options, replicas: ReplicaChoice) -> None:
        self._clients = clients
        self._options = options
        self._replicas = replicas
        self._connections: dict[tuple[str, int], _BrokerConnection] = {}
        self._failures = 0
        self._data = memoryview(bytearray(1 << 20))

    @property
    def useful(self) -> bool:
        """Whether to try this path."""
        return self._failures < MAX_FAILURES

    def next_chunks(self, spans: Spans, rows: int) -> tuple[list[Chunk], memoryview, bool]:
        """Chunks over ``rows`` offsets or BATCH_BYTES, their bodies in a row, and whether all went succeeded.

        Where not, less was read, and nothing is under way any more. The bodies are valid until the next call.
        """
        found: list[tuple[Span, int]] = []
        filled, succeeded = 0, True
        try:
            while rows > 0 and filled < BATCH_BYTES and spans.unfinished:
                begun = spans.begin()
                if begun:
                    self._start(spans, begun)
                span = spans.first
                there, opaque = span.call
                serialization, header, body = there.answer(opaque)
                next_offset, broker_id = _read(serialization, header)
                reached, size = min(next_offset, span.end), len(body)
                if reached <= span.start:
                    raise _Failed
                if size:
                    self._replicas.suggest(span.queue.broker_name, broker_id)
                    if filled + size > len(self._data):
                        self._grow(filled, filled + size)
                    self._data[filled : filled + size] = body
                    filled += size
                    found.append((span, size))
                rows -= reached - span.start
                rest = spans.advance(reached, size)
                if rest:
                    self._start(spans, rest)
            self._failures = 0
        except (_Failed, OSError, ProtocolError, Refused, SourceError):
            self.close()
            spans.take_back()
            self._failures += 1
            succeeded = False
        chunks, at, data = [], 0, self._data[:filled]
        for span, size in found:
            chunks.append(Chunk(span.queue, data[at : at + size], span.end))
            at += size
        return chunks, data, succeeded

    def _grow(self, filled: int, need: int) -> None:
        larger = memoryview(bytearray(max(need, 2 * len(self._data))))
        larger[:filled] = self._data[:filled]
        self._data = larger

    def release(self) -> None:
        """All was read: leave the connections to the next task of this process."""
        for each in self._connections.values():
            _idle_connections[self._options.access, each.address] = each.wire
        self._connections.clear()

    def close(self) -> None:
        """Give up what is under way."""
        for each in self._connections.values():
            each.wire.close()
        self._connections.clear()

    def _start(self, spans: Spans, begun: list[Span]) -> None:
        requests: dict[_BrokerConnection, list[bytes]] = {}
        for span in begun:
            place = span.queue.broker_name, self._replicas.of(span.queue.broker_name)
            there = self._connections.get(place)
            if there is None:
                there = self._connections[place] = self._connect(span, place[1])
            frames = requests.setdefault(there, [])
            opaque, request = there.request(span, spans.count(span.start, span.end))
            frames.append(request)
            span.call = there, opaque
        for there, frames in requests.items():
            there.wire.send(b"".join(frames))

    def _connect(self, span: Span, broker_id: int) -> _BrokerConnection:
        async def reach(consumer: PullConsumer) -> ReplicaRoute:
            session = consumer.session
            address = await session.directory.reader(span.queue.broker_name, span.queue.topic, broker_id)
            return ReplicaRoute(
                address,
                session.channels.security(address),
                session.settings.connect_timeout,
                consumer.group,
                session.names.header if session.names.rename else None,
                session.settings.credentials,
            )

        found = self._clients.call(self._options.access, reach)
        timeout = self._options.pull_timeout_ms / 1000
        wire = _idle_connections.pop((self._options.access, found.address), None)
        if wire is not None and not wire.settle(timeout):
            wire.close()
            wire = None
        if wire is None:
            wire = Wire(found.address, found.security, connect_timeout=found.connect_timeout, timeout=timeout)
        return _BrokerConnection(wire, found, self._options)


class _BrokerConnection:
    """One connection while a task uses it."""

    def __init__(self, wire: Wire, reach: ReplicaRoute, options: Options) -> None:
        self.wire = wire
        self.address = reach.address
        self._reach = reach
        self._options = options
        self._opaque = 0
        self._early: dict[int, tuple[int, bytes, bytes]] = {}
        self._patterns: dict[tuple[str, int], tuple[bytes, bytes, list[bytes]]] = {}

    def request(self, span: Span, count: int) -> tuple[int, bytes]:
        """The number and the frame of a pull."""
        opaque = self._opaque = self._opaque + 1 & 0x7FFFFFFF
        topic, queue_id = span.queue.topic, span.queue.queue_id
        if self._reach.signer is not None:
            return opaque, self._frame(topic, queue_id, span.start, count, opaque)
        pattern = self._patterns.get((topic, queue_id))
        if pattern is None:
            whole = self._frame(topic, queue_id, _OFFSET, _COUNT, 0)
            pattern = self._patterns[topic, queue_id] = whole[8:13], whole[17:25], _varies(whole[29:])
        code, flag, (before, between, after) = pattern
        offset, most = b"%d" % span.start, b"%d" % count
        fields = b"%b\0\0\0%c%b%b\0\0\0%c%b%b" % (before, len(offset), offset, between, len(most), most, after)
        size = 21 + len(fields)
        return opaque, _begin(4 + size, frame.ROCKETMQ << 24 | size, code, opaque, flag, len(fields)) + fields

    def _frame(self, topic: str, queue_id: int, offset: int, count: int, opaque: int) -> bytes:
        options, reach = self._options, self._reach
        header: Header = pull.PullMessage(
            consumer_group=reach.group,
            topic=topic,
            queue_id=queue_id,
            queue_offset=offset,
            max_msg_nums=count,
            sys_flag=pull.SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription=options.expression,
            sub_version=0,
            expression_type=options.expression_type,
        )
        if reach.rename is not None:
            header = reach.rename(header)
        code = api.PULL_MESSAGE.code
        if reach.signer is None:
            return frame.encode(frame.ROCKETMQ, code, opaque, 0, header)
        signed = sign(reach.signer, header, None, frame.ROCKETMQ, b"")
        return frame.encode(frame.ROCKETMQ, code, opaque, 0, extra=signed)

    def answer(self, wanted: int) -> tuple[int, bytes, bytes | memoryview]:
        """Serialization, header and body of the answer, which is there until the next call. Waits for it."""
        if wanted in self._early:
            return self._early.pop(wanted)
        while True:
            serialization, header, body = self.wire.next_frame()
            if serialization == frame.ROCKETMQ and len(header) >= 13:
                _, _, _, opaque, flag = _begins(header)
            else:
                head = frame.read(serialization, header)
                opaque, flag = head.opaque, head.flag
            if opaque == wanted and flag & frame.RESPONSE_FLAG:
                return serialization, header, body
            if flag & frame.RESPONSE_FLAG:  # Apache's brokers answer pulls in no order
                self._early[opaque] = serialization, header, bytes(body)


def _read(serialization: int, header: bytes) -> tuple[int, int]:
    """Where to go on, and at which replica."""
    if serialization == frame.ROCKETMQ and not header[0] and not header[1]:
        offset, replica = _next_offset(header), _suggested(header)
        if offset is not None and replica is not None:
            return int(offset[1]), int(replica[1])
    head = frame.read(serialization, header)
    if head.code not in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY):
        raise _Failed
    fields = frame.typed(pull.PullReply, head)
    return fields.next_begin_offset, fields.suggest_which_broker_id
