"""A broker whose memory is high, as operators and clients see it: sends are refused, all the rest goes on."""

from __future__ import annotations

import asyncio
import re
import socket
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.load import pull, send
from tests.support.lone import LoneBroker
from tests.support.peers import Peer
from tests.support.ports import free_port

pytestmark = pytest.mark.processes

MEBIBYTE = 1 << 20
CONFIG, HEARTBEAT = 25, 34


def half_frame(address: str) -> socket.socket:
    """A peer that has sent 15 MiB of a frame."""
    host, _, port = address.rpartition(":")
    peer = socket.create_connection((host, int(port)))
    peer.sendall((15 * MEBIBYTE).to_bytes(4, "big") + bytes(15 * MEBIBYTE - 4))
    return peer


def page(port: int, name: str) -> str:
    """A page of health or metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{name}", timeout=10) as answer:
        return str(answer.read().decode())


async def until(peer: Peer, code: int) -> str:
    """Send until the answer is this one; its remark."""
    async with asyncio.timeout(30):
        while (answer := await send(peer, 0, b"x")).code != code:
            pass
    return answer.remark or ""


async def test_sends_wait_for_memory_and_consumers_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setenv("ERUCA_METRICS_PORT", str(port))
    broker = await LoneBroker.start(tmp_path, tmp_path / "store")
    try:
        peer = await Peer().connect(broker.address)
        await until(peer, 0)
        high_water = broker.memory()["anonymous"] + 30 * MEBIBYTE
        assert (await peer.ask(CONFIG, {}, f"memoryHighWater={high_water}\n".encode())).code == 0
        with ExitStack() as attackers:
            for _ in range(3):
                attackers.enter_context(await asyncio.to_thread(half_frame, broker.address))
            remark = await until(peer, 2)
            assert re.search(r"its memory \(\d+ MiB\) is above memoryHighWater \(\d+ MiB\)", remark)
            assert (await pull(peer, 0, 0)).code == 0
            assert (await peer.ask(HEARTBEAT, {}, b'{"clientID":"c"}')).code == 0
            assert await asyncio.to_thread(page, port, "/readyz")
            metrics = await asyncio.to_thread(page, port, "/metrics")
            assert re.search(r"^eruca_sends_suspended\{.*\} 1(\.0)?$", metrics, re.MULTILINE), metrics
            found = re.search(r'^eruca_limit\{.*limit="memory_bytes".*\} (.+)$', metrics, re.MULTILINE)
            assert found is not None and float(found[1]) == high_water
        await until(peer, 0)
        await peer.close()
        await asyncio.to_thread(broker.wait_for_line, "memory_normal")
        assert len(re.findall("memory_(?:high|normal) ", broker.output)) == 2, "a line at each change"
    finally:
        broker.kill()
