"""The short way of pulling, against brokers that answer late, in any order, wrongly, or not at all."""

from __future__ import annotations

import random
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec import structs

from eruca.client import Credentials, MessageQueue, Tls
from eruca.protocol import frame
from eruca.protocol.header import Header
from eruca.protocol.headers.pull import PullMessage, PullReply
from eruca.protocol.record import decode_records
from eruca.remoting.rpc_hooks import sign
from eruca.spark_connector.offsets.positions import OffsetRange
from eruca.spark_connector.options import Options
from eruca.spark_connector.read.fast_path import MAX_FAILURES, FastPuller, ReplicaRoute
from eruca.spark_connector.read.spans import Spans
from eruca.spark_connector.runtime.clients import ClusterClients
from eruca.spark_connector.runtime.replicas import ReplicaChoice
from tests.spark_connector.messages import ORDERS, stored
from tests.support.certificates import Certificates

Pull = tuple[int, PullMessage]
"""The opaque and the header of a request."""
GRANT = 7


class Broker:
    """Takes pulls on a port of its own and answers them as ``answer`` says, a connection at a time."""

    def __init__(self, answer: Callable[[list[Pull]], list[bytes]], tls: ssl.SSLContext | None = None) -> None:
        self._answer = answer
        self._tls = tls
        self.heads: list[frame.Head[Any]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            if self._tls is not None:
                peer = self._tls.wrap_socket(peer, server_side=True)
            self._peer = peer
            with peer, suppress(ConnectionError):  # a reader that has enough closes
                for pulls in self._requests(peer):
                    frames = b"".join(self._answer(pulls))
                    if not frames:
                        break
                    half = len(frames) // 3  # so that frames come in pieces
                    peer.sendall(frames[:half])
                    peer.sendall(frames[half:])

    def _requests(self, peer: socket.socket) -> Iterator[list[Pull]]:
        rest = b""
        while data := peer.recv(1 << 16):
            rest += data
            pulls = []
            while found := frame.split(rest, 0):
                serialization, head_at, body_at, end = found
                head = frame.read(serialization, rest[head_at:body_at])
                self.heads.append(head)
                pulls.append((head.opaque, frame.typed(PullMessage, head)))
                rest = rest[end:]
            yield pulls

    def hang_up(self) -> None:
        """Close the connection that it serves."""
        self._peer.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


def reply(opaque: int, offset: int, *, code: int = 0, body: bytes = b"", json: bool = False) -> bytes:
    header = PullReply(suggest_which_broker_id=0, next_begin_offset=offset, min_offset=0, max_offset=1 << 30)
    how = frame.JSON if json else frame.ROCKETMQ
    return frame.encode(how, code, opaque, frame.RESPONSE_FLAG, header, len(body)) + body


def granted(pull: Pull, *, json: bool = False) -> bytes:
    opaque, ask = pull
    offsets = range(ask.queue_offset, ask.queue_offset + min(GRANT, ask.max_msg_nums))
    body = b"".join(stored(each, b"x" * (each % 40), queue=MessageQueue("orders", "broker-a", 1)) for each in offsets)
    return reply(opaque, offsets.stop, body=body, json=json)


class OneBroker:
    """In the place of the link: every replica is at this address."""

    def __init__(self, address: str, **how: Any) -> None:
        plain = {"security": {}, "connect_timeout": 3.0, "group": "readers", "rename": None, "signer": None}
        self.reach = ReplicaRoute(address, **{**plain, **how})

    def call(self, access: Any, work: Any) -> Any:
        return self.reach


def options_of_a_task(**values: Any) -> Options:
    return Options(name_server="mq:9876", subscribe=("orders",), pull_timeout_ms=2000, **values)


@contextmanager
def reading(
    answer: Callable[[list[Pull]], list[bytes]],
    *,
    tls: ssl.SSLContext | None = None,
    how: Mapping[str, Any] = {},
    **values: Any,
) -> Iterator[tuple[FastPuller, Spans, Broker]]:
    broker = Broker(answer, tls)
    options = options_of_a_task(**values)
    puller = FastPuller(cast(ClusterClients, OneBroker(broker.address, **how)), options, ReplicaChoice())
    try:
        yield puller, Spans(options, [OffsetRange(ORDERS, 10, 500), OffsetRange(ORDERS, 900, 1300)]), broker
    finally:
        puller.close()
        broker.close()


def read_all(puller: FastPuller, spans: Spans, rows: int = 64) -> list[int]:
    found = []
    while spans.unfinished:
        chunks, data, succeeded = puller.next_chunks(spans, rows)
        assert succeeded
        assert b"".join(chunk.body for chunk in chunks) == data
        for chunk in chunks:
            offsets = [each.queue_offset for each in decode_records(bytes(chunk.body))]
            found += [offset for offset in offsets if offset < chunk.end]
    return found


EVERY = [*range(10, 500), *range(900, 1300)]


@pytest.mark.parametrize("json", [False, True])
def test_answers_in_any_order_are_put_in_order(json: bool) -> None:
    shuffle = random.Random(7).shuffle

    def answer(pulls: list[Pull]) -> list[bytes]:
        shuffle(pulls)
        return [granted(pull, json=json) for pull in pulls]

    with reading(answer) as (puller, spans, _):
        assert read_all(puller, spans) == EVERY


def test_encrypted_connections(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    trusting = Tls(ca_file=certificates.ca_file)
    tls = certificates.server_context()

    def all_of_them(pulls: list[Pull]) -> list[bytes]:
        return [granted(pull) for pull in pulls]

    how = {"security": {"ssl": trusting.context(), "server_hostname": "127.0.0.1"}}
    with reading(all_of_them, tls=tls, how=how) as (puller, spans, _):
        assert read_all(puller, spans) == EVERY


def test_an_account_signs_each_pull_under_the_names_of_its_namespace() -> None:
    account = Credentials("me", "a-secret")

    def rename(header: Header) -> Header:
        assert isinstance(header, PullMessage)
        return structs.replace(header, topic="tenant%orders", consumer_group="tenant%readers")

    def answer(pulls: list[Pull]) -> list[bytes]:
        return [granted(pull) for pull in pulls]

    with reading(answer, how={"signer": account, "rename": rename}) as (puller, spans, broker):
        assert read_all(puller, spans) == EVERY
        for head in broker.heads:
            signed = sign(account, frame.typed(PullMessage, head), None, frame.ROCKETMQ, b"")
            assert frame.fields_of(head) == signed
            assert signed["Signature"] and (signed["topic"], signed["consumerGroup"]) == (
                "tenant%orders",
                "tenant%readers",
            )
    with reading(answer, how={"rename": rename}) as (puller, spans, broker):
        assert read_all(puller, spans) == EVERY
        assert {frame.fields_of(head)["topic"] for head in broker.heads} == {"tenant%orders"}


def test_a_filter_goes_on_where_the_broker_says() -> None:
    def answer(pulls: list[Pull]) -> list[bytes]:
        assert all(ask.subscription == "A" for _, ask in pulls)
        return [
            reply(opaque, ask.queue_offset + 30, code=20) if ask.queue_offset % 4 else granted((opaque, ask))
            for opaque, ask in pulls
        ]

    with reading(answer, tags="A") as (puller, spans, _):
        found = read_all(puller, spans)
    assert found == sorted(set(found))
    assert 0 < len(found) < len(EVERY)


def test_what_was_read_before_a_failure_is_kept_and_the_rest_is_left_to_read() -> None:
    answered = []

    def answer(pulls: list[Pull]) -> list[bytes]:
        answered.extend(pulls)
        return [granted(pull) for pull in pulls] if len(answered) < 60 else []

    with reading(answer, pull_batch_size=GRANT, pull_pipeline=8) as (puller, spans, broker):
        found, succeeded = [], True
        while succeeded:
            chunks, _, succeeded = puller.next_chunks(spans, 64)
            found += [each.queue_offset for chunk in chunks for each in decode_records(bytes(chunk.body))]
        assert found == EVERY[: len(found)]
        assert found and spans.unfinished
        answered.clear()
        again = puller.next_chunks(spans, GRANT)[0]
        assert decode_records(bytes(again[0].body))[0].queue_offset == EVERY[len(found)]
        assert broker.connections == 2


def test_a_broker_that_refuses_is_left_to_the_patient_way() -> None:
    with reading(lambda pulls: [reply(opaque, 0, code=16) for opaque, _ in pulls]) as (puller, spans, _):
        for _ in range(MAX_FAILURES):
            assert puller.useful
            assert puller.next_chunks(spans, 64) == ([], memoryview(b""), False)
        assert not puller.useful
        spans.begin()
        assert spans.first.start == 10


@pytest.mark.parametrize("nonsense", [b"\0\0\0\1", struct.pack(">II", 8, 200) + b"abcd", b"GET / HTTP/1.1\r\n\r\n"])
def test_bytes_that_are_no_frame_end_the_connection(nonsense: bytes) -> None:
    with reading(lambda _: [nonsense]) as (puller, spans, _):
        assert puller.next_chunks(spans, 64) == ([], memoryview(b""), False)


def test_a_frame_longer_than_the_buffer_is_read_whole() -> None:
    body = stored(10, b"z" * 3_000_000)

    def answer(pulls: list[Pull]) -> list[bytes]:
        return [reply(opaque, ask.queue_offset + 1, body=body) for opaque, ask in pulls]

    with reading(answer, pull_pipeline=2) as (puller, spans, _):
        chunks, data, succeeded = puller.next_chunks(spans, 1)
        assert succeeded
        assert bytes(chunks[0].body) == bytes(data) == body


def test_the_next_task_uses_the_connection_unless_it_was_closed() -> None:
    def answer(pulls: list[Pull]) -> list[bytes]:
        return [granted(pull) for pull in pulls]

    with reading(answer) as (puller, spans, broker):
        assert read_all(puller, spans) == EVERY
        puller.release()
        options = options_of_a_task()
        again = FastPuller(cast(ClusterClients, OneBroker(broker.address)), options, ReplicaChoice())
        assert read_all(again, Spans(options, [OffsetRange(ORDERS, 0, 20)])) == list(range(20))
        assert broker.connections == 1
        again.release()
        broker.hang_up()
        third = FastPuller(cast(ClusterClients, OneBroker(broker.address)), options, ReplicaChoice())
        assert read_all(third, Spans(options, [OffsetRange(ORDERS, 0, 20)])) == list(range(20))
        assert broker.connections == 2
        third.close()
