"""Many connections, half frames on each, and readers that do not read: others feel nothing of them."""

from __future__ import annotations

import asyncio
import json
import resource
import ssl
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.support.certificates import Certificates
from tests.support.history import History, judge
from tests.support.load import Load, pull, read, send
from tests.support.lone import MANY_PEERS, LoneBroker
from tests.support.peers import Peer
from tests.support.programme import ENOUGH, LONG, MEBIBYTE, WHY, amount
from tests.support.raw import frame, send_header

pytestmark = pytest.mark.processes
only_long = pytest.mark.skipif(not LONG, reason=WHY)


@asynccontextmanager
async def connections(
    address: str, count: int, tls: ssl.SSLContext | None = None
) -> AsyncIterator[list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]:
    """So many sockets to one server, encrypted with ``tls``."""
    least = count + 1000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < least <= hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (least, hard))
    host, _, port = address.rpartition(":")
    opened: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    try:
        while len(opened) < count:
            opened += await asyncio.gather(
                *(asyncio.open_connection(host, int(port), ssl=tls) for _ in range(min(200, count - len(opened))))
            )
        yield opened
    finally:
        for _, writer in opened:
            writer.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_connections_cost_little_and_idle_ones_are_closed(tmp_path: Path) -> None:
    count = amount(1000, 10_000)
    settings = {"serverChannelMaxIdleTimeSeconds": "5", **MANY_PEERS}
    broker = await LoneBroker.start(tmp_path, tmp_path / "store", settings)
    try:
        before = broker.memory()["rss"]
        history = History()
        async with connections(broker.address, count) as opened:
            for _, writer in opened:
                writer.write(frame(send_header())[:7])  # half a frame each
            async with Load(broker.address, history, producers=1) as load:
                await load.until(200)
                more = broker.memory()["rss"] - before
                assert more <= 100 * MEBIBYTE
                async with asyncio.timeout(60):
                    assert await asyncio.gather(*(reader.read() for reader, _ in opened)) == [b""] * count
                await load.drained()
            assert set(load.answers) == {0}
        assert judge(history, await read(broker.address)) == []
        print(f"{count} connections cost {more / MEBIBYTE:.1f} MiB")
    finally:
        broker.kill()


ENCRYPTED = 48 << 10
"""What a connection with TLS may cost: with asyncio's own transports, which the daemons do not take, it is 278 KiB."""


async def test_encrypted_connections_cost_little(tmp_path: Path) -> None:
    count = amount(300, 2000)
    certificates = Certificates(tmp_path / "certificates")
    settings = {
        "tls.server.mode": "permissive",
        "tls.server.certPath": str(certificates.server.certificate),
        "tls.server.keyPath": str(certificates.server.key),
        "tls.server.handshakesPerSecond": "0",
        "tls.server.handshakesPerSecondPerAddress": "0",
        **MANY_PEERS,
    }
    broker = await LoneBroker.start(tmp_path, tmp_path / "store", settings)
    trusting = ssl.create_default_context(cafile=certificates.ca_file)
    asked = frame(send_header(code=28))
    try:
        async with connections(broker.address, 20, trusting):  # what TLS itself needs
            before = broker.memory()["rss"]
        history = History()
        async with connections(broker.address, count, trusting) as opened:
            for reader, writer in opened:
                writer.write(asked)
                await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            async with Load(broker.address, history, producers=1) as load:
                await load.until(200)
                more = broker.memory()["rss"] - before
                await load.drained()
        assert set(load.answers) == {0} and judge(history, await read(broker.address)) == []
        print(f"{count} encrypted connections cost {more / MEBIBYTE:.1f} MiB")
        assert more <= 4 * MEBIBYTE + count * ENCRYPTED
    finally:
        broker.kill()


CONNECTION = 8 << 10
"""What a connection may cost beside what it holds."""
LARGE_FRAME = 15 * MEBIBYTE
"""Within what a frame may have."""


async def half_frame(writer: asyncio.StreamWriter) -> None:
    """Send a large frame but for its end, as long as the broker takes it."""
    writer.write(LARGE_FRAME.to_bytes(4, "big"))
    piece = bytes(256 << 10)
    with suppress(ConnectionError):
        for _ in range(LARGE_FRAME // len(piece) - 1):
            writer.write(piece)
            await writer.drain()


async def most_memory(broker: LoneBroker, work: Awaitable[object]) -> int:
    """The most memory that the broker had during this work."""
    most = 0
    task = asyncio.ensure_future(work)
    while not task.done():
        await asyncio.wait([task], timeout=0.02)
        most = max(most, broker.memory()["anonymous"])
    await task
    return most


@pytest.mark.parametrize("count", [40, pytest.param(1000, marks=[ENOUGH, only_long])])
async def test_half_frames_of_many_connections_cost_no_more_than_their_budget(tmp_path: Path, count: int) -> None:
    """Without the budget 40 of them cost 600 MiB."""
    broker = await LoneBroker.start(tmp_path, tmp_path / "store", MANY_PEERS)
    history = History()
    try:
        async with Load(broker.address, history, producers=1) as load:
            await load.until(500)
            before = broker.memory()["anonymous"]
            async with connections(broker.address, count) as opened:
                most = await most_memory(broker, asyncio.gather(*(half_frame(writer) for _, writer in opened)))
                await load.until(load.answers[0] + 500)
                most = max(most, broker.memory()["anonymous"])
            await load.drained()
        assert set(load.answers) == {0}
        assert judge(history, await read(broker.address)) == []
        cut_off = "unfinished_frame_dropped" in broker.output
        print(f"{count} half frames of 15 MiB cost {(most - before) / MEBIBYTE:.1f} MiB")
        assert cut_off and most - before <= 70 * MEBIBYTE + count * CONNECTION
    finally:
        broker.kill()


READS = {"consumerGroup": "readers", "queueId": 0, "queueOffset": 0, "sysFlag": 4, "commitOffset": 0}
READS |= {"suspendTimeoutMillis": 0, "subVersion": 0, "subscription": "*"}


def asks(topic: str, numbers: range, most: int) -> bytes:
    """Pulls from the beginning of a topic, with these opaques."""
    fields = {name: str(value) for name, value in {**READS, "topic": topic, "maxMsgNums": most}.items()}
    return b"".join(frame(send_header(code=11, opaque=number, extFields=fields)) for number in numbers)


async def cost_of_readers(tmp_path: Path, count: int) -> int:
    """Bytes that a broker has more when so many readers ask for far more than fits into a socket, and take nothing."""
    broker = await LoneBroker.start(tmp_path, tmp_path / "store", {"mappedFileSizeCommitLog": str(16 << 20)})
    history = History()
    try:
        peer = await Peer().connect(broker.address)
        for _ in range(60):
            assert (await send(peer, 0, bytes(8000), topic="Large", within=60)).code == 0
        assert len((await pull(peer, 0, 0, topic="Large")).body) > 200_000
        await peer.close()
        before = broker.memory()["anonymous"]
        async with connections(broker.address, count) as opened:
            for _, writer in opened:
                writer.transport.pause_reading()  # type: ignore[attr-defined]
                writer.write(asks("Large", range(50), 32))  # 13 MB of answers
            async with Load(broker.address, history, producers=1) as load:
                await load.until(1000)
                await load.drained()
            assert set(load.answers) == {0}
            more = broker.memory()["anonymous"] - before
        print(f"{count} readers with 50 pulls each cost {more / MEBIBYTE:.1f} MiB")
        return more
    finally:
        broker.kill()


async def test_a_reader_that_asks_for_much_in_one_go(tmp_path: Path) -> None:
    """Hundreds of pulls of small messages, whose answers are copies: they are made as the reader takes them."""
    number = 500
    broker = await LoneBroker.start(tmp_path, tmp_path / "store", {"mappedFileSizeCommitLog": str(16 << 20)})
    try:
        peer = await Peer().connect(broker.address)
        for _ in range(220):
            assert (await send(peer, 0, bytes(1000), topic="Small", within=60)).code == 0
        before = broker.memory()["anonymous"]
        async with connections(broker.address, 1) as [(reader, writer)]:
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(asks("Small", range(number), 1024))
            await writer.drain()
            await pull(peer, 0, 0, topic="Small")
            more = broker.memory()["anonymous"] - before
            writer.transport.resume_reading()  # type: ignore[attr-defined]
            size = 0
            async with asyncio.timeout(60):
                for opaque in range(number):
                    answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                    assert json.loads(answer[4 : 4 + int.from_bytes(answer[1:4], "big")])["opaque"] == opaque
                    size += len(answer)
        print(f"{size / MEBIBYTE:.1f} MiB of answers were asked for at once, which cost {more / MEBIBYTE:.1f} MiB")
        assert size > 100 * MEBIBYTE and more <= 24 * MEBIBYTE
        await peer.close()
    finally:
        broker.kill()


async def test_readers_that_do_not_read(tmp_path: Path) -> None:
    assert await cost_of_readers(tmp_path, amount(10, 20)) <= 32 * MEBIBYTE


KEEPS = """
from eruca.remoting.connection import Connection

kept = []
made = Connection.connection_made

def connection_made(self, transport):
    kept.append(b"x" * (5 << 20))
    made(self, transport)

Connection.connection_made = connection_made
"""


async def test_a_broker_that_keeps_answers_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: 5 MiB are kept for each connection."""
    (tmp_path / "sitecustomize.py").write_text(KEEPS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert await cost_of_readers(tmp_path, 10) > 32 * MEBIBYTE
