"""Bytes that are no frames, on many sockets: they end their own connection at most; a good client sees nothing."""

from __future__ import annotations

import asyncio
import random as chances
import struct
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.desk import Desk
from tests.support.history import History, judge
from tests.support.load import Load, read
from tests.support.lone import MANY_PEERS, LoneBroker
from tests.support.peers import Peer
from tests.support.programme import ENOUGH, MEBIBYTE, amount, chance, rounds
from tests.support.raw import frame, send_header

pytestmark = [pytest.mark.slow, pytest.mark.processes]

MORE_MEMORY = 32 * MEBIBYTE


def bad_bytes(random: chances.Random) -> bytes:
    """One of the ways in which bytes can be wrong."""
    good = frame(send_header(code=random.choice([10, 11, 17, 34, 310, 320, 999])), random.randbytes(20))
    at = random.randrange(len(good))
    kind = random.randrange(12)
    if kind == 0:
        return good[:at]
    if kind == 1:
        return good[:at] + bytes([good[at] ^ 1 << random.randrange(8)]) + good[at + 1 :]
    if kind == 2:
        return random.randbytes(random.randrange(1, 400))
    if kind == 3:
        return frame(b"{}", length=random.choice([-1, -(1 << 31), 0, 3, (1 << 31) - 1, 17 << 20]))
    if kind == 4:
        return frame(b"{}", size=random.choice([0xFF_FFFF, 1000, 3]))
    if kind == 5:
        return frame(send_header(), form=random.choice([1, 2, 255]))
    if kind == 6:
        deep = random.choice([100, 100_000])
        return frame(b'{"code":310,"extFields":' + b"[" * deep + b"]" * deep + b"}")
    if kind == 7:
        many = b",".join(b'"k%d":"v"' % number for number in range(random.choice([10, 1000, 100_000])))
        return frame(b'{"code":310,"flag":0,"opaque":1,"version":1,"extFields":{' + many + b"}}")
    if kind == 8:
        return frame(send_header(code=random.choice([-1, 1 << 40, "x", None, 1.5, [1]])))
    if kind == 9:
        return frame(send_header(extFields=random.choice([None, [], "x", {"b": "../../etc"}, {"e": "-99999999999"}])))
    if kind == 10:
        return frame(send_header().replace(b"Torture", random.randbytes(7)))
    return frame(struct.pack(">hBhiiii", 310, 0, 407, 1, 0, random.randrange(-9, 9), 1 << 30), form=1)


@ENOUGH
async def test_bad_frames_beside_a_good_client(tmp_path: Path) -> None:
    random = chance("frames")
    history = History()
    broker = await LoneBroker.start(tmp_path, tmp_path / "store", MANY_PEERS)
    host, _, port = broker.address.rpartition(":")
    before = 0

    def memory() -> int:
        return broker.memory()["anonymous"]

    async def bad_client() -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        with suppress(ConnectionError):
            for _ in range(random.randrange(1, 4)):
                writer.write(bad_bytes(random))
            await writer.drain()
            with suppress(OSError):  # the broker has ended it
                writer.write_eof()
            async with asyncio.timeout(20):
                while await reader.read(65536):
                    pass
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    try:
        async with Load(broker.address, history, producers=1, under_way=1) as load:
            for number in rounds(130, 2500, seconds=12):
                await asyncio.gather(*(bad_client() for _ in range(20)))
                if number == amount(20, 300):  # the heap has the size that the largest of these frames need
                    before = memory()
            await load.until(load.answers[0] + 20)
            await load.drained()
            more = memory() - before
        assert load.refusals == []
        print(f"{20 * number} clients with bad bytes cost {more / MEBIBYTE:.1f} MiB")
        assert before == 0 or more <= MORE_MEMORY
        found = await read(broker.address)
        mine = {
            queue: [(offset, body) for offset, body in messages if body in history.sent]
            for queue, messages in found.items()
        }
        assert judge(history, mine) == []
        peer = await Peer().connect(broker.address)
        assert (await peer.ask(28)).code == 0
        await peer.close()
    finally:
        broker.kill()


@pytest.mark.parametrize("length", [-1, (16 << 20) + 1, (1 << 31) - 1])
async def test_a_length_that_no_frame_has_closes_the_connection(tmp_path: Path, length: int) -> None:
    desk = Desk(tmp_path)
    await desk.start()
    try:
        host, _, port = desk.app.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(frame(b"{}", length=length))
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        writer.close()
    finally:
        await desk.stop()
