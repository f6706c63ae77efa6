"""Connections: calls both ways, slow and broken peers, and the serialization that two Eruca peers agree on."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from eruca.protocol import api, frame
from eruca.protocol.errors import ProtocolError, Refused
from eruca.protocol.header import Empty
from eruca.protocol.headers.clients import OfConsumerGroup
from eruca.protocol.headers.offsets import OffsetReply, QueueOf
from eruca.remoting import (
    Call,
    CallTimedOut,
    Channels,
    ConnectFailed,
    Connection,
    ConnectionLost,
    Reply,
    Router,
    Routes,
)
from eruca.remoting.connection import WRITE_HIGH_WATER
from eruca.remoting.connection_limits import ConnectionLimits
from eruca.remoting.server import Server
from tests.support.pairs import eventually


class Desk:
    """A small service: answers with the queue's number, at once or when it is told to."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self.left = asyncio.Event()
        self.waiting = 0
        self.seen: list[int] = []


routes: Routes[Desk] = Routes()


@routes.on(api.GET_MAX_OFFSET)
def answer_at_once(desk: Desk, call: Call[QueueOf]) -> Reply:
    desk.seen.append(call.header.queue_id)
    if call.header.queue_id < 0:
        raise Refused(17, "topic[T] not exist")
    if call.header.queue_id == 13:
        raise KeyError("thirteen")
    return Reply(header=OffsetReply(offset=call.header.queue_id), body=call.body)


@routes.on(api.GET_ALL_CONSUMER_OFFSET)
def answer_at_length(desk: Desk, call: Call[Any]) -> Reply:
    desk.seen.append(call.opaque)
    return Reply(body=bytes(LARGE))


@routes.on(api.GET_MIN_OFFSET)
async def answer_when_released(desk: Desk, call: Call[QueueOf]) -> Reply:
    desk.waiting += 1
    try:
        await desk.released.wait()
    finally:
        desk.waiting -= 1
        desk.left.set()
    return Reply(header=OffsetReply(offset=call.header.queue_id), body=[b"in ", memoryview(b"pieces")])


@routes.on(api.HEART_BEAT)
async def ask_back(desk: Desk, call: Call[Empty]) -> Reply:
    answer = await call.connection.call(api.GET_CONSUMER_LIST_BY_GROUP, OfConsumerGroup(consumer_group="g"))
    return Reply(body=answer.body)


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[tuple[Desk, Server, str]]:
    desk = Desk()
    server = Server(Router(desk, [routes]), **options)
    await server.start("127.0.0.1", 0)
    try:
        yield desk, server, f"127.0.0.1:{server.port}"
    finally:
        await server.stop(grace=0.2)


def of(queue: int) -> QueueOf:
    return QueueOf(topic="T", queue_id=queue)


@pytest.mark.parametrize("serialization", [frame.JSON, frame.ROCKETMQ])
async def test_a_call_and_its_answer(serialization: int) -> None:
    async with serving() as (_, _, address):
        channels = Channels(serialization=serialization, offer=False)
        answer = await channels.call(address, api.GET_MAX_OFFSET, of(4), b"body")
        assert (answer.header.offset, answer.body, answer.version, answer.language) == (4, b"body", 407, "PYTHON")
        await channels.close()


async def test_answers_come_in_any_order_and_in_pieces() -> None:
    async with serving() as (desk, _, address):
        channels = Channels()
        connection = await channels.get(address)
        slow = connection.start_call(api.GET_MIN_OFFSET, of(1))
        quick = await connection.call(api.GET_MAX_OFFSET, of(2))
        assert quick.header.offset == 2 and not slow.done()
        desk.released.set()
        assert ((await slow).header.offset, (await slow).body) == (1, b"in pieces")
        await channels.close()


async def test_a_refusal_and_a_fault_are_answers() -> None:
    async with serving() as (_, _, address):
        channels = Channels()
        with pytest.raises(Refused, match=r"TOPIC_NOT_EXIST.*topic\[T\] not exist"):
            await channels.call(address, api.GET_MAX_OFFSET, of(-1))
        with pytest.raises(Refused, match="KeyError: 'thirteen'"):
            await channels.call(address, api.GET_MAX_OFFSET, of(13))
        with pytest.raises(Refused) as refused:
            await channels.call(address, api.GET_BROKER_RUNTIME_INFO)
        assert (refused.value.code, refused.value.remark) == (3, " request type 28 not supported")
        await channels.close()


async def test_requests_go_both_ways() -> None:
    asked: Routes[None] = Routes()

    @asked.on(api.GET_CONSUMER_LIST_BY_GROUP)
    def consumers(_: None, call: Call[OfConsumerGroup]) -> Reply:
        return Reply(body=call.header.consumer_group.encode())

    async with serving() as (_, _, address):
        channels = Channels(Router(None, [asked]))
        assert (await channels.call(address, api.HEART_BEAT)).body == b"g"
        await channels.close()


async def test_a_oneway_request_is_handled_and_not_answered() -> None:
    async with serving() as (desk, _, address):
        channels = Channels()
        connection = await channels.get(address)
        connection.oneway(api.GET_MAX_OFFSET, of(7))
        await connection.call(api.GET_MAX_OFFSET, of(8))
        assert desk.seen == [7, 8]
        await channels.close()


async def test_no_answer_in_time() -> None:
    async with serving() as (_, _, address):
        channels = Channels()
        connection = await channels.get(address)
        late = connection.start_call(api.GET_MIN_OFFSET, of(1), timeout=60)
        with pytest.raises(CallTimedOut, match="GET_MIN_OFFSET"):
            await connection.call(api.GET_MIN_OFFSET, of(1), timeout=0.01)
        assert not late.done()
        await channels.close()
        with pytest.raises(ConnectionLost):
            await late


async def test_a_lost_connection_cancels_what_waits_for_it() -> None:
    async with serving() as (desk, _, address):
        channels = Channels()
        connection = await channels.get(address)
        waiting = connection.start_call(api.GET_MIN_OFFSET, of(1))
        await connection.call(api.GET_MAX_OFFSET, of(0))
        assert desk.waiting == 1
        connection.abort()
        with pytest.raises(ConnectionLost):
            await waiting
        async with asyncio.timeout(5):
            await desk.left.wait()
        await channels.close()


async def test_nobody_listens() -> None:
    async with serving() as (_, server, address):
        await server.stop()
        channels = Channels()
        with pytest.raises(ConnectFailed, match=f"connect to <{address}> failed"):
            await channels.call(address, api.GET_MAX_OFFSET, of(1))
        with pytest.raises(ConnectFailed, match="host:port"):
            await channels.call("nonsense", api.GET_MAX_OFFSET, of(1))
        await channels.close()


async def test_two_eruca_peers_agree_on_msgpack() -> None:
    seen: list[int] = []
    spying: Routes[None] = Routes()

    @spying.on(api.GET_MAX_OFFSET)
    def spy(_: None, call: Call[QueueOf]) -> Reply:
        seen.append(call.serialization)
        return Reply(header=OffsetReply(offset=1))

    server = Server(Router(None, [spying]))
    await server.start("127.0.0.1", 0)
    for offer in (True, False):
        channels = Channels(offer=offer)
        for _ in range(3):
            await channels.call(f"127.0.0.1:{server.port}", api.GET_MAX_OFFSET, of(1))
        await channels.close()
    await server.stop()
    assert seen == [frame.JSON, frame.MSGPACK, frame.MSGPACK, frame.JSON, frame.JSON, frame.JSON]


async def test_the_offer_is_accepted_by_the_answer_to_it_however_late() -> None:
    async with serving() as (desk, _, address):
        channels = Channels()
        connection = await channels.get(address)
        first = connection.start_call(api.GET_MIN_OFFSET, of(1))  # carries the offer, and waits
        for queue in range(3):
            await connection.call(api.GET_MAX_OFFSET, of(queue))
        assert connection.serialization == frame.JSON
        desk.released.set()
        await first
        assert connection.serialization == frame.MSGPACK
        assert (await connection.call(api.GET_MAX_OFFSET, of(7))).header.offset == 7
        await channels.close()


async def test_a_peer_that_does_not_echo_the_offer_is_spoken_to_in_json() -> None:
    frames: list[bytes] = []

    async def apache(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            length = int.from_bytes(await reader.readexactly(4), "big")
            frames.append(await reader.readexactly(length))
            head = frame.read(frames[-1][0], frames[-1][4:])
            writer.write(frame.encode(frame.JSON, 0, head.opaque, 1, OffsetReply(offset=1), language="JAVA"))
        writer.close()

    server = await asyncio.start_server(apache, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    channels = Channels()
    for _ in range(2):
        await channels.call(address, api.GET_MAX_OFFSET, of(1))
    await channels.close()
    server.close()
    assert [data[0] for data in frames] == [frame.JSON, frame.JSON]
    assert b"ErucaHeader" in frames[0] and b"ErucaHeader" not in frames[1]


@pytest.mark.parametrize(
    "noise",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff\0\0\0\0",
        b"\0\0\0\x10\0\0\0\xff" + bytes(12),
        b"\0\0\0\x08\0\0\0\x04nope",
        b"\0\0\0\x08\x07\0\0\x04nope",
    ],
)
async def test_bytes_that_are_no_frame_end_that_connection_only(noise: bytes) -> None:
    async with serving() as (_, _, address):
        host, port = address.split(":")
        good = Channels()
        await good.call(address, api.GET_MAX_OFFSET, of(1))
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(noise)
        async with asyncio.timeout(5):
            with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
                await reader.readexactly(1)
        writer.close()
        assert (await good.call(address, api.GET_MAX_OFFSET, of(2))).header.offset == 2
        await good.close()


async def test_a_header_too_long_is_refused_also_where_its_whole_frame_has_come() -> None:
    connection = Connection(Router(Desk(), [routes]))
    header = b'{"code":30,"flag":0,"opaque":1,"remark":"%b"}' % (b"x" * frame.MAX_HEADER)
    whole = (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
    for before in (b"", frame.encode_reply(frame.JSON, 5, None, 0)):
        with pytest.raises(ProtocolError, match="a header of 2097195 bytes is refused"):
            connection.process(before + whole)


async def test_frames_byte_by_byte_and_many_at_once() -> None:
    async with serving() as (_, _, address):
        host, port = address.split(":")
        requests = [frame.encode(kind, 30, kind, 0, of(kind), 3) + b"abc" for kind in (0, 1, 2)]
        whole = b"".join(requests)
        for size in (1, 7, len(whole)):
            reader, writer = await asyncio.open_connection(host, int(port))
            for at in range(0, len(whole), size):
                writer.write(whole[at : at + size])
                await writer.drain()
            for kind in (0, 1, 2):
                length = int.from_bytes(await reader.readexactly(4), "big")
                data = await reader.readexactly(length)
                assert data[0] == kind and data.endswith(b"abc")
            writer.close()


async def test_a_large_body_comes_back_whole() -> None:
    body = bytes(range(256)) * 16384
    async with serving() as (_, _, address):
        channels = Channels()
        assert (await channels.call(address, api.GET_MAX_OFFSET, of(1), body)).body == body
        await channels.close()


async def test_more_connections_than_allowed_are_turned_away() -> None:
    async with serving(limits=ConnectionLimits(connections=1)) as (_, server, address):
        first, second = Channels(), Channels()
        await first.call(address, api.GET_MAX_OFFSET, of(1))
        with pytest.raises(ConnectionLost):
            await second.call(address, api.GET_MAX_OFFSET, of(1))
        assert server.rejected == {"connections": 1}
        await first.close()
        await second.close()


async def test_idle_connections_and_half_frames_are_closed() -> None:
    async with serving(limits=ConnectionLimits(idle=0.05, half_frame=0.05, sweep_every=0.01)) as (_, _, address):
        host, port = address.split(":")
        for start in (b"", b"\0\0\0\x30"):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(start)
            async with asyncio.timeout(5):
                with suppress(ConnectionResetError):
                    assert await reader.read() == b""
            writer.close()


async def test_a_server_stops_after_answering_what_is_under_way() -> None:
    async with serving() as (desk, server, address):
        channels = Channels()
        connection = await channels.get(address)
        waiting = connection.start_call(api.GET_MIN_OFFSET, of(3))
        await connection.call(api.GET_MAX_OFFSET, of(0))
        stopping = asyncio.ensure_future(server.stop())
        await asyncio.sleep(0)
        desk.released.set()
        assert (await waiting).header.offset == 3
        await stopping
        assert connection.closed or not server.connections
        await channels.close()


async def test_a_peer_that_does_not_read_is_not_read() -> None:
    async with serving() as (desk, _, address):
        host, port = address.split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        request = frame.encode(frame.JSON, 30, 1, 0, of(1), 1 << 20) + bytes(1 << 20)
        for _ in range(64):
            writer.write(request)
        channels = Channels()
        async with asyncio.timeout(10):
            await channels.call(address, api.GET_MAX_OFFSET, of(99))
            while (before := len(desk.seen)) < 2:
                await channels.call(address, api.GET_MAX_OFFSET, of(99))
        assert before < 64
        writer.transport.abort()
        await channels.close()


LARGE, MANY = 256 * 1024, 300


@asynccontextmanager
async def greedy(desk: Desk, server: Server, after: bytes = b"") -> AsyncIterator[socket.socket]:
    """A peer that has sent many requests for large answers in one go, and ``after`` behind them; it has read nothing,
    and the server has stopped to answer."""
    data = b"".join(frame.encode(frame.JSON, 43, number, 0, None, 0) for number in range(MANY))
    with socket.create_connection(("127.0.0.1", server.port)) as peer:
        await asyncio.to_thread(peer.sendall, data + after)
        await eventually(lambda: any(each.congested for each in server.connections))
        for _ in range(20):
            await asyncio.sleep(0)
        yield peer


def opaques(peer: socket.socket, count: int) -> list[int]:
    """Those of the next so many answers."""
    found = []
    peer.settimeout(20)
    with peer.makefile("rb") as file:
        for _ in range(count):
            data = file.read(int.from_bytes(file.read(4), "big"))
            found.append(frame.read(0, data[4 : 4 + int.from_bytes(data[1:4], "big")]).opaque)
    return found


async def test_what_a_peer_asks_in_one_go_is_answered_as_it_reads() -> None:
    async with serving() as (desk, server, _), greedy(desk, server) as peer:
        assert len(desk.seen) * LARGE < 3 * WRITE_HIGH_WATER, "what is in memory, and in the kernel"
        assert await asyncio.to_thread(opaques, peer, MANY) == list(range(MANY))
        assert desk.seen == list(range(MANY)), "each once"
        peer.sendall(frame.encode(frame.JSON, 43, 7, 0, None, 0))
        assert await asyncio.to_thread(opaques, peer, 1) == [7], "and it is served as before"


async def test_half_a_frame_may_lie_behind_what_waits() -> None:
    request = frame.encode(frame.JSON, 43, 999, 0, None, 0)
    limits = ConnectionLimits(half_frame=0.0, sweep_every=0.01)
    async with serving(limits=limits) as (desk, server, _), greedy(desk, server, request * 2) as peer:
        with socket.create_connection(peer.getpeername()) as other:
            other.sendall(request[:20])
            assert await asyncio.to_thread(other.recv, 1) == b""  # the server has looked for half frames meanwhile
        assert await asyncio.to_thread(opaques, peer, MANY + 2) == [*range(MANY), 999, 999]
    async with serving() as (desk, server, _), greedy(desk, server, request[:20]) as peer:
        reading = asyncio.ensure_future(asyncio.to_thread(opaques, peer, MANY + 1))
        peer.sendall(request[20:])
        assert await reading == [*range(MANY), 999]


async def test_a_peer_that_has_said_its_last_word_gets_every_answer() -> None:
    async with serving() as (desk, server, _), greedy(desk, server) as peer:
        peer.shutdown(socket.SHUT_WR)
        assert await asyncio.to_thread(opaques, peer, MANY) == list(range(MANY))
        assert await asyncio.to_thread(peer.recv, 1) == b""


async def test_a_connection_can_end_while_requests_wait() -> None:
    async with serving() as (desk, server, _), greedy(desk, server) as peer:
        (connection,) = server.connections
        answered = len(desk.seen)
        connection.close()
        draining = asyncio.ensure_future(connection.drain())
        assert await asyncio.to_thread(opaques, peer, answered) == list(range(answered))
        assert await asyncio.to_thread(peer.recv, 1) == b"", "what was answered came, and nothing else"
        async with asyncio.timeout(20):
            await draining
        assert len(desk.seen) == answered
    async with serving() as (desk, server, _), greedy(desk, server):
        answered = len(desk.seen)
        await server.stop(grace=0.1)
        assert len(desk.seen) == answered


async def test_noise_behind_what_waits_ends_the_connection_when_its_turn_comes() -> None:
    async with serving() as (desk, server, _), greedy(desk, server, b"\x00" * 64) as peer:
        assert len(desk.seen) < MANY

        def all_there_is() -> int:
            count = 0
            with suppress(ConnectionError):
                while data := peer.recv(1 << 20):
                    count += len(data)
            return count

        assert await asyncio.to_thread(all_there_is) > 0
        assert desk.seen == list(range(MANY))


async def test_who_awaits_an_answer_looks_for_it_behind_requests() -> None:
    """The server asks back, and the answer lies behind more requests than it would answer unread."""
    data = b"".join(frame.encode(frame.JSON, 43, number, 0, None, 0) for number in range(MANY))
    data += frame.encode(frame.JSON, 0, 1, frame.RESPONSE_FLAG, None, 4) + b"back"
    async with serving() as (desk, server, _):
        with socket.create_connection(("127.0.0.1", server.port)) as peer:
            peer.sendall(frame.encode(frame.JSON, 34, 5000, 0, None, 0))
            assert await asyncio.to_thread(opaques, peer, 1) == [1], "it asks back"
            await asyncio.to_thread(peer.sendall, data)
            (connection,) = server.connections
            await eventually(lambda: not connection.calls)
            assert len(desk.seen) == MANY


async def test_a_handler_for_each_code_only_once() -> None:
    again: Routes[Desk] = Routes()
    again.on(api.GET_MAX_OFFSET)(answer_at_once)
    with pytest.raises(ValueError, match="GET_MAX_OFFSET has a handler already"):
        again.on(api.GET_MAX_OFFSET)(answer_at_once)
    with pytest.raises(ValueError, match="GET_MAX_OFFSET has a handler already"):
        Router(Desk(), [routes, again])


async def test_codes_left_out_and_guards() -> None:
    def no_queue_5(call: Call[Any]) -> None:
        if getattr(call.header, "queue_id", None) == 5:
            raise Refused(16, "not that one")

    server = Server(Router(Desk(), [routes], without={29, 31}, guards=[no_queue_5]))
    await server.start("127.0.0.1", 0)
    channels = Channels()
    connection: Connection = await channels.get(f"127.0.0.1:{server.port}")
    with pytest.raises(Refused, match="not supported"):
        await connection.call(api.GET_MIN_OFFSET, of(1))
    with pytest.raises(Refused, match="not that one"):
        await connection.call(api.GET_MAX_OFFSET, of(5))
    assert (await connection.call(api.GET_MAX_OFFSET, of(6))).header.offset == 6
    await channels.close()
    await server.stop()


async def test_an_answer_that_comes_after_the_end_of_a_connection_is_dropped_in_silence() -> None:
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    pieces = [bytes(1_000_000)] * 8  # more than goes out while the peer does not read
    calls: list[Call[QueueOf]] = []
    both = asyncio.Event()
    slow: Routes[None] = Routes()

    @slow.on(api.GET_MAX_OFFSET)
    def keep(_: None, call: Call[QueueOf]) -> None:
        calls.append(call)
        if len(calls) == 2:
            both.set()

    server = Server(Router(None, [slow]))
    await server.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"".join(frame.encode(frame.JSON, 30, opaque, 0, of(opaque)) for opaque in (1, 2)))
    await both.wait()
    connection = calls[0].connection
    connection.reply(calls[0], Reply(header=OffsetReply(offset=1), body=pieces))
    connection.close()
    assert not connection.closed
    connection.reply(calls[1], Reply(header=OffsetReply(offset=2), body=pieces))
    whole = await reader.read()
    assert frame.split(whole, 0) is not None and len(whole) < 9_000_000
    writer.close()
    await server.stop()
    assert faults == []
