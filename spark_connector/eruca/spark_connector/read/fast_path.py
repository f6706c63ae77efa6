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
from typing import Any, Final, cast

from eruca.client import MessageQueue, PullConsumer
from eruca.protocol import api, frame
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import ProtocolError, Refused
from eruca.protocol.header import Header
from eruca.protocol.headers import pull
from eruca.protocol.templates import Template, pull_template
from eruca.remoting.rpc_hooks import sign
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
_next_offset = re.compile(rb"nextBeginOffset\0\0\0.(\d+)", re.DOTALL).search
_suggested = re.compile(rb"suggestWhichBrokerId\0\0\0.(\d+)", re.DOTALL).search


_CODE: Final = api.PULL_MESSAGE.code


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
    """The connections of one task, and its pulls on them; ``replicas`` chooses the replica of each broker."""

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
        """Chunks over ``rows`` offsets or BATCH_BYTES, their bodies in a row, and whether all went well.

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
                connection, opaque = span.call
                serialization, header, body = connection.answer(opaque)
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
            connection = self._connections.get(place)
            if connection is None:
                connection = self._connections[place] = self._connect(span, place[1])
            frames = requests.setdefault(connection, [])
            opaque, request = connection.request(span, spans.count(span.start, span.end))
            frames.append(request)
            span.call = connection, opaque
        for connection, frames in requests.items():
            connection.wire.send(b"".join(frames))

    def _connect(self, span: Span, broker_id: int) -> _BrokerConnection:
        async def find_route(consumer: PullConsumer) -> ReplicaRoute:
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

        route = self._clients.call(self._options.access, find_route)
        timeout = self._options.pull_timeout_ms / 1000
        wire = _idle_connections.pop((self._options.access, route.address), None)
        if wire is not None and not wire.settle(timeout):
            wire.close()
            wire = None
        if wire is None:
            wire = Wire(route.address, route.security, connect_timeout=route.connect_timeout, timeout=timeout)
        return _BrokerConnection(wire, route, self._options)


class _BrokerConnection:
    """One connection while a task uses it."""

    def __init__(self, wire: Wire, route: ReplicaRoute, options: Options) -> None:
        self.wire = wire
        self.address = route.address
        self._route = route
        self._options = options
        self._opaque = 0
        self._early: dict[int, tuple[int, bytes, bytes]] = {}
        self._templates: dict[tuple[str, int], Template | None] = {}

    def request(self, span: Span, count: int) -> tuple[int, bytes]:
        """The opaque and the frame of a pull."""
        opaque = self._opaque = self._opaque + 1 & 0x7FFFFFFF
        if self._route.signer is not None:
            ask = self._header(span.queue, span.start, count)
            signed = sign(self._route.signer, ask, None, frame.ROCKETMQ, b"")
            return opaque, frame.encode(frame.ROCKETMQ, _CODE, opaque, 0, extra=signed)
        key = span.queue.topic, span.queue.queue_id
        try:
            template = self._templates[key]
        except KeyError:
            ask = self._header(span.queue, span.start, count)
            template = self._templates[key] = pull_template(frame.ROCKETMQ, _CODE, ask)
        if template is None:
            return opaque, frame.encode(frame.ROCKETMQ, _CODE, opaque, 0, self._header(span.queue, span.start, count))
        return opaque, template.fill(opaque, b"%d" % span.start, b"%d" % count, 0)

    def _header(self, queue: MessageQueue, offset: int, count: int) -> pull.PullMessage:
        header = pull.PullMessage(
            consumer_group=self._route.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=count,
            sys_flag=pull.SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription=self._options.expression,
            sub_version=0,
            expression_type=self._options.expression_type,
        )
        return header if self._route.rename is None else cast(pull.PullMessage, self._route.rename(header))

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
    """nextBeginOffset and suggestWhichBrokerId of a reply."""
    if serialization == frame.ROCKETMQ and not header[0] and not header[1]:
        offset, replica = _next_offset(header), _suggested(header)
        if offset is not None and replica is not None:
            return int(offset[1]), int(replica[1])
    head = frame.read(serialization, header)
    if head.code not in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY):
        raise _Failed
    fields = frame.typed(pull.PullReply, head)
    return fields.next_begin_offset, fields.suggest_which_broker_id
