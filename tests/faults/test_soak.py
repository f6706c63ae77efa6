"""A broker that works for long: its memory does not grow, and sends at the end wait no longer than at the beginning."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.support.history import History
from tests.support.load import Load, pull, send
from tests.support.lone import LoneBroker
from tests.support.peers import Peer
from tests.support.programme import LONG, MEBIBYTE, TIMES

pytestmark = pytest.mark.processes

SECONDS = 120 * TIMES if LONG else 8.0
WARM = SECONDS / 10 if LONG else 3.0
MOST_GROWTH = (SECONDS / 600 if LONG else 8) * MEBIBYTE
"""1 MiB in 10 minutes in the long run; in the short one, buffers still find their size."""
SETTINGS = {"deleteWhen": ";".join(f"{hour:02d}" for hour in range(24)), "fileReservedTime": "0"}
SETTINGS |= {
    "cleanResourceInterval": "1000",
    "mappedFileSizeCommitLog": str(4 << 20),
    "cleanFileForciblyEnable": "false",
}


async def waits(peer: Peer, seconds: float) -> float:
    """The 99th of a hundred milliseconds that sends took, at an even pace."""
    took: list[float] = []
    end = time.monotonic() + seconds
    while len(took) < 50 or time.monotonic() < end:
        since = time.monotonic()
        assert (await send(peer, 0, b"probe", topic="Probe", within=60)).code == 0
        took.append((time.monotonic() - since) * 1000)
        await asyncio.sleep(0.02)
    return sorted(took)[len(took) * 99 // 100]


async def follow(address: str) -> None:
    """Consume a queue, from its beginning again whenever retention was faster."""
    peer = await Peer().connect(address)
    offset = 0
    try:
        while True:
            answer = await pull(peer, 0, offset)
            offset = int(answer.fields["nextBeginOffset"])
            if answer.code:
                await asyncio.sleep(0.02)
    finally:
        await peer.close()


async def test_memory_and_waits_stay_as_they_are(tmp_path: Path) -> None:
    broker = await LoneBroker.start(tmp_path, tmp_path / "store", SETTINGS)
    try:
        peer = await Peer().connect(broker.address)
        async with Load(broker.address, History(), producers=1, padding=300) as load:
            await load.until(20)
            following = asyncio.ensure_future(follow(broker.address))
            first = await waits(peer, WARM)
            before = broker.memory()["anonymous"]
            last = first
            end = time.monotonic() + SECONDS - WARM
            while time.monotonic() < end:
                last = await waits(peer, min(WARM, max(end - time.monotonic(), 0)))
            grown = broker.memory()["anonymous"] - before
            assert not following.done(), following
            following.cancel()
            await asyncio.wait([following])
            sent = load.answers[0]
            assert set(load.answers) == {0}, load.refusals
        print(f"{sent} sent in {SECONDS:.0f} s: {grown / MEBIBYTE:+.2f} MiB; p99 {first:.1f} ms, then {last:.1f} ms")
        assert grown <= MOST_GROWTH
        assert last <= max(10 * first, 500), "sends wait longer and longer"
        await peer.close()
        assert broker.stop() == 0, broker.output
    finally:
        broker.kill()
