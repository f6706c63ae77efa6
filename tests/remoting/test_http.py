"""The small HTTP server: what it answers, and what it does with peers that are slow, wrong or too many."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from http import HTTPStatus

import pytest

from eruca.remoting.http import CONNECTIONS, LONGEST_HEADER, Fields, HttpServer, Page
from tests.support.pairs import eventually

GET = b"GET /page HTTP/1.1\r\nHost: here\r\n\r\n"


class Site:
    """A server with a page, one that waits until it is let go, and one that cannot be made."""

    def __init__(self, patience: float = 60.0) -> None:
        self.go_on = asyncio.Event()
        self.begun: asyncio.Queue[None] = asyncio.Queue()
        self.cancelled: asyncio.Queue[None] = asyncio.Queue()
        self.fields: list[Fields] = []
        self.server = HttpServer(
            {"/page": self.page, "/slow": self.slow, "/broken": self.broken, "/large": self.large}, patience
        )

    def page(self, fields: Fields) -> Page:
        self.fields.append(fields)
        return Page(b"hello\n")

    def large(self, _: Fields) -> Page:
        return Page(bytes(64 << 20))

    async def slow(self, _: Fields) -> Page:
        self.begun.put_nowait(None)
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled.put_nowait(None)
            raise
        return Page(b"at last\n")

    def broken(self, _: Fields) -> Page:
        raise RuntimeError("planted")

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.server.port)

    async def ask(self, *pieces: bytes) -> bytes:
        """All that comes back until the server closes."""
        reader, writer = await self.connect()
        for piece in pieces:
            writer.write(piece)
            with contextlib.suppress(ConnectionError):
                await writer.drain()
        try:
            return await reader.read()
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with started(Site()) as site:
        yield site


@pytest.fixture
async def hasty() -> AsyncIterator[Site]:
    """A site whose patience is short."""
    async with started(Site(patience=0.05)) as site:
        yield site


@contextlib.asynccontextmanager
async def started(site: Site) -> AsyncIterator[Site]:
    await site.server.start("127.0.0.1", 0)
    yield site
    await site.server.stop()


def first_line(answer: bytes) -> bytes:
    return answer.partition(b"\r\n")[0]


def body(answer: bytes) -> bytes:
    return answer.partition(b"\r\n\r\n")[2]


async def seen(events: asyncio.Queue[None], count: int = 1) -> None:
    async with asyncio.timeout(30):
        for _ in range(count):
            await events.get()


async def test_a_page_and_the_end_of_the_connection(site: Site) -> None:
    answer = await site.ask(GET)

    assert first_line(answer) == b"HTTP/1.1 200 OK"
    assert b"\r\nContent-Length: 6\r\n" in answer and b"\r\nConnection: close\r\n" in answer
    assert body(answer) == b"hello\n"


async def test_fields_are_known_by_names_in_lower_case(site: Site) -> None:
    await site.ask(b"GET /page?a=b HTTP/1.0\r\nACCEPT:  text/plain \r\n\r\n")

    assert site.fields == [{"accept": "text/plain"}]


async def test_head_has_the_length_and_no_body(site: Site) -> None:
    answer = await site.ask(b"HEAD /page HTTP/1.1\r\n\r\n")

    assert first_line(answer) == b"HTTP/1.1 200 OK" and b"Content-Length: 6\r\n" in answer
    assert body(answer) == b""


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /elsewhere HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"HEAD /elsewhere HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"GET /page/../page HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"POST /page HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", b"405 Method Not Allowed"),
        (b"DELETE /page HTTP/1.1\r\n\r\n", b"405 Method Not Allowed"),
        (b"GET /page\r\n\r\n", b"400 Bad Request"),
        (b"GET /page HTTP/2.0\r\n\r\n", b"400 Bad Request"),
        (b"GET page HTTP/1.1\r\n\r\n", b"400 Bad Request"),
        (b"\x16\x03\x01\x00\x05\r\n\r\n", b"400 Bad Request"),
        (b"\r\n\r\n", b"400 Bad Request"),
        (b"GET /page HTTP/1.1\r\nno colon\r\n: \r\n\r\n", b"200 OK"),
        (b"GET /page HTTP/1.1\r\nX: " + bytes([255]) * 100 + b"\r\n\r\n", b"200 OK"),
        (b"GET /broken HTTP/1.1\r\n\r\n", b"500 Internal Server Error"),
    ],
)
async def test_what_is_answered(site: Site, request_: bytes, status: bytes) -> None:
    assert first_line(await site.ask(request_)) == b"HTTP/1.1 " + status
    assert body(await site.ask(GET)) == b"hello\n"


async def test_a_request_in_pieces(site: Site) -> None:
    reader, writer = await site.connect()
    for byte in GET:
        writer.write(bytes([byte]))
        await writer.drain()

    assert body(await reader.read()) == b"hello\n"
    writer.close()
    await writer.wait_closed()


async def test_only_the_first_of_several_requests_is_answered(site: Site) -> None:
    answer = await site.ask(GET * 100)

    assert answer.count(b"HTTP/1.1") == 1 and len(site.fields) == 1


async def test_a_peer_that_closes_its_side_gets_its_page(site: Site) -> None:
    reader, writer = await site.connect()
    writer.write(b"GET /slow HTTP/1.1\r\n\r\n")
    writer.write_eof()
    await seen(site.begun)
    site.go_on.set()

    assert body(await reader.read()) == b"at last\n"
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("end", [b"", b"\r\n\r\n"])
async def test_a_header_of_a_megabyte_is_refused_and_the_refusal_arrives(site: Site, end: bytes) -> None:
    answer = await site.ask(b"GET /page HTTP/1.1\r\nX: ", *[bytes([120]) * (64 << 10)] * 16, end)

    assert first_line(answer) == b"HTTP/1.1 431 Request Header Fields Too Large"


@pytest.mark.parametrize(("more", "status"), [(0, b"200 OK"), (1, b"431 Request Header Fields Too Large")])
async def test_the_longest_header_is_taken(site: Site, more: int, status: bytes) -> None:
    start = b"GET /page HTTP/1.1\r\nX: "
    answer = await site.ask(start + b"x" * (LONGEST_HEADER - len(start) + more) + b"\r\n\r\n")

    assert first_line(answer) == b"HTTP/1.1 " + status


async def test_a_slow_header_ends(hasty: Site) -> None:
    answer = await hasty.ask(b"GET /page HTTP/1.1\r\nX: ")

    assert first_line(answer) == b"HTTP/1.1 408 Request Timeout"


async def test_slow_peers_lock_out_nobody(site: Site) -> None:
    idle = [await site.connect() for _ in range(3 * CONNECTIONS)]

    assert body(await site.ask(GET)) == b"hello\n"
    ended = [reader for reader, _ in idle if reader.at_eof() or reader.exception() is not None]
    assert len(ended) >= 2 * CONNECTIONS
    for _, writer in idle:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def test_a_page_that_is_being_made_is_not_given_up_for_another(site: Site) -> None:
    waiting = [await site.connect() for _ in range(CONNECTIONS)]
    for _, writer in waiting:
        writer.write(b"GET /slow HTTP/1.1\r\n\r\n")
    await seen(site.begun, CONNECTIONS)

    with contextlib.suppress(ConnectionError):
        assert await site.ask(GET) == b""
    site.go_on.set()
    assert {body(await reader.read()) for reader, _ in waiting} == {b"at last\n"}
    for _, writer in waiting:
        writer.close()
        await writer.wait_closed()


async def test_the_page_of_a_peer_that_has_gone_is_not_made(site: Site) -> None:
    _, writer = await site.connect()
    writer.write(b"GET /slow HTTP/1.1\r\n\r\n")
    await seen(site.begun)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()

    await seen(site.cancelled)


async def test_an_answer_that_nobody_reads_is_given_up(hasty: Site) -> None:
    reader, writer = await hasty.connect()
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(b"GET /large HTTP/1.1\r\n\r\n")
    await eventually(lambda: hasty.server.connections == 1)
    await eventually(lambda: hasty.server.connections == 0)
    writer.transport.resume_reading()  # type: ignore[attr-defined]

    with contextlib.suppress(ConnectionError):
        assert len(await reader.read()) < 64 << 20
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def test_the_stop_ends_what_is_under_way() -> None:
    site = Site()
    await site.server.start("127.0.0.1", 0)
    reader, writer = await site.connect()
    writer.write(b"GET /slow HTTP/1.1\r\n\r\n")
    await seen(site.begun)

    await site.server.stop()

    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    await seen(site.cancelled)
    assert site.server.port == 0
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


def test_a_page_is_fine_unless_it_says_otherwise() -> None:
    assert Page(b"").status is HTTPStatus.OK
